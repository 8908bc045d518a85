//! What a lock's holder leaves beside the token for those to come: a file of its own, replaced as a whole.
//!
//! Invariant: it is replaced only by whom the token record names, while nobody can change that record; a crash at any moment
//! leaves the old content or the new one, on the disk.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use fencepost_core::{Clock, Error, ErrorKind, Grant, LossReason, Moment, Result, block_on};
use futures_channel::oneshot;
use rustix::io::Errno;

use crate::directory::{Directory, Paths, failure};
use crate::record::{TokenRecord, exclusively, open_carefully};
use crate::revocation;
use crate::stat::FileId;

const WRITE: &str = "write the logbook";

/// What stands there; `None` if nobody has written.
pub(crate) fn read(paths: &Paths) -> Result<Option<Vec<u8>>> {
    let path = paths.logbook();
    match std::fs::read(&path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure("read the logbook", &path, error)),
    }
}

/// One replacement of the content, for the holder of a lease.
pub(crate) struct Writing {
    pub(crate) directory: Directory,
    pub(crate) paths: Arc<Paths>,
    pub(crate) clock: Clock,
    pub(crate) grant: Grant,
    pub(crate) token_id: FileId,
    /// What the lock hangs on: it is not free before the writing is over, also where nobody waits for that any more.
    pub(crate) hold: [Arc<OwnedFd>; 2],
    pub(crate) content: Vec<u8>,
    /// Until when to wait for another process's change of the record.
    pub(crate) limit: Moment,
}

impl Writing {
    /// Carries it out on a thread of its own, since a disk takes as long as it wants.
    pub(crate) async fn carry_out(self) -> Result<()> {
        let (sender, receiver) = oneshot::channel();
        let write = move || {
            let outcome = block_on(self.write());
            let Self { hold, .. } = self;
            drop(hold);
            // Whoever dropped the call does not want to know.
            drop(sender.send(outcome));
        };
        let thread = std::thread::Builder::new().name("fencepost-write".to_owned()).spawn(write);
        thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, WRITE, "no thread could be started").caused_by(error)
        })?;
        receiver.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unexpected, WRITE, "its thread ended")))
    }

    async fn write(&self) -> Result<()> {
        let Some(record) = open_carefully(&self.paths.token).filter(|record| self.is_ours(record)) else {
            return Err(gone(&self.paths.token));
        };
        let replace = || {
            // Nobody else is granted the lock meanwhile.
            let present = TokenRecord::read(&record)?;
            if present.revoked == self.grant.token.get() {
                let revoked = revocation::of(&self.paths, self.grant.token);
                return Ok(Err(revoked.unwrap_or_else(|| gone(&self.paths.token)).during(WRITE)));
            }
            if present.holder != self.grant.holder.to_bytes() || !self.token_id.is_at(&self.paths.token) {
                return Ok(Err(gone(&self.paths.token)));
            }
            let path = self.paths.logbook();
            Ok(self.directory.replace(&path, &self.content).map_err(|error| no_room(&path, error)))
        };
        let written = exclusively(&record, &self.clock, self.limit, replace).await;
        written.map_err(|error| failure(WRITE, &self.paths.token, error))?
    }

    fn is_ours(&self, record: &File) -> bool {
        FileId::of(record) == Some(self.token_id)
    }
}

fn gone(path: &Path) -> Error {
    let what = format!("{} does not name this holder any more", path.display());
    Error::lost(LossReason::Expired, what).during(WRITE)
}

fn no_room(path: &Path, error: io::Error) -> Error {
    let is_full = matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
    );
    let failure = failure(WRITE, path, error);
    if is_full { failure.hint("make room there: what was written before stands as it was") } else { failure }
}
