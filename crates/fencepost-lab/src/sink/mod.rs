//! The system that the lock protects: a running total, and a row for each processed event.
//!
//! It is written to as a client that is not fencepost's own would do it: the stamp is shown in the transaction, and nobody looks
//! at a lease before the commit. Invariant: the order of its rows is the order in which writes took effect.

mod postgres;
mod sqlite;

use fencepost::{BackendUrl, Error, ErrorKind, Installation, LockName, Result, Stamp};

use crate::history::Row;
use postgres::PostgresSink;
use sqlite::SqliteSink;

/// What a worker reads before it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) total: i64,
    pub(crate) last_write: String,
}

/// What a worker writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) name: String,
    /// What it has read.
    pub(crate) base: Register,
    /// Its author's token.
    pub(crate) token: Option<u64>,
    /// Shown to the fence, where it is on.
    pub(crate) stamp: Option<Stamp>,
}

impl Write {
    /// The total that it makes, which is the number of its event as well.
    pub(crate) fn total(&self) -> i64 {
        self.base.total + 1
    }
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Refused(String),
    Unknown(String),
}

/// One partition of the protected system.
#[derive(Debug)]
pub(crate) enum Sink {
    Postgres(Box<PostgresSink>),
    Sqlite(SqliteSink),
}

impl Sink {
    /// Connects when it is first needed.
    pub(crate) fn open(url: &BackendUrl, partition: &LockName) -> Result<Self> {
        match url.kind() {
            "postgres" => Ok(Self::Postgres(Box::new(PostgresSink::new(url, partition)?))),
            "sqlite" => Ok(Self::Sqlite(SqliteSink::new(url, partition))),
            _ => Err(url.wrong("the lab protects Postgres and SQLite")),
        }
    }

    /// Makes the partition, with a total of nothing, and the fence.
    pub(crate) fn prepare(&mut self, url: &BackendUrl) -> Result<()> {
        fencepost::block_on(fencepost::install_fence(url, &Installation::default()))?;
        match self {
            Self::Postgres(sink) => sink.prepare(),
            Self::Sqlite(sink) => sink.prepare(),
        }
    }

    pub(crate) fn read(&mut self) -> Result<Register> {
        match self {
            Self::Postgres(sink) => sink.read(),
            Self::Sqlite(sink) => sink.read(),
        }
    }

    pub(crate) fn write(&mut self, write: &Write) -> Verdict {
        match self {
            Self::Postgres(sink) => sink.write(write),
            Self::Sqlite(sink) => sink.write(write),
        }
    }

    /// The accepted writes, in their order.
    pub(crate) fn rows(&mut self) -> Result<Vec<Row>> {
        match self {
            Self::Postgres(sink) => sink.rows(),
            Self::Sqlite(sink) => sink.rows(),
        }
    }
}

fn broken(operation: &'static str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, operation, format!("the protected system: {why}"))
}
