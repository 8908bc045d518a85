#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `backend`, `claim`, `queue`: the two traits, and waiting for one's turn
//! - `server`, `session`, `leases`, `server_clock`: one server as the locks of this process see it
//! - `connection`, `transport`, `resp`, `failure`: one connection, what goes over it, and what goes wrong with it
//! - `script`, `keys`, `record`: the scripts in `lua/`, and what they leave on the server
//! - `look`, `signals`: onlookers; `examine`: how the servers are set up
//! - `fence`, `fenced`, `functions`: the fence, scripts of the user's behind it, and functions for clients in any language
//! - `endpoint`: what a URL says
//! - `redlock`: several independent servers; `quorum`: what their answers prove, without a network

mod backend;
mod claim;
mod connection;
mod endpoint;
mod examine;
mod failure;
mod fence;
mod fenced;
mod functions;
mod keys;
mod leases;
mod look;
mod queue;
mod record;
mod resp;
mod script;
mod server;
mod server_clock;
mod session;
mod signals;
mod transport;

pub mod redlock;

#[doc(hidden)]
pub mod quorum;

pub use backend::{PROFILE, RedisBackend};
pub use fence::RedisFence;
pub use fenced::{FencedScript, Value};
