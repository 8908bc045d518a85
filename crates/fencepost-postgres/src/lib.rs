#![doc = include_str!("../README.md")]
//!
//! # Map of the code
//! - `backend`, `claim`, `queue`: the two traits, and waiting in the server's queue
//! - `server`, `session`, `limit`, `standing`, `statements`, `settings`: the sessions of this process, what each must have set, and what it looks at first
//! - `connection`, `tls`, `pooler`, `failure`: one connection, and that no pooler comes in between
//! - `schema`, and the SQL in `sql/`: what is kept in the database
//! - `fence`, `transaction`: the mark beside the data, and its check
//! - `logbook`: what holders leave beside the token; `look`: onlookers; `examine`: how the servers are set up
//! - `endpoint`, `libpq`: what a URL says, and libpq's environment, services and password file

mod backend;
mod claim;
mod connection;
mod endpoint;
mod examine;
mod failure;
mod fence;
mod libpq;
mod limit;
mod logbook;
mod look;
mod pooler;
mod queue;
mod schema;
mod server;
mod session;
mod settings;
mod standing;
mod statements;
mod tls;
mod transaction;

pub use backend::{PROFILE, PostgresBackend};
pub use fence::PostgresFence;
pub use tokio_postgres;
pub use transaction::FencedTransaction;
