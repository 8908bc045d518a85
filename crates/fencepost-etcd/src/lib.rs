#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `backend`, `claim`, `queue`: the two traits, and waiting for one's turn
//! - `stand`, `record`, `rest`, `keys`, `requests`: one's own place in a queue, and what is kept on the server
//! - `server`, `session`, `renewals`, `crowd`, `watch`: the leases that this process has, and who is told of what
//! - `members`, `login`, `failure`: which member is asked, and what is tried when it fails
//! - `connection`, `grpc`, `generated`: one connection, and what goes over it
//! - `look`, `signals`, `examine`: onlookers, and what the set-up of the members weakens
//! - `logbook`: what holders leave beside the token
//! - `proof`: what a transaction of the user's compares
//! - `endpoint`: what a URL says; `bare`: what measurements compare with

mod backend;
mod claim;
mod connection;
mod crowd;
mod endpoint;
mod examine;
mod failure;
mod generated;
mod grpc;
mod keys;
mod logbook;
mod login;
mod look;
mod members;
mod proof;
mod queue;
mod record;
mod renewals;
mod requests;
mod rest;
mod server;
mod session;
mod signals;
mod stand;
mod watch;

#[doc(hidden)]
pub mod bare;

pub use backend::{EtcdBackend, PROFILE};
pub use proof::Proof;
