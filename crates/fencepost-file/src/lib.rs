#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `backend`, `claim`: the two traits
//! - `directory`: which directory, who may use it, opening what is in it
//! - `hold`: the two kernel locks that make one hold; `queue`: waiting for them on a thread
//! - `stat`: which file it is
//! - `range`: kernel locks on ranges of a file; `readers`: who shares a lock, and the gate before them
//! - `record`: the token record and the line that names the holder; `table`: the kernel's table of locks
//! - `logbook`: what holders leave for those to come; `revocation`: whose leases are taken away
//! - `news`: what the kernel tells of a directory; `signals`: the same for those who look at locks
//! - `look`: the locks as an onlooker sees them; `examine`: what the directory shows of itself
//! - `fence`: a fence in a directory; `publish`, `copy`: results of jobs behind it

mod backend;
mod claim;
mod copy;
mod directory;
mod examine;
mod fence;
mod hold;
mod logbook;
mod look;
mod news;
mod publish;
mod queue;
mod range;
mod readers;
mod record;
mod revocation;
mod signals;
mod stat;
mod table;

pub use backend::{FileBackend, PROFILE};
pub use directory::default_directory;
pub use fence::FileFence;
