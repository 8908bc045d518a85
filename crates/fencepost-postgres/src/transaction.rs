//! A transaction of the caller's own client that begins with the check and is not committed after the deadline.

use std::ops::Deref;

use fencepost_core::{Fence, Lease, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::failure::failure;
use crate::fence::{PostgresFence, stored};

/// A transaction whose writes count only while the lease does. Dropped without a commit it is rolled back.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct FencedTransaction<'a> {
    transaction: Transaction<'a>,
    lease: &'a Lease,
}

impl std::fmt::Debug for FencedTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedTransaction").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl PostgresFence {
    /// Begins a transaction of `client`, which is connected to the database of this fence. The fence is sealed before, and
    /// checked first in the transaction: nobody can seal a newer stamp before it has ended, and guarded tables accept its writes.
    ///
    /// # Cancel safety
    /// Dropping it rolls the transaction back.
    ///
    /// # Errors
    /// `Lost` when the lease is lost, `Stale` when the fence has seen a greater token: stop, and read again before you write
    /// under a new lease.
    ///
    /// # Examples
    /// ```no_run
    /// use fencepost_core::{Clock, Lease, Result};
    /// use fencepost_postgres::PostgresFence;
    ///
    /// async fn add(client: &mut tokio_postgres::Client, lease: &Lease) -> Result<()> {
    ///     let fence = PostgresFence::from_url(&"postgres://app@db/ledger".parse()?, Clock::system())?;
    ///     let transaction = fence.transaction(client, lease).await?;
    ///     transaction.execute("update account set total = total + 1", &[]).await.expect("there is an account");
    ///     transaction.commit().await
    /// }
    /// ```
    pub async fn transaction<'a>(
        &self,
        client: &'a mut Client,
        lease: &'a Lease,
    ) -> Result<FencedTransaction<'a>> {
        lease.check()?;
        let stamp = lease.stamp();
        lease.heed(self.seal(&stamp).await)?;
        let transaction = client.transaction().await.map_err(|error| failure(&error))?;
        let (name, holder, token) = (stamp.lock.as_str(), stamp.holder.as_str(), stored(stamp.token));
        let checked = transaction
            .query_typed(
                "select fencepost.check($1, $2, $3)",
                &[(&name, Type::TEXT), (&token, Type::INT8), (&holder, Type::TEXT)],
            )
            .await;
        match checked {
            Ok(_) => Ok(FencedTransaction { transaction, lease }),
            Err(error) => lease.heed(Err(self.refused(&stamp, "begin the transaction", &error).await)),
        }
    }
}

impl FencedTransaction<'_> {
    /// Commits, if the lease is still held.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have committed.
    ///
    /// # Errors
    /// `Lost` when the lease was lost meanwhile; the transaction is rolled back then. Any other kind when the server did not
    /// commit it, also because a statement in it had failed, or, `Unavailable`, when that is not known.
    pub async fn commit(self) -> Result<()> {
        // The server answers a commit after a failed statement by a rollback, and the client library takes it for a commit.
        let is_whole = self.transaction.batch_execute("select").await.map_err(|error| failure(&error));
        if let Err(error) = self.lease.check().and(is_whole) {
            // A server that is not heard of rolls it back when it learns that the client is gone.
            drop(self.transaction.rollback().await);
            return Err(error);
        }
        self.transaction.commit().await.map_err(|error| failure(&error))
    }
}

impl<'a> Deref for FencedTransaction<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}
