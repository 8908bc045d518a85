//! The fence in real files: guarded tables, other programs, other processes, and what can go wrong with a file.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod findings;
mod guards;
mod programs;
mod race;
mod storage;
mod support;
mod transaction;
mod waiting;
