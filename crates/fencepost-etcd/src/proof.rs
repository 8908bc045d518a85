//! Writing to etcd under a lock of etcd: what a transaction compares so that only the present holder's is carried out.

use fencepost_core::{Error, ErrorKind, LossReason, Mode, Result};

use crate::look;
use crate::record::Place;
use crate::server::Server;

/// What a transaction in the same cluster compares, beside what it writes: that the key was made by this revision.
///
/// No token is needed then. The comparison and the writes are one step, so there is no moment in between at which the lock could
/// be lost. It holds for one lease and never again: a later holder has another key.
///
/// With `etcdctl txn`: `create("KEY") = "REVISION"`. With the crate `etcd-client`:
/// `Compare::create_revision(proof.key, CompareOp::Equal, proof.create_revision)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// The holder's place in the queue of the lock.
    pub key: String,
    /// The revision that made it.
    pub create_revision: i64,
}

/// The proof of a lease.
pub(crate) async fn proof(server: &Server, lease: &fencepost_core::Lease) -> Result<Proof> {
    lease.check()?;
    let found = look::holder(server, lease.lock(), lease.token()).await?;
    match found.filter(|place| place.holder() == Some(lease.holder())) {
        Some(Place { mode: Mode::Shared, .. }) => {
            let what = "who shares the lock only reads, and others may hold it as well";
            Err(Error::new(ErrorKind::Unsupported, "prove the lease", what).on(lease.lock()))
        }
        Some(Place { key, created, .. }) => {
            Ok(Proof { key: String::from_utf8_lossy(&key).into_owned(), create_revision: created })
        }
        None => Err(Error::lost(LossReason::Expired, "etcd does not know it any more").on(lease.lock())),
    }
}
