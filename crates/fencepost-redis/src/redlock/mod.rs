//! Redlock: several independent Redis servers, a majority of which grants. `redlock://a:6379,b:6379,c:6379`
//!
//! What their answers prove is decided by the machines in [`quorum`](crate::quorum); here they are asked.

mod acquire;
mod backend;
mod candidate;
mod claim;
mod exchange;
mod nodes;
mod reseed;
mod view;

pub use backend::{PROFILE, RedlockBackend};
