//! Connecting so that a pooler cannot go unnoticed: a session lock needs a session of its own.
//!
//! A mark is sent with the start of the connection and read back. A pooler refuses it or drops it; one that is known to be there
//! is put to the test with two connections, since one that lends sessions out gives both the same one, or takes it away.

use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Result, until};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connection::Connection;
use crate::endpoint::{Endpoint, Host, Options};
use crate::failure::{failure, is, unavailable};
use crate::session::answered;
use crate::settings::{self, Terms};
use crate::standing::{Facts, standby};

/// How often it is looked whether two connections share a session. In the traffic of others a pooler may give them two by chance.
const PROBES: usize = 10;

/// How long a pooler may take to give two sessions.
const PROBE_MOST: Duration = Duration::from_secs(3);

/// The setting that carries the mark.
pub(crate) const MARK: &str = "fencepost.session";

/// How a pooler gives its sessions out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pooling {
    Session,
    Transaction,
    Statement,
}

/// A connection whose session is not yet known to be its own.
pub(crate) struct Reached {
    connection: Connection,
    /// What the server has to say of itself, where nobody has seen yet that it is no pooler.
    mark: Option<String>,
}

/// Opens a connection to a primary, with the settings that `terms` ask for.
///
/// # Cancel safety
/// Dropping it closes what was opened.
///
/// # Errors
/// `Unsupported` where a pooler gives no session of one's own.
pub(crate) async fn reach(
    clock: &Clock,
    endpoint: &Endpoint,
    host: &Host,
    options: &Options,
    terms: Terms,
) -> Result<Reached> {
    let mark = format!("{:016x}{:016x}", clock.random(), clock.random());
    if options.has_pooler {
        let connection = Connection::open(clock, endpoint, host, "").await?;
        match probe(clock, endpoint, host, &connection, &mark).await? {
            Pooling::Session => {}
            pooling => return Err(refusal(Some(pooling))),
        }
        let set = async {
            let set = connection.client().batch_execute(&settings::all_as_sql(terms)).await;
            set.map_err(|error| failure(&error))
        };
        answered(clock, Box::pin(set)).await?;
        return Ok(Reached { connection, mark: None });
    }
    let own = endpoint.startup_options.as_deref().unwrap_or_default();
    let start = format!("{own}{} -c {MARK}={mark}", settings::as_options(terms));
    match Connection::open(clock, endpoint, host, &start).await {
        // It has said so when it let us in; what is asked of it next would be an error in its log.
        Ok(connection) if connection.is_to_standby() => Err(standby(host)),
        Ok(connection) => Ok(Reached { connection, mark: Some(mark) }),
        Err(error) if is_about_options(&error) => Err(named(clock, endpoint, host, &mark).await),
        Err(error) => Err(error),
    }
}

impl Reached {
    /// For looks that change nothing.
    pub(crate) fn client(&self) -> &Client {
        self.connection.client()
    }

    /// The connection, where the mark has come back.
    ///
    /// # Errors
    /// `Unsupported` where a pooler gives no session of one's own.
    pub(crate) async fn seen_to_be_own(
        self,
        clock: &Clock,
        endpoint: &Endpoint,
        host: &Host,
        facts: &Facts,
    ) -> Result<Connection> {
        match &self.mark {
            Some(mark) if facts.mark() != Some(mark) => Err(named(clock, endpoint, host, mark).await),
            _ => Ok(self.connection),
        }
    }
}

/// A pooler knows a few parameters of the start of a connection, and refuses all others by this message.
fn is_about_options(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.to_string().contains("unsupported startup parameter")
}

/// The refusal, with the name of what the pooler does where that can be found out.
async fn named(clock: &Clock, endpoint: &Endpoint, host: &Host, mark: &str) -> Error {
    let probed = async {
        let connection = Connection::open(clock, endpoint, host, "").await?;
        probe(clock, endpoint, host, &connection, mark).await
    };
    match probed.await {
        Err(error) if error.kind() == ErrorKind::Denied => error,
        outcome => refusal(outcome.ok()),
    }
}

fn refusal(pooling: Option<Pooling>) -> Error {
    let (how, hint) = match pooling {
        Some(Pooling::Session) => (
            " in session mode",
            "say ?pooler=session, or, better, connect to the server itself: the pooler can hide that a client is gone",
        ),
        Some(Pooling::Transaction) => (" in transaction mode", DIRECT),
        Some(Pooling::Statement) => (" in statement mode", DIRECT),
        None => ("", DIRECT),
    };
    let what = format!(
        "a connection pooler{how}, such as PgBouncer, stands in front of the server, \
         and a session lock needs a session of its own"
    );
    Error::new(ErrorKind::Unsupported, "connect", what).hint(hint)
}

const DIRECT: &str = "connect to the server itself, or through a pool in session mode with ?pooler=session";

/// What becomes of two connections: `first`, and another one with a transaction between two statements of the first.
async fn probe(
    clock: &Clock,
    endpoint: &Endpoint,
    host: &Host,
    first: &Connection,
    mark: &str,
) -> Result<Pooling> {
    let second = Connection::open(clock, endpoint, host, "").await?;
    let give_up_at = Some(clock.now().after(PROBE_MOST));
    let probed = until(clock, give_up_at, Box::pin(mixed_up(first.client(), second.client(), mark))).await;
    match probed {
        Some(Ok(false)) => Ok(Pooling::Session),
        Some(Ok(true)) => Ok(Pooling::Transaction),
        Some(Err(error)) if is_statement_pooling(&error) => Ok(Pooling::Statement),
        Some(Err(error)) => Err(failure(&error)),
        // A pool of one session has none for a second connection, or, while that one is in a transaction, for the first.
        None => Err(unavailable(format!("the pooler at {host} has given no session for {PROBE_MOST:?}"))
            .hint("a lock takes a session to itself, and to see that it does, two are asked for at once")),
    }
}

/// Whether the two share a session, or the first one's was exchanged.
async fn mixed_up(first: &Client, second: &Client, mark: &str) -> Result<bool, tokio_postgres::Error> {
    let whose = format!(
        "select pg_catalog.pg_backend_pid()::text || ' ' || coalesce(pg_catalog.current_setting('{MARK}', true), '')"
    );
    first.simple_query(&format!("select pg_catalog.set_config('{MARK}', '{mark}', false)")).await?;
    let before = text_of(first, &whose).await?;
    for _ in 0..PROBES {
        second.simple_query("begin").await?;
        let other = text_of(second, &whose).await?;
        let after = text_of(first, &whose).await?;
        second.simple_query("rollback").await?;
        if after != before || other.contains(mark) || pid_in(&other) == pid_in(&before) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn pid_in(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// The text in the first row. Nothing is prepared: a statement that is prepared in one session is not known in another.
async fn text_of(client: &Client, sql: &str) -> Result<String, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let text = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(ToOwned::to_owned),
        _ => None,
    });
    Ok(text.unwrap_or_default())
}

fn is_statement_pooling(error: &tokio_postgres::Error) -> bool {
    is(error, &SqlState::PROTOCOL_VIOLATION)
        || error.as_db_error().is_some_and(|refusal| refusal.message().contains("statement pooling"))
}
