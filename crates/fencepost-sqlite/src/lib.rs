#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `fence`: the trait
//! - `database`: the file, and work on it on a thread of its own, with a bound
//! - `schema`, `guards`: the tables in `sql/`, and the triggers of guarded tables
//! - `transaction`: a transaction of the caller's own connection
//! - `examine`: what the file shows of itself
//! - `failure`: what SQLite's errors mean

mod database;
mod examine;
mod failure;
mod fence;
mod guards;
mod schema;
mod transaction;

pub use fence::SqliteFence;
/// The client library, in the version that a [`transaction`](SqliteFence::transaction) takes its connection of.
pub use rusqlite;
pub use transaction::FencedTransaction;
