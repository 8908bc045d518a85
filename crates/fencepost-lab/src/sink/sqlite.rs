//! The protected system in SQLite, a file of this host, for where there is no Postgres.
//!
//! No network stands between a worker and a file, so a write of a killed worker never arrives late.

use std::time::Duration;

use fencepost::{BackendUrl, LockName, Result};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{Register, Verdict, Write, broken};
use crate::history::Row;

/// One partition in a SQLite database.
#[derive(Debug)]
pub(crate) struct SqliteSink {
    path: String,
    partition: LockName,
    connection: Option<Connection>,
}

impl SqliteSink {
    pub(super) fn new(url: &BackendUrl, partition: &LockName) -> Self {
        Self { path: url.body().to_owned(), partition: partition.clone(), connection: None }
    }

    pub(super) fn prepare(&mut self) -> Result<()> {
        let partition = self.partition.clone();
        self.within("prepare the tables", |transaction| {
            transaction.execute_batch(include_str!("../../sql/sqlite_prepare.sql"))?;
            let register = "INSERT INTO register VALUES (?1, 0, 'start') ON CONFLICT DO NOTHING";
            transaction.execute(register, [partition.as_str()]).map(drop)
        })
    }

    pub(super) fn read(&mut self) -> Result<Register> {
        let partition = self.partition.clone();
        self.within("read the register", |transaction| {
            let sql = "SELECT total, last_write FROM register WHERE partition = ?1";
            transaction.query_row(sql, [partition.as_str()], |row| {
                Ok(Register { total: row.get(0)?, last_write: row.get(1)? })
            })
        })
    }

    pub(super) fn write(&mut self, write: &Write) -> Verdict {
        let partition = self.partition.clone();
        match self.try_within(|transaction| put(transaction, &partition, write)) {
            Ok(()) => Verdict::Accepted,
            Err(why) if why.contains("FP002") => Verdict::Refused(why),
            Err(why) => Verdict::Unknown(why),
        }
    }

    pub(super) fn rows(&mut self) -> Result<Vec<Row>> {
        let partition = self.partition.clone();
        self.within("read the events", |transaction| {
            let sql = "SELECT sequence, event, \"write\", based_on, token FROM event WHERE partition = ?1 ORDER BY sequence";
            let mut statement = transaction.prepare(sql)?;
            let rows = statement.query_map([partition.as_str()], |row| {
                let token: Option<i64> = row.get(4)?;
                let token = token.and_then(|token| u64::try_from(token).ok());
                let (sequence, event) = (row.get(0)?, row.get(1)?);
                Ok(Row { sequence, event, write: row.get(2)?, based_on: row.get(3)?, token })
            })?;
            rows.collect()
        })
    }

    fn within<T>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.try_within(work).map_err(|why| broken(operation, why))
    }

    fn try_within<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> std::result::Result<T, String> {
        let inside = |connection: &mut Connection| {
            let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(&self.path).map_err(|error| error.to_string())?,
        };
        let outcome = inside(&mut connection).map_err(|error: rusqlite::Error| error.to_string());
        self.connection = Some(connection);
        outcome
    }
}

fn open(path: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    // A stamp is shown under this alone.
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF")?;
    Ok(connection)
}

/// The check of the fence, and then the write.
fn put(transaction: &Transaction<'_>, partition: &LockName, write: &Write) -> rusqlite::Result<()> {
    let token = write.token.and_then(|token| i64::try_from(token).ok());
    if let Some(stamp) = &write.stamp {
        let sql = "INSERT INTO fencepost_stamp (lock, token, holder) VALUES (?1, ?2, ?3)";
        transaction.execute(sql, (stamp.lock.as_str(), token, stamp.holder.as_str()))?;
    }
    let sql = "UPDATE register SET total = ?2, last_write = ?3 WHERE partition = ?1";
    transaction.execute(sql, (partition.as_str(), write.total(), &write.name))?;
    let sql = "INSERT INTO event (partition, event, \"write\", based_on, token) VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = (partition.as_str(), write.total(), &write.name, &write.base.last_write, token);
    transaction.execute(sql, values)?;
    transaction.execute("DELETE FROM fencepost_stamp", ()).map(drop)
}

/// Longer than any writer takes.
const PATIENCE: Duration = Duration::from_secs(10);
