#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `pattern`, `fault`, `schedule`: what is put to the test, what goes wrong, and when, as the seed says
//! - `worker`, `sink`: a worker process, and the system that it writes to
//! - `history`, `check`: what was written down, and what it says
//! - `servers`, `links`, `crew`, `system`: what an experiment stands on
//! - `strike`, `scenario`, `run`: one strike of a fault, one cell, the whole lab
//! - `report`, `traces`, `words`, `table`, `page`: what came of it, as JSON, in sentences, in the terminal, as a picture
//! - `story`: the one experiment that everybody should see
//! - `folder`, `interrupt`, `watch`: nothing is left behind, Ctrl-C, and whoever looks on

mod check;
mod crew;
mod fault;
mod folder;
mod history;
mod interrupt;
mod links;
mod page;
mod pattern;
mod report;
mod run;
mod scenario;
mod schedule;
mod servers;
mod sink;
mod story;
mod strike;
mod system;
mod table;
mod traces;
mod watch;
mod words;
mod worker;

pub use check::{Hold, Tally, check};
pub use crew::Program;
pub use fault::{Fault, Loss, Partition};
pub use folder::sweep;
pub use history::{History, Record, Row, Step};
pub use page::page;
pub use pattern::{Kind, Pattern};
pub use report::{Cell, Report, Verdict};
pub use run::{Plan, Stopped, any_seed, run};
pub use story::story;
pub use strike::Effect;
pub use table::table;
pub use watch::Watch;
pub use words::summary;
pub use worker::work_as_told;
