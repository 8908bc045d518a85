#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `backend`, `claim`, `queue`: the two traits, and waiting for one's turn
//! - `ensemble`, `session`, `heartbeat`: the sessions of this process, what keeps them, and what their heartbeats prove
//! - `trace`: what an attempt has left in a queue, which is never forgotten
//! - `nodes`, `record`, `seen`, `offset`: what is kept on the ensemble, and what tokens are made of
//! - `logbook`: what holders leave for those to come
//! - `look`, `signals`, `examine`, `words`: onlookers
//! - `connection`, `protocol`, `jute`, `failure`: one connection, what goes over it, and what goes wrong with it
//! - `endpoint`: what a URL says

mod backend;
mod claim;
mod connection;
mod endpoint;
mod ensemble;
mod examine;
mod failure;
mod heartbeat;
mod jute;
mod logbook;
mod look;
mod nodes;
mod offset;
mod protocol;
mod queue;
mod record;
mod seen;
mod session;
mod signals;
mod trace;
mod words;

pub use backend::{PROFILE, ZooKeeperBackend};
pub use claim::lease_node;
