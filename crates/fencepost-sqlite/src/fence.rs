//! The fence in a database: the mark beside the data, in the same file.
//!
//! Invariant: the mark is raised in a transaction that has the file alone, is on the disk before that is told, and never goes
//! down, unless it is forgotten.

use std::fmt;

use async_trait::async_trait;
use fencepost_core::{
    BackendUrl, Error, ErrorKind, Examination, Fence, FencingToken, Finding, LockName, Mark, NamePrefix,
    Result, Stamp, StampHolder,
};
use rusqlite::{Connection, Row};

use crate::database::{Database, Session};
use crate::{guards, schema};

/// A fence in a SQLite database.
#[derive(Clone, Debug)]
pub struct SqliteFence(pub(crate) Database);

impl SqliteFence {
    /// The fence of `sqlite:/path/of/a.db`. Touches nothing yet.
    ///
    /// # Errors
    /// `InvalidArgument` when the file is missing, in memory, or not an absolute path.
    pub fn from_url(url: &BackendUrl) -> Result<Self> {
        url.accept_options(&[])?;
        Database::of(url).map(Self)
    }
}

impl fmt::Display for SqliteFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.0.path().display())
    }
}

#[async_trait]
impl Fence for SqliteFence {
    async fn seal(&self, stamp: &Stamp) -> Result<()> {
        let sealed = stamp.clone();
        let answer = self.0.work(move |session| seal(session, &sealed)).await;
        answer.map_err(|error| error.during("seal the fence").on(&stamp.lock))
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        Mark::checked(self.mark(&stamp.lock).await?.as_ref(), stamp)
    }

    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>> {
        let name = lock.clone();
        self.0.work(move |session| mark(session, &name)).await.map_err(|error| error.on(lock))
    }

    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        let mut marks = self.0.work(marks).await?;
        // Not by SQLite, whose order and patterns depend on the file's encoding.
        marks.retain(|(lock, _)| prefix.matches(lock));
        marks.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(marks)
    }

    async fn forget(&self, lock: &LockName) -> Result<bool> {
        let name = lock.clone();
        self.0.work(move |session| forget(session, &name)).await.map_err(|error| error.on(lock))
    }

    async fn findings(&self, lock: &LockName) -> Result<Vec<Finding>> {
        let name = lock.clone();
        self.0.work(move |session| guards::findings(session, &name)).await.map_err(|error| error.on(lock))
    }

    async fn examine(&self) -> Result<Examination> {
        self.look().await
    }
}

/// Raises the mark, unless it is higher. The stamp that is the mark already waits for nobody, and neither does a stale one.
fn seal(session: &Session<'_>, stamp: &Stamp) -> Result<()> {
    let present = mark(session, &stamp.lock)?;
    let sealed = Mark::sealed(present.as_ref(), stamp)?;
    if present == Some(sealed) {
        return Ok(());
    }
    session.change(|session| {
        schema::ensure(session)?;
        raise(session, stamp)
    })
}

fn raise(session: &Session<'_>, stamp: &Stamp) -> Result<()> {
    let raised = session.run(|connection| {
        let values = (stamp.lock.as_str(), stored(stamp.token), stamp.holder.as_str());
        connection.execute(include_str!("../sql/seal.sql"), values)
    })?;
    if raised == 1 {
        return Ok(());
    }
    Mark::sealed(mark(session, &stamp.lock)?.as_ref(), stamp)?;
    Err(Error::new(ErrorKind::Unexpected, "seal the fence", "the mark was not raised"))
}

fn mark(session: &Session<'_>, lock: &LockName) -> Result<Option<Mark>> {
    if !schema::is_there(session)? {
        return Ok(None);
    }
    session.look(|connection| mark_in(connection, lock))?.map(read).transpose()
}

/// The mark of a lock, as it is written, in a database whose tables are there.
pub(crate) fn mark_in(connection: &Connection, lock: &LockName) -> rusqlite::Result<Option<Written>> {
    let sql = "SELECT lock, token, holder FROM fencepost_fence WHERE lock = ?1";
    connection.prepare(sql)?.query_map([lock.as_str()], written)?.next().transpose()
}

fn marks(session: &Session<'_>) -> Result<Vec<(LockName, Mark)>> {
    if !schema::is_there(session)? {
        return Ok(Vec::new());
    }
    let rows: Vec<Written> = session.look(|connection| {
        let sql = "SELECT lock, token, holder FROM fencepost_fence";
        connection.prepare(sql)?.query_map([], written)?.collect()
    })?;
    let marks = rows.into_iter().map(|row| {
        let lock = row.0.parse().map_err(|error: Error| damaged(&row.0).caused_by(error))?;
        Ok((lock, read(row)?))
    });
    marks.collect()
}

fn forget(session: &Session<'_>, lock: &LockName) -> Result<bool> {
    // Where there is no mark, nothing is made and nobody is waited for.
    if mark(session, lock)?.is_none() {
        return Ok(false);
    }
    session.change(|session| {
        let sql = "DELETE FROM fencepost_fence WHERE lock = ?1";
        Ok(session.run(|connection| connection.execute(sql, [lock.as_str()]))? > 0)
    })
}

/// A row of the marks: lock, token, holder.
pub(crate) type Written = (String, i64, String);

fn written(row: &Row<'_>) -> rusqlite::Result<Written> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

/// What a row says, if fencepost can have written it.
pub(crate) fn read((lock, token, holder): Written) -> Result<Mark> {
    let token = u64::try_from(token).unwrap_or_default();
    let token = token.try_into().map_err(|error: Error| damaged(&lock).caused_by(error))?;
    let holder = StampHolder::new(holder).map_err(|error| damaged(&lock).caused_by(error))?;
    Ok(Mark { token, holder })
}

fn damaged(lock: &str) -> Error {
    Error::new(ErrorKind::Unexpected, "read the fence's mark", format!("the mark of {lock:?} is none"))
}

/// Every token fits: none is above 2^63-1.
pub(crate) fn stored(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}
