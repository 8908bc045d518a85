//! A transaction of the caller's own connection that begins with the check and is not committed after the deadline.

use std::fmt;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fencepost_core::{Error, ErrorKind, Fence, Lease, Mark, Result, Stamp};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::failure::{failure, is_refusal, is_unprepared};
use crate::fence::{SqliteFence, mark_in, read, stored};

/// A transaction whose writes count only while the lease does. Dropped without a commit it is rolled back.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct FencedTransaction<'a> {
    transaction: Transaction<'a>,
    lease: &'a Lease,
}

impl fmt::Debug for FencedTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedTransaction").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl SqliteFence {
    /// Begins a transaction of `connection`, which is open on the file of this fence. The fence is sealed before, and checked
    /// first in the transaction: nobody can seal a newer stamp before it has ended, and guarded tables accept its writes.
    ///
    /// It has the only write transaction of the file from the start. The client library blocks the thread, here for as long
    /// as the connection's busy timeout.
    ///
    /// # Cancel safety
    /// Dropping it rolls the transaction back.
    ///
    /// # Errors
    /// `Lost` when the lease is lost, `Stale` when the fence has seen a greater token: stop, and read again before you write
    /// under a new lease. `Unavailable` when another process has the file; `InvalidArgument` for a connection to another
    /// file, or one that does not enforce foreign keys.
    ///
    /// # Examples
    /// ```no_run
    /// use fencepost_core::{Error, Lease, Result};
    /// use fencepost_sqlite::SqliteFence;
    /// use rusqlite::Connection;
    ///
    /// async fn add(connection: &mut Connection, lease: &Lease) -> Result<()> {
    ///     let fence = SqliteFence::from_url(&"sqlite:/srv/ledger.db".parse()?)?;
    ///     let transaction = fence.transaction(connection, lease).await?;
    ///     transaction.execute("UPDATE account SET total = total + 1", []).expect("there is an account");
    ///     transaction.commit()
    /// }
    /// ```
    pub async fn transaction<'a>(
        &self,
        connection: &'a mut Connection,
        lease: &'a Lease,
    ) -> Result<FencedTransaction<'a>> {
        lease.check()?;
        self.expect_own(connection)?;
        let stamp = lease.stamp();
        lease.heed(self.seal(&stamp).await)?;
        let transaction = lease.heed(self.begin(connection, &stamp))?;
        Ok(FencedTransaction { transaction, lease })
    }

    /// The mark in another file says nothing about this one.
    fn expect_own(&self, connection: &Connection) -> Result<()> {
        let inode = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let other = connection.path().unwrap_or_default();
        let is_own = inode(self.0.path()).is_some_and(|own| inode(Path::new(other)) == Some(own));
        if is_own {
            return Ok(());
        }
        let what = format!("the connection is open on {other:?}, and the fence is in {self}");
        Err(Error::new(ErrorKind::InvalidArgument, "begin the transaction", what))
    }

    fn begin<'a>(&self, connection: &'a mut Connection, stamp: &Stamp) -> Result<Transaction<'a>> {
        let failed = |error| failure(self.0.path(), error).during("begin the transaction").on(&stamp.lock);
        let transaction = Transaction::new(connection, TransactionBehavior::Immediate).map_err(failed)?;
        let values = (stamp.lock.as_str(), stored(stamp.token), stamp.holder.as_str());
        let sql = "INSERT INTO fencepost_stamp (lock, token, holder) VALUES (?1, ?2, ?3)";
        match transaction.execute(sql, values) {
            Ok(_) => Ok(transaction),
            Err(error) if is_refusal(&error) => {
                let mark = mark_in(&transaction, &stamp.lock).map_err(failed)?.map(read).transpose()?;
                Mark::checked(mark.as_ref(), stamp).map_err(|error| error.during("begin the transaction"))?;
                Err(failed(error))
            }
            Err(error) if is_unprepared(&error) => {
                let what = "the connection does not enforce foreign keys, by which a stamp ends with its transaction";
                Err(Error::new(ErrorKind::InvalidArgument, "begin the transaction", what)
                    .hint("run PRAGMA foreign_keys = ON on it"))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

impl FencedTransaction<'_> {
    /// Commits, if the lease is still held.
    ///
    /// # Errors
    /// `Lost` when the lease was lost meanwhile; the transaction is rolled back then. Any other kind when it could not be
    /// committed, and is rolled back too.
    pub fn commit(self) -> Result<()> {
        self.lease.check()?;
        let path = self.transaction.path().unwrap_or_default().to_owned();
        let withdrawn = self.transaction.execute("DELETE FROM fencepost_stamp", []);
        let committed = withdrawn.and_then(|_| self.transaction.commit());
        committed.map_err(|error| failure(Path::new(&path), error).during("commit the transaction"))
    }
}

impl<'a> Deref for FencedTransaction<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}
