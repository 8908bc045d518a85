//! What one server says of itself, by the catalogue alone.

use std::collections::BTreeMap;

use fencepost_core::{Ahead, Clock, Result};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::endpoint::Host;
use crate::failure::{failure, unexpected};

/// One server.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Where it is.
    pub(super) host: String,
    /// Whether it is on this host, or reached by a socket of it.
    pub(super) is_near: bool,
    /// By how much its clock is ahead of ours.
    pub(super) ahead: Ahead,
    /// The columns of `examine.sql`.
    pub(super) told: BTreeMap<String, String>,
    /// The settings of a session that asks for none: each with the place that it comes from.
    pub(super) settings: BTreeMap<String, Setting>,
}

/// One setting.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    pub(super) value: String,
    /// The place that it comes from: `user`, `database`, `configuration file`, …
    pub(super) source: String,
    pub(super) unit: String,
}

impl Facts {
    /// Asks a server for everything. Nothing is prepared, so that a pooler may stand in between.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(super) async fn read(clock: &Clock, client: &Client, host: &Host) -> Result<Self> {
        let sent = clock.wall_micros().cast_signed();
        let rows = rows(client, include_str!("../../sql/examine.sql")).await?;
        let received = clock.wall_micros().cast_signed();
        let told = rows.first().map(columns).ok_or_else(|| unexpected("it says nothing of itself"))?;
        let names: Vec<String> = SETTINGS.iter().map(|name| format!("'{name}'")).collect();
        let names = names.join(", ");
        let sql = format!(
            "select name, setting, source, coalesce(unit, '') from pg_catalog.pg_settings where name in ({names})"
        );
        let settings = self::rows(client, &sql).await?;
        let setting = |row: &SimpleQueryRow| {
            let text = |column| row.get(column).unwrap_or_default().to_owned();
            (text(0), Setting { value: text(1), source: text(2), unit: text(3) })
        };
        let there: i64 = told.get("now_micros").and_then(|micros| micros.parse().ok()).unwrap_or(sent);
        Ok(Self {
            host: host.to_string(),
            is_near: is_near(host),
            ahead: Ahead { least: there.saturating_sub(received), most: there.saturating_sub(sent) },
            told,
            settings: settings.iter().map(setting).collect(),
        })
    }

    /// What a column says; empty for null.
    pub(super) fn text(&self, column: &str) -> &str {
        self.told.get(column).map(String::as_str).unwrap_or_default()
    }

    pub(super) fn is(&self, column: &str) -> bool {
        self.text(column) == "true"
    }

    pub(super) fn number(&self, column: &str) -> Option<i64> {
        self.text(column).parse().ok()
    }

    /// The value of a setting, in the server's unit.
    pub(super) fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map(|setting| setting.value.as_str()).unwrap_or_default()
    }

    /// Where the value of a setting comes from: `user`, `database`, `configuration file`, …
    pub(super) fn source(&self, name: &str) -> &str {
        self.settings.get(name).map(|setting| setting.source.as_str()).unwrap_or_default()
    }

    /// A setting as people write it, with the place that it comes from.
    pub(super) fn shown(&self, name: &str) -> String {
        let Some(Setting { value, source, unit }) = self.settings.get(name) else { return String::new() };
        format!("{name} = {value}{unit} (set by: {source})")
    }

    pub(super) fn server(&self) -> String {
        let version = self.text("version").split(' ').next().unwrap_or_default();
        format!("PostgreSQL {version} at {}", self.host)
    }
}

/// The rows of a statement that is not prepared first.
pub(super) async fn rows(client: &Client, sql: &str) -> Result<Vec<SimpleQueryRow>> {
    let messages = client.simple_query(sql).await.map_err(|error| failure(&error))?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(rows.collect())
}

fn columns(row: &SimpleQueryRow) -> BTreeMap<String, String> {
    let named = row.columns().iter().enumerate();
    named.filter_map(|(index, column)| Some((column.name().to_owned(), row.get(index)?.to_owned()))).collect()
}

/// By the name alone: a name that leads to this host by another way counts as far.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Socket { .. } => true,
        Host::Network { name, address, .. } => {
            let address = address.or_else(|| name.parse().ok());
            name == "localhost" || address.is_some_and(|address| address.is_loopback())
        }
    }
}

/// What is asked for of the server's settings.
const SETTINGS: [&str; 16] = [
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "max_connections",
    "superuser_reserved_connections",
    "reserved_connections",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "statement_timeout",
    "lock_timeout",
    "transaction_timeout",
    "default_transaction_read_only",
    "default_transaction_isolation",
    "session_replication_role",
    "client_connection_check_interval",
];
