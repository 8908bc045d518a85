//! What only etcd does: a cluster whose members fail, revisions, foreign keys, logins, and what a request does that comes late.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod cost;
mod examine;
mod finality;
mod foreign;
mod logbook;
mod login;
mod looking;
mod loss;
mod proof;
mod renewing;
mod sharing;
mod signals;
mod stage;
mod tls;
mod tokens;
mod waiting;
