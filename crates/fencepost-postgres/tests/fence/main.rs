//! What the fence in a database refuses, on real servers: writes without the stamp that is the mark, whoever waits for whom.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod family;
mod order;
mod owner;
mod pooler;
mod race;
mod rights;
mod seals;
mod snapshots;
mod stage;
mod stamps;
mod transaction;
mod writes;
