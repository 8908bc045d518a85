//! What is looked at once, at the beginning of a session: what the server says of itself and of the session, and what stands in the
//! database. Both are asked for at once.
//!
//! Invariant: a look changes nothing, and is one message without a prepared statement, since a pooler may stand in between.

use std::time::Duration;

use fencepost_core::{Clock, LockName, Moment, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::endpoint::Host;
use crate::failure::{failure, is, unavailable, unexpected};
use crate::pooler::MARK;
use crate::schema::{self, missing_rights};
use crate::settings::{self, Terms};

/// What a server says of itself and of the session.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) pid: i32,
    pub(crate) deadlock_timeout: Duration,
    is_standby: bool,
    settings: SimpleQueryRow,
}

impl Facts {
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        // One by one: the view of them makes all of the server's settings.
        let settings = settings::names()
            .into_iter()
            .chain([MARK])
            .map(|name| format!("pg_catalog.current_setting('{name}', true) as \"{name}\""));
        let sql = format!(
            "select pg_catalog.pg_backend_pid() as pid, pg_catalog.pg_is_in_recovery() as is_standby, {}",
            settings.collect::<Vec<_>>().join(", ")
        );
        let messages = client.simple_query(&sql).await.map_err(|error| failure(&error))?;
        let row = messages.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let settings = row.ok_or_else(|| unexpected("it says nothing of itself"))?;
        let pid = settings.get("pid").and_then(|pid| pid.parse().ok()).unwrap_or_default();
        let deadlock_timeout = settings.get("deadlock_timeout").and_then(settings::millis_in);
        Ok(Self {
            pid,
            is_standby: settings.get("is_standby") == Some("t"),
            deadlock_timeout: deadlock_timeout.map_or(settings::DEADLOCK_TIMEOUT, Duration::from_millis),
            settings,
        })
    }

    /// The mark that came with the start of the connection, if it has reached the server.
    pub(crate) fn mark(&self) -> Option<&str> {
        self.settings.get(MARK)
    }

    /// Whether the session works by the settings that `terms` ask for, on a primary.
    ///
    /// # Errors
    /// `Unsupported` that names the setting.
    pub(crate) fn check(&self, host: &Host, terms: Terms) -> Result<()> {
        if self.is_standby {
            return Err(standby(host));
        }
        settings::check(terms, |name| self.settings.get(name).map(ToOwned::to_owned))
    }
}

pub(crate) fn standby(host: &Host) -> fencepost_core::Error {
    unavailable(format!("{host} is a standby, and only a primary can hold a lock"))
        .hint("name the primary, or all hosts: postgres://h1,h2/db takes the one that is")
}

/// What stands in the database.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Whether the schema is one of this version, the server grants at once, and the role may do what it needs.
    pub(crate) is_ready: bool,
    /// The id of the lock that was asked about, where it has one.
    pub(crate) id: Option<i32>,
}

impl Standing {
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Denied` where the role may not use the schema.
    pub(crate) async fn read(client: &Client, max_ttl: Duration, name: Option<&LockName>) -> Result<Self> {
        let (max_ttl, name) = (millis(max_ttl), name.map(LockName::as_str));
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&max_ttl, Type::INT8), (&name, Type::TEXT)];
        let unknown = Self { is_ready: false, id: None };
        match client.query_typed_opt(include_str!("../sql/standing.sql"), &values).await {
            Ok(Some(row)) if row.get::<_, i32>(0) == schema::VERSION => {
                Ok(Self { is_ready: row.get(1), id: row.get(2) })
            }
            Ok(_) => Ok(unknown),
            // There is no schema, or one of another version, or somebody has its tables for a while: what sets up waits longer.
            Err(error) if IS_OTHER.iter().any(|code| is(&error, code)) => Ok(unknown),
            Err(error) => Err(missing_rights(&error)),
        }
    }
}

const IS_OTHER: [&SqlState; 4] = [
    &SqlState::INVALID_SCHEMA_NAME,
    &SqlState::UNDEFINED_TABLE,
    &SqlState::UNDEFINED_COLUMN,
    &SqlState::LOCK_NOT_AVAILABLE,
];

/// Makes the schema where it is missing or old, and tells the server of the longest lease. From when on it grants; `None` where it
/// does already.
///
/// # Cancel safety
/// What a dropped call has not done the next one does.
pub(crate) async fn prepare(clock: &Clock, client: &Client, max_ttl: Duration) -> Result<Option<Moment>> {
    let there = client.query_typed_opt(HAS_SCHEMA, &[]).await.map_err(|error| missing_rights(&error))?;
    schema::ensure(client, there.is_some_and(|row| row.get(0))).await?;
    let rows = client.query_typed("select fencepost.ready_in($1)", &[(&millis(max_ttl), Type::INT8)]).await;
    let rows = rows.map_err(|error| missing_rights(&error))?;
    let left: i64 = rows.first().map_or(0, |row| row.get(0));
    let left = u64::try_from(left).ok().filter(|left| *left > 0);
    Ok(left.map(|left| clock.now().after(Duration::from_millis(left + left / 1_000))))
}

// Without the right to use the schema nobody is even told whether it is there.
const HAS_SCHEMA: &str = "select pg_catalog.to_regclass('fencepost.installation') is not null";

fn millis(max_ttl: Duration) -> i64 {
    i64::try_from(max_ttl.as_millis()).unwrap_or(i64::MAX)
}
