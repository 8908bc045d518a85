//! The statements of a session, each prepared when it is needed for the second time: most sessions acquire one lock and release it.
//!
//! Invariant: the first use of a statement is one message to the server, sent when it is first polled.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};

/// The statements that are used again and again.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) lock_id: Statement,
    pub(crate) take: Statement,
    pub(crate) acquire: Statement,
    pub(crate) share: Statement,
    pub(crate) release: Statement,
    pub(crate) stop_sharing: Statement,
    pub(crate) held_by: Statement,
}

impl Statements {
    pub(crate) fn new() -> Self {
        Self {
            lock_id: Statement::new("select fencepost.lock_id($1)", &[Type::TEXT]),
            take: Statement::new(include_str!("../sql/take.sql"), &[Type::INT4, Type::TEXT, Type::TEXT]),
            acquire: Statement::new("select fencepost.acquire($1, $2, $3, $4, $5, $6, $7, $8)", REQUEST),
            share: Statement::new("select fencepost.share($1, $2, $3, $4, $5, $6, $7)", TO_SHARE),
            release: Statement::new("select pg_catalog.pg_advisory_unlock(1717923427, $1)", ID),
            stop_sharing: Statement::new("select fencepost.stop_sharing($1)", ID),
            held_by: Statement::new("select fencepost.held_by($1)", ID),
        }
    }
}

const ID: &[Type] = &[Type::INT4];

const REQUEST: &[Type] =
    &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL, Type::BOOL, Type::TEXT, Type::TEXT];

const TO_SHARE: &[Type] =
    &[Type::INT4, Type::TEXT, Type::TEXT, Type::BOOL, Type::BOOL, Type::TEXT, Type::TEXT];

/// One statement of one session.
#[derive(Debug)]
pub(crate) struct Statement {
    sql: &'static str,
    types: &'static [Type],
    was_used: AtomicBool,
    prepared: OnceLock<tokio_postgres::Statement>,
}

impl Statement {
    const fn new(sql: &'static str, types: &'static [Type]) -> Self {
        Self { sql, types, was_used: AtomicBool::new(false), prepared: OnceLock::new() }
    }

    /// The first row of what it answers, if there is one.
    ///
    /// # Cancel safety
    /// A dropped call may or may not be carried out.
    pub(crate) async fn first_row(
        &self,
        client: &Client,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Error> {
        if let Some(prepared) = self.prepared.get() {
            return client.query_opt(prepared, values).await;
        }
        if !self.was_used.swap(true, Ordering::Relaxed) {
            let typed: Vec<_> = values.iter().copied().zip(self.types.iter().cloned()).collect();
            return client.query_typed_opt(self.sql, &typed).await;
        }
        let prepared = client.prepare_typed(self.sql, self.types).await?;
        client.query_opt(self.prepared.get_or_init(|| prepared), values).await
    }
}
