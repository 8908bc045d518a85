#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `policy`: what was read, and the choice that it makes for one lock; `rule`: one rule
//! - `search`: where the file is looked for; `placement`: where a lock lives, with a file and without
//! - `read`: the keys of the file; `table`: how one value of it is read
//! - `place`: the backends and fences that a file names
//! - `template`: URLs with places for secrets in them; `placeholder`: these places
//! - `amend`: one more rule in a file that stays as it is; `partition`: a list of locks with their answers
//! - `compare`: one lock in two places by two files; `schema`: the keys for editors
//! - `globs`, `duration`: how names are matched and times are written
//! - `check`: all that `config check` finds; what is too weak for what a rule says of itself, `fencepost-advisor` judges
//! - `finding`, `source`, `redact`: messages that point into the file and never show a password of it

pub mod duration;

mod amend;
mod check;
mod compare;
mod finding;
mod globs;
mod partition;
mod place;
mod placeholder;
mod placement;
mod policy;
mod read;
mod redact;
mod rule;
mod schema;
mod search;
mod source;
mod table;
mod template;

pub use amend::{Amended, amended};
pub use fencepost_advisor::{Answers, Overlap, Reach};
pub use finding::{ConfigError, Finding, Position, Severity};
pub use partition::{Partition, partitions};
pub use place::Place;
pub use placement::{Misplaced, Origin, Placement};
pub use policy::Policy;
pub use rule::{Choice, Rule};
pub use schema::SCHEMA;
pub use search::Surroundings;
pub use template::spells_out_password;
