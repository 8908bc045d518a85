//! Redlock on real servers under real faults: nodes that are killed, stopped, cut off, slow, emptied or told another time, and
//! clients that are stopped or killed.
//!
//! `FENCEPOST_CHAOS_SECONDS` says how long the random faults of `faults.rs` go on, which is 20 seconds unless it is set;
//! `FENCEPOST_SEED` repeats the choice of a run.

#![expect(
    clippy::print_stdout,
    reason = "a test says what it has measured, and a client process what it has held"
)]

mod amnesia;
mod client;
mod clocks;
mod contention;
mod cuts;
mod examine;
mod faults;
mod finality;
mod load;
mod looking;
mod minority;
mod nodes;
mod refusals;
mod rounds;
mod validity;
