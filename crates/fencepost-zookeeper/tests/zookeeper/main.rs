//! What only ZooKeeper does, on real servers: sessions, queues of nodes, tokens, and an ensemble that loses members.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod between;
mod calm;
mod crowd;
mod ensemble;
mod examine;
mod giving_back;
mod logbook;
mod looking;
mod members;
mod queue;
mod sessions;
mod sharing;
mod signals;
mod stage;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
