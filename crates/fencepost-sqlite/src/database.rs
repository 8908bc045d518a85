//! The file of a fence, and work on it: on a thread of its own, on a connection of its own, with a bound.
//!
//! Invariants: whoever writes has the database alone from before the first look to the commit, and what is committed is on
//! the disk. Nothing here opens the file but SQLite: closing a descriptor ends every lock that the process has on the file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::{BackendUrl, Clock, Error, ErrorKind, Moment, Result};
use futures_channel::oneshot;
use rusqlite::{Connection, OpenFlags};

use crate::failure::{failure, is_busy};

/// How long anything waits at most for another process that has the database.
const WAIT_MOST: Duration = Duration::from_secs(10);

/// How long SQLite waits by itself; between two such waits it is looked whether anybody still wants the answer.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// A database that may not be there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    path: PathBuf,
    wait_most: Duration,
}

impl Database {
    /// The file that a URL names.
    ///
    /// # Errors
    /// `InvalidArgument` when the file is missing, in memory, or not an absolute path.
    pub(crate) fn of(url: &BackendUrl) -> Result<Self> {
        let path = url.body().strip_prefix("//").unwrap_or(url.body());
        if path.is_empty() || path.starts_with(":memory:") {
            let what = "a fence needs the file that it protects; a mark in memory protects nobody";
            return Err(url.wrong(what).hint("name it, such as sqlite:/srv/ledger.db"));
        }
        if Path::new(path).is_absolute() {
            return Ok(Self { path: PathBuf::from(path), wait_most: WAIT_MOST });
        }
        // A relative path would name another file in every working directory.
        let absolute = std::path::absolute(path).unwrap_or_default();
        let hint = format!("did you mean sqlite:{}?", absolute.display());
        Err(url.wrong("the file is not an absolute path").hint(hint))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Works on the file, which has to be there.
    ///
    /// # Cancel safety
    /// When it is dropped, the work may be done or not; work that waits for another process ends soon, undone.
    ///
    /// # Errors
    /// `Unavailable` when there is no file; what the work says.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.beside(OpenFlags::empty(), work).await
    }

    /// The same, on a file that is made where it is missing.
    pub(crate) async fn work_on_any<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.beside(OpenFlags::SQLITE_OPEN_CREATE, work).await
    }

    async fn beside<T: Send + 'static>(
        &self,
        how: OpenFlags,
        work: impl FnOnce(&Session<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        let database = self.clone();
        let thread = std::thread::Builder::new().name("fencepost-sqlite".to_owned());
        let started = thread.spawn(move || {
            let answer =
                Session::open(&database, how, &|| !sender.is_canceled()).and_then(|session| work(&session));
            // Whoever asked may have given up.
            drop(sender.send(answer));
        });
        let unavailable = |error| {
            let what = "no thread could be started";
            Error::new(ErrorKind::Unavailable, "use the database", what).caused_by(error)
        };
        started.map_err(unavailable)?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unexpected, "use the database", "its thread has ended"))
        })
    }

    /// Says why, where there is no file that could be opened.
    fn expect_file(&self, how: OpenFlags) -> Result<()> {
        let error = match std::fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => return Ok(()),
            Ok(_) => return Err(self.error(ErrorKind::InvalidArgument, "is not a file")),
            Err(error) => error,
        };
        let kind = match error.kind() {
            io::ErrorKind::NotFound if how.contains(OpenFlags::SQLITE_OPEN_CREATE) => return Ok(()),
            io::ErrorKind::NotFound => {
                let hint = format!("`fencepost fence install sqlite:{}` makes it", self.path.display());
                return Err(self.error(ErrorKind::Unavailable, "does not exist").hint(hint));
            }
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        };
        Err(self.error(kind, "cannot be looked at").caused_by(error))
    }

    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, "open the database", format!("{} {what}", self.path.display()))
    }
}

/// One connection, for one piece of work.
pub(crate) struct Session<'a> {
    connection: Connection,
    path: &'a Path,
    limit: Moment,
    is_wanted: &'a dyn Fn() -> bool,
}

impl<'a> Session<'a> {
    fn open(database: &'a Database, how: OpenFlags, is_wanted: &'a dyn Fn() -> bool) -> Result<Self> {
        database.expect_file(how)?;
        let path = database.path();
        let flags = how | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags);
        let connection = opened.map_err(|error| failure(path, error))?;
        let limit = Clock::system().now().after(database.wait_most);
        let session = Self { connection, path, limit, is_wanted };
        session.patiently(|connection| {
            connection.busy_timeout(WAIT_SLICE)?;
            // FULL would not put on the disk that the journal is gone, and a crash of the machine would take the mark back.
            connection.pragma_update(None, "synchronous", "EXTRA")
        })?;
        Ok(session)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        self.path
    }

    /// Looks into the database.
    ///
    /// # Errors
    /// `Unavailable` when another process has it for too long.
    pub(crate) fn look<T>(&self, look: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.patiently(look)
    }

    /// Changes the database while nobody else does: all of it, or nothing where `change` fails.
    ///
    /// # Errors
    /// `Unavailable` when another process has it for too long; what the change says.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        self.patiently(|connection| connection.execute_batch("BEGIN IMMEDIATE"))?;
        let changed = change(self).and_then(|changed| {
            // Where readers are in the way, the transaction stays, and no new ones come.
            self.patiently(|connection| connection.execute_batch("COMMIT")).map(|()| changed)
        });
        if changed.is_err() {
            // After some errors SQLite has rolled back already.
            drop(self.connection.execute_batch("ROLLBACK"));
        }
        changed
    }

    /// Does a part of a change.
    pub(crate) fn run<T>(&self, part: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        part(&self.connection).map_err(|error| failure(self.path, error))
    }

    /// Tries it again while another process has the database, and the answer is wanted, to the limit.
    fn patiently<T>(&self, attempt: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        loop {
            match attempt(&self.connection) {
                Err(error) if is_busy(&error) && (self.is_wanted)() && Clock::system().now() < self.limit => {
                }
                outcome => return outcome.map_err(|error| failure(self.path, error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError::Disconnected;

    use super::*;
    use fencepost_core::block_on;

    /// A database that another connection has for itself, and somebody who waits for a moment.
    fn busy() -> (tempfile::TempDir, Connection, Database) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE account (total); BEGIN EXCLUSIVE").unwrap();
        (directory, other, Database { path, wait_most: Duration::from_millis(120) })
    }

    fn write(session: &Session<'_>) -> Result<()> {
        session.change(|session| session.run(|connection| connection.execute_batch("DELETE FROM account")))
    }

    #[test]
    fn another_writer_is_waited_for_with_a_bound_and_the_file_is_named() {
        let (_directory, other, database) = busy();
        let begun = Clock::system().now();
        let error = block_on(database.work(write)).unwrap_err();
        assert!(Clock::system().now().since(begun) >= database.wait_most);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let named = error.to_string().contains(&database.path.display().to_string());
        assert!(named && error.to_string().contains("write transaction"), "{error}");
        other.execute_batch("COMMIT").unwrap();
        block_on(database.work(write)).unwrap();
    }

    #[test]
    fn work_that_nobody_wants_any_more_ends_undone() {
        let (_directory, other, database) = busy();
        let patient = Database { wait_most: Duration::from_hours(1), ..database.clone() };
        let (sender, ended) = std::sync::mpsc::channel::<()>();
        let work = patient.work(move |session| {
            let _told_when_it_is_dropped = sender;
            write(session)
        });
        let limit = Clock::system().now().after(Duration::from_millis(100));
        let given_up = block_on(fencepost_core::until(&Clock::system(), Some(limit), work));
        assert!(given_up.is_none(), "it waits for the other");
        assert!(ended.recv_timeout(Duration::from_secs(20)).is_err_and(|error| error == Disconnected));
        other.execute_batch("INSERT INTO account VALUES (1); COMMIT").unwrap();
        let kept: i64 = other.query_row("SELECT count(*) FROM account", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1);
    }

    #[test]
    fn what_is_committed_is_synced_whatever_the_file_says() {
        let (_directory, other, database) = busy();
        other.execute_batch("COMMIT; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
        let ask = |connection: &Connection| connection.query_row("PRAGMA synchronous", [], |row| row.get(0));
        let extra: i64 = block_on(database.work(move |session| session.look(ask))).unwrap();
        assert_eq!(extra, 3);
    }
}
