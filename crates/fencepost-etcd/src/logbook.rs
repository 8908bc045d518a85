//! What the holders of a lock leave beside its token for those to come.
//!
//! It is no place, has no lease, and lies apart from the queues. Invariant: only the holder changes it, and none of its writes is
//! carried out after a later one: a copy that a frozen member carries out late finds that it was changed.

use fencepost_core::{LockName, Result};

use crate::failure::unexpected;
use crate::generated::{KeyValue, TxnRequest};
use crate::keys;
use crate::members::{Answer, Failed};
use crate::requests::{Done, created, get, one, put, tied, unchanged_since};
use crate::server::{FOR_EVER, ONCE, Server};
use crate::stand::Stand;

/// How often one write may find that somebody else has written meanwhile, which nobody may.
const WRITE_TRIES: usize = 20;

/// Reads what is there, by the word of a majority.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn read(server: &Server, name: &LockName) -> Result<Option<Vec<u8>>> {
    let request = one(&keys::logbook(server.root(), name));
    let found = server.read(&request, ONCE).await.map_err(Failed::error)?;
    Ok(found.kvs.into_iter().next().map(|found| found.value))
}

/// What a holder writes with.
#[derive(Debug)]
pub(crate) struct Pen {
    server: Server,
    /// No revision after this one has changed it, but by a request of this holder's that was given up.
    unchanged_since: i64,
}

impl Pen {
    /// For a holder that was the first of its queue at that revision: whoever held the lock before can write no more.
    pub(crate) fn of(server: &Server, first_at: i64) -> Self {
        Self { server: server.clone(), unchanged_since: first_at }
    }

    /// Writes, in one step with the check that the place is there and kept by this lease; whether it is. Once it was the first,
    /// it is the holder's as long as it is there: nobody comes before it any more. One that rests has another lease.
    ///
    /// # Cancel safety
    /// A dropped call may or may not write it, as long as the place is there.
    pub(crate) async fn write(&mut self, stand: &Stand, lease: i64, content: &[u8]) -> Result<bool> {
        let key = keys::logbook(self.server.root(), &stand.record.name);
        let is_ours = |own: &KeyValue| own.create_revision == stand.created && own.lease == lease;
        for _ in 0..WRITE_TRIES {
            let request = TxnRequest {
                compare: vec![
                    created(&stand.key, stand.created),
                    tied(&stand.key, lease),
                    unchanged_since(&key, self.unchanged_since),
                ],
                success: vec![put(&key, content.to_vec(), 0)],
                failure: vec![get(&stand.key), get(&key)],
            };
            let answer = self.server.txn(&request, FOR_EVER).await;
            let Answer { message: done, is_late, .. } =
                answer.map_err(|failed| failed.doubtful("write the logbook"))?;
            if done.succeeded {
                self.unchanged_since = done.header.revision;
                return Ok(true);
            }
            if !done.found(0).first().is_some_and(is_ours) {
                return Ok(false);
            }
            if self.learn(&done) == content && is_late {
                // An earlier copy of the request has done it.
                return Ok(true);
            }
        }
        Err(unexpected("it is changed all the time by somebody else").during("write the logbook"))
    }

    /// What has been written meanwhile: by a request that was given up, or by hand.
    fn learn<'a>(&mut self, done: &'a Done) -> &'a [u8] {
        let Some(found) = done.found(1).first() else { return &[] };
        self.unchanged_since = found.mod_revision;
        &found.value
    }
}
