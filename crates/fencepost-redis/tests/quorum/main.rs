//! Redlock's machines against model nodes: a simulator of many seeded runs, and an explorer of every run of a few
//! attempts.
//!
//! `FENCEPOST_SEEDS` says how many runs there are in all; `FENCEPOST_SEED` replays one, with what happens in it.

#![expect(clippy::print_stdout, reason = "a test says what it has covered")]

mod client;
mod clock;
mod controls;
mod exploration;
mod explorer;
mod fault;
mod hash;
mod history;
mod holding;
mod node;
mod random;
mod reseed;
mod scenario;
mod seeds;
mod simulation;
mod tally;
mod world;
