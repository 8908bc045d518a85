//! What only ZooKeeper does, on real servers: sessions, queues of nodes, tokens, and an ensemble that loses members.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ensemble;
mod examining;
mod logbook;
mod queue;
mod sessions;
mod stage;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
