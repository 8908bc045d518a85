//! The fence in a database: the mark beside the data, checked in the transaction that writes them.
//!
//! It needs no session of its own, so it works behind any pooler. Invariant: a mark is told to be sealed only after a commit
//! without a warning.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    BackendUrl, Clock, Error, ErrorKind, Examination, Fence, FencingToken, Finding, LockName, Mark,
    NamePrefix, Result, Stamp, StampHolder, lock,
};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use crate::connection::Connection;
use crate::endpoint::{Endpoint, Options};
use crate::examine::{examine_marks, weakness};
use crate::failure::{failure, is, unavailable, unexpected};
use crate::libpq::Environment;
use crate::schema::{self, missing_rights};

/// How long a seal waits for transactions under a lower stamp, before it ends their sessions.
const WAIT_MOST: Duration = Duration::from_millis(300);

/// How often a seal ends the sessions that it waits for. Each time those that are left have come since.
const EVICTIONS: usize = 5;

/// A fence in a database.
pub struct PostgresFence {
    clock: Clock,
    endpoint: Endpoint,
    shown: String,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl fmt::Debug for PostgresFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresFence({self})")
    }
}

impl fmt::Display for PostgresFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl PostgresFence {
    /// The fence of `postgres://`. Connects when it is first needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL, an option, or what libpq's environment adds to them is wrong.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        let endpoint = Endpoint::of(url, &Environment::of_process())?;
        // Those of a lock may stand in the URL of a fence too.
        Options::of(url)?;
        Ok(Self { clock, endpoint, shown: url.to_string(), connection: Mutex::default() })
    }

    /// Makes what the fence needs in the database, if it is not there yet, and guards `table` by the lock where one is given:
    /// from then on a write to it needs a valid stamp. Says what was done.
    ///
    /// # Cancel safety
    /// A dropped call may have done a part of it; the next one does the rest.
    ///
    /// # Errors
    /// `Denied` where the role may not; `InvalidArgument` where there is no such table.
    pub async fn install(&self, guarded: Option<(&str, &LockName)>) -> Result<Vec<String>> {
        let connection = self.connect().await?;
        let is_there = has_schema(&connection).await?;
        schema::ensure(connection.client(), is_there).await?;
        let schema =
            if is_there { "the schema fencepost is there already" } else { "made the schema fencepost" };
        let mut done = vec![schema.to_owned()];
        if let Some((table, name)) = guarded {
            let values: [&str; 3] = [table, name.as_str(), &name.canonical()];
            let sql = "select fencepost.guard($1::text::regclass, $2, $3)";
            let rows = connection.client().query_typed(sql, &texts(&values)).await;
            done.extend(rows.map_err(|error| of_table(&error))?.iter().map(|row| row.get::<_, String>(0)));
        }
        Ok(done)
    }

    /// The SQL that [`install`](Self::install) runs, for somebody who may, with the rights that the role of the URL needs.
    pub fn installation(&self, guarded: Option<(&str, &LockName)>) -> String {
        let grants = include_str!("../sql/grant.sql")
            .replace("ROLE;", &format!("{};", identifier(&self.endpoint.user)));
        let mut sql = format!("{}\n{grants}", schema::SQL);
        if let Some((table, name)) = guarded {
            let [table, name, key] = [table, name.as_str(), &name.canonical()].map(literal);
            let guard = format!("\nselect fencepost.guard({table}::text::regclass, {name}, {key});\n");
            sql.push_str(&guard);
        }
        sql
    }

    /// Takes the guards of a table away, or with `None` those of all tables; says which. The marks stay.
    ///
    /// # Cancel safety
    /// A dropped call has taken away all of them or none.
    ///
    /// # Errors
    /// `Denied` where the role may not; `InvalidArgument` where there is no such table.
    pub async fn uninstall(&self, table: Option<&str>) -> Result<Vec<String>> {
        let connection = self.connect().await?;
        if !has_schema(&connection).await? {
            return Ok(Vec::new());
        }
        let sql = "select fencepost.unguard($1::text::regclass)";
        let rows = connection.client().query_typed(sql, &[(&table, Type::TEXT)]).await;
        Ok(rows.map_err(|error| of_table(&error))?.iter().map(|row| row.get(0)).collect())
    }

    /// The SQL that [`uninstall`](Self::uninstall) runs.
    pub fn uninstallation(&self, table: Option<&str>) -> String {
        let table = table.map_or_else(|| "null".to_owned(), literal);
        format!("select fencepost.unguard({table}::text::regclass);")
    }

    /// A connection to the primary: the one that is kept, or a new one.
    async fn connect(&self) -> Result<Arc<Connection>> {
        if let Some(connection) = lock(&self.connection).as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        let options = self.endpoint.startup_options.as_deref().unwrap_or_default();
        let mut last = unavailable("no host is named");
        for host in &self.endpoint.hosts {
            let opened = async {
                let connection = Connection::open(&self.clock, &self.endpoint, host, options).await?;
                let sql = "select pg_catalog.pg_is_in_recovery()";
                let row = connection.client().query_typed(sql, &[]).await.map_err(|error| failure(&error))?;
                if row.first().is_some_and(|row| row.get(0)) {
                    let what = format!("{host} is a standby, and only a primary can be a fence");
                    return Err(unavailable(what));
                }
                Ok(connection)
            };
            match Box::pin(opened).await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    *lock(&self.connection) = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Asks one question in a transaction of its own, on a connection that may have been closed since it was last used. `None`
    /// where the database is not prepared, and so nothing was ever sealed.
    async fn ask(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<Vec<Row>>> {
        let was_kept = self.is_connected();
        let connection = self.connect().await?;
        let answer = match connection.client().query_typed(sql, values).await {
            Err(error) if was_kept && error.code().is_none() => {
                connection.close();
                self.connect().await?.client().query_typed(sql, values).await
            }
            answer => answer,
        };
        match answer {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if is_not_installed(&error) => Ok(None),
            Err(error) => Err(missing_rights(&error)),
        }
    }

    fn is_connected(&self) -> bool {
        lock(&self.connection).as_ref().is_some_and(|connection| connection.is_open())
    }

    /// One try to seal, which waits for a moment: all in one message, and so in one transaction, whoever else uses the connection.
    async fn try_seal(&self, connection: &Connection, stamp: &Stamp) -> Result<(), tokio_postgres::Error> {
        let [name, holder] = [stamp.lock.as_str(), stamp.holder.as_str()].map(literal);
        let sql = format!(
            "set transaction isolation level read committed, read write;
             set local lock_timeout = {};
             set local statement_timeout = 0;
             set local client_min_messages = warning;
             set local synchronous_commit = on;
             select fencepost.seal({name}, {}, {holder})",
            WAIT_MOST.as_millis(),
            stamp.token
        );
        connection.client().batch_execute(&sql).await
    }

    /// Ends the sessions that a seal waits for; what stands in its way if one cannot be ended.
    async fn evict(&self, stamp: &Stamp) -> Result<Option<String>> {
        let (name, token) = (stamp.lock.as_str(), stored(stamp.token));
        let sql = "select pid, ended, mark, holder from fencepost.evict($1, $2)";
        let rows = self.ask(sql, &[(&name, Type::TEXT), (&token, Type::INT8)]).await?.unwrap_or_default();
        let stays = rows.iter().find(|row| !row.get::<_, bool>(1));
        Ok(stays.map(|row| {
            let (pid, token, holder): (i32, i64, &str) = (row.get(0), row.get(2), row.get(3));
            format!(
                "the session {pid} is inside a transaction under token {token} of holder {holder:?}, and may not be ended"
            )
        }))
    }

    /// What an error means that may be a refusal of the stamp; that one in the words of every fence.
    pub(crate) async fn refused(
        &self,
        stamp: &Stamp,
        operation: &'static str,
        said: &tokio_postgres::Error,
    ) -> Error {
        let Some(refusal) = said.as_db_error().filter(|refusal| refusal.code().code() == "FP002") else {
            return missing_rights(said).during(operation).on(&stamp.lock);
        };
        if let Ok(mark) = self.mark(&stamp.lock).await
            && let Err(error) = Mark::sealed(mark.as_ref(), stamp)
        {
            return error.during(operation);
        }
        Error::new(ErrorKind::Stale, operation, refusal.message()).on(&stamp.lock)
    }
}

/// A value for a statement, with its type.
type Value<'a> = (&'a (dyn ToSql + Sync), Type);

fn texts<'a>(values: &'a [&'a str]) -> Vec<Value<'a>> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::TEXT)).collect()
}

/// Every token fits: none is above 2^63-1.
pub(crate) fn stored(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// Text as a literal, whatever the server takes a backslash for.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn identifier(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

async fn has_schema(connection: &Connection) -> Result<bool> {
    let sql = "select pg_catalog.to_regclass('fencepost.installation') is not null";
    let rows = connection.client().query_typed(sql, &[]).await.map_err(|error| missing_rights(&error))?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Whether the schema, or what should be in it, is not there.
fn is_not_installed(error: &tokio_postgres::Error) -> bool {
    [&SqlState::INVALID_SCHEMA_NAME, &SqlState::UNDEFINED_FUNCTION, &SqlState::UNDEFINED_TABLE]
        .iter()
        .any(|code| is(error, code))
}

/// What an error means that may be about a table that was named.
fn of_table(error: &tokio_postgres::Error) -> Error {
    let is_wrong = [
        &SqlState::UNDEFINED_TABLE,
        &SqlState::INVALID_NAME,
        &SqlState::SYNTAX_ERROR,
        &SqlState::INVALID_SCHEMA_NAME,
        &SqlState::WRONG_OBJECT_TYPE,
    ];
    match error.as_db_error() {
        Some(refusal) if is_wrong.iter().any(|code| refusal.code() == *code) => {
            let what = format!("Postgres says: {}", refusal.message());
            Error::new(ErrorKind::InvalidArgument, "guard the table", what)
        }
        Some(refusal)
            if refusal.message().contains("for table") || refusal.message().contains("must be owner") =>
        {
            missing_rights(error)
                .hint("only the owner of a table can guard it, or free it: use that role in the URL")
        }
        _ => missing_rights(error),
    }
}

fn read_mark(row: &Row) -> Result<(LockName, Mark)> {
    let (name, token, holder): (&str, i64, &str) = (row.get(0), row.get(1), row.get(2));
    let wrong = |_| unexpected(format!("the mark of {name:?} is none"));
    let token = u64::try_from(token).unwrap_or_default();
    let mark =
        Mark { token: token.try_into().map_err(wrong)?, holder: StampHolder::new(holder).map_err(wrong)? };
    Ok((name.parse().map_err(wrong)?, mark))
}

#[async_trait]
impl Fence for PostgresFence {
    async fn seal(&self, stamp: &Stamp) -> Result<()> {
        let mut blocked = "others are inside transactions under lower tokens, and new ones come".to_owned();
        let mut is_retried = false;
        let mut evictions = 0;
        while evictions < EVICTIONS {
            let was_kept = self.is_connected();
            let connection = self.connect().await?;
            let warned = connection.warnings();
            let error = match self.try_seal(&connection, stamp).await {
                Ok(()) if connection.warnings() == warned => return Ok(()),
                Ok(()) => {
                    return Err(
                        unavailable("the server warned when it committed the mark").during("seal the fence")
                    );
                }
                Err(error) => error,
            };
            match error.code().map(SqlState::code) {
                Some("FP002") => return Err(self.refused(stamp, "seal the fence", &error).await),
                Some("55P03") => {
                    evictions += 1;
                    if let Some(stays) = self.evict(stamp).await? {
                        blocked = stays;
                        break;
                    }
                }
                // The kept connection was broken before, and nobody had noticed. Sealing twice is sealing once.
                None if was_kept && !is_retried => {
                    is_retried = true;
                    connection.close();
                }
                _ if is_not_installed(&error) && !is_retried => {
                    is_retried = true;
                    schema::ensure(connection.client(), false).await?;
                }
                _ => {
                    connection.close();
                    return Err(missing_rights(&error).during("seal the fence").on(&stamp.lock));
                }
            }
        }
        let hint = "end that session by hand, or let the owner of the schema fencepost end it: grant it pg_signal_backend";
        Err(unavailable(blocked).during("seal the fence").on(&stamp.lock).hint(hint))
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        Mark::checked(self.mark(&stamp.lock).await?.as_ref(), stamp)
    }

    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>> {
        let name = lock.as_str();
        let sql = "select lock, token, holder from fencepost.marks($1, '')";
        let rows = self.ask(sql, &[(&name, Type::TEXT)]).await?.unwrap_or_default();
        Ok(rows.first().map(read_mark).transpose()?.map(|(_, mark)| mark))
    }

    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        let prefix = prefix.as_str();
        let sql = "select lock, token, holder from fencepost.marks(null, $1)";
        let rows = self.ask(sql, &[(&prefix, Type::TEXT)]).await?.unwrap_or_default();
        rows.iter().map(read_mark).collect()
    }

    async fn forget(&self, lock: &LockName) -> Result<bool> {
        let name = lock.as_str();
        let rows = self.ask("select fencepost.forget($1)", &[(&name, Type::TEXT)]).await?.unwrap_or_default();
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    async fn findings(&self, lock: &LockName) -> Result<Vec<Finding>> {
        let name = lock.as_str();
        let rows =
            self.ask("select fencepost.findings($1)", &[(&name, Type::TEXT)]).await?.unwrap_or_default();
        Ok(rows.iter().map(|row| weakness(&self.shown, name, row.get(0))).collect())
    }

    async fn examine(&self) -> Result<Examination> {
        examine_marks(&self.clock, &self.endpoint).await
    }
}
