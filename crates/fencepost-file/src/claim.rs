//! A live claim on a file lock: both descriptors, and a look now and then whether the files are still in place, and whether somebody
//! has taken the lease away.

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    Claim, Clock, Descriptor, Error, ErrorKind, FencingToken, Grant, Handover, LossReason, Renewal, Result,
};
use futures_util::future::BoxFuture;

use crate::directory::{Directory, Paths};
use crate::hold::Hold;
use crate::logbook::Writing;
use crate::readers::Slot;
use crate::record::{CHANGE_MOST, TokenRecord};
use crate::stat::FileId;
use crate::{news, revocation};

/// How often a holder looks whether its files are still in place.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After so long a holder has the kernel tell of revocations; one that comes sooner is seen then. To have a watch closed delays the end of a
/// process by milliseconds, since the kernel waits for all who might still use it, and most short commands have ended by then.
const LISTEN_AFTER: Duration = Duration::from_millis(50);

/// Why a lease is not held any more, if it is not.
fn how_lost(paths: &Paths, token_id: FileId, token: FencingToken) -> Option<Error> {
    if token_id.is_at(&paths.token) { revocation::of(paths, token) } else { Some(replaced(&paths.token)) }
}

fn replaced(path: &Path) -> Error {
    Error::lost(LossReason::Replaced, format!("{} was replaced or removed", path.display()))
}

/// A hold that was granted.
#[derive(Debug)]
pub(crate) struct FileClaim {
    grant: Grant,
    /// The place of a reader; closed first, so that no reader is seen whose lock is gone.
    slot: Option<Arc<OwnedFd>>,
    lock: Arc<OwnedFd>,
    token: Arc<OwnedFd>,
    token_id: FileId,
    directory: Directory,
    paths: Arc<Paths>,
    clock: Clock,
}

impl FileClaim {
    pub(crate) fn new(
        hold: Hold,
        slot: Option<Slot>,
        grant: Grant,
        directory: Directory,
        paths: Arc<Paths>,
        clock: Clock,
    ) -> Self {
        let Hold { lock, token, token_id, .. } = hold;
        Self {
            grant,
            slot: slot.map(|slot| Arc::new(slot.file.into())),
            lock: Arc::new(lock.into()),
            token: Arc::new(token.into()),
            token_id,
            directory,
            paths,
            clock,
        }
    }
}

#[async_trait]
impl Claim for FileClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        Ok(Renewal { ttl: self.grant.ttl, counted_from: self.clock.now() })
    }

    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        if self.slot.is_some() {
            let what = "who shares the lock only reads";
            return Err(Error::new(ErrorKind::Unsupported, "write the logbook", what));
        }
        let writing = Writing {
            directory: self.directory.clone(),
            paths: Arc::clone(&self.paths),
            clock: self.clock.clone(),
            grant: self.grant.clone(),
            token_id: self.token_id,
            hold: [Arc::clone(&self.lock), Arc::clone(&self.token)],
            content: content.to_vec(),
            limit: self.clock.now().after(CHANGE_MOST),
        };
        writing.carry_out().await
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        let (directory, paths, clock) = (self.directory.clone(), Arc::clone(&self.paths), self.clock.clone());
        let (ours, token) = (self.token_id, self.grant.token);
        let look = move || how_lost(&paths, ours, token);
        Box::pin(async move {
            let mut news = news::join(directory.path());
            if news.is_none() {
                clock.sleep(LISTEN_AFTER).await;
                news = news::listen(directory.path(), &clock);
            }
            loop {
                let mut next = clock.sleep(LOOK_EVERY);
                let seen = poll_fn(|context| {
                    // Before the look: what comes in the midst of it is news for the next one.
                    if let Some(news) = &news {
                        news.wake(context);
                    }
                    let seen = look();
                    let is_over = seen.is_some() || Pin::new(&mut next).poll(context).is_ready();
                    if is_over { Poll::Ready(seen) } else { Poll::Pending }
                });
                if let Some(error) = seen.await {
                    return error;
                }
            }
        })
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        // A command that wrote into the token record would damage it, so that one stays with fencepost.
        let own = [Some(&self.token), self.slot.as_ref()].into_iter().flatten();
        let own = own.map(|fd| Descriptor { fd: Arc::clone(fd), inheritable: false });
        std::iter::once(Descriptor { fd: Arc::clone(&self.lock), inheritable: true }).chain(own).collect()
    }

    fn handover(&self) -> Option<Handover> {
        let Grant { name, holder, token, ttl, .. } = &self.grant;
        ttl.map(|_| Handover { lock: name.clone(), holder: *holder, token: *token, detail: None })
    }

    fn detach(self: Box<Self>) {}

    async fn release(self: Box<Self>) -> Result<()> {
        // Closing is the release. An explicit unlock would free the lock for every duplicate, a guardian's too.
        if !self.token_id.is_at(&self.paths.token) {
            return Err(replaced(&self.paths.token));
        }
        // The record says whether there is a revocation at all, sooner than its file could be looked for.
        let revoked = TokenRecord::read(&self.token).map_or(true, |record| record.revoked > 0);
        let revoked = revoked.then(|| revocation::of(&self.paths, self.grant.token)).flatten();
        revoked.map_or(Ok(()), Err)
    }
}
