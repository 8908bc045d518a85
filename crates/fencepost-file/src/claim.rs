//! A live claim on a file lock: both descriptors, and a look now and then whether the files are still in place.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{Claim, Clock, Descriptor, Error, Grant, Handover, LossReason, Renewal, Result};
use futures_util::future::BoxFuture;

use crate::directory::{Directory, Paths};
use crate::hold::{FileId, Hold};
use crate::logbook::Writing;
use crate::record::CHANGE_MOST;

/// How often a holder looks whether its files are still in place.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn replaced(path: &Path) -> Error {
    Error::lost(LossReason::Replaced, format!("{} was replaced or removed", path.display()))
}

/// A hold that was granted.
#[derive(Debug)]
pub(crate) struct FileClaim {
    grant: Grant,
    lock: Arc<OwnedFd>,
    token: Arc<OwnedFd>,
    token_id: FileId,
    directory: Directory,
    paths: Paths,
    clock: Clock,
}

impl FileClaim {
    pub(crate) fn new(hold: Hold, grant: Grant, directory: Directory, paths: Paths, clock: Clock) -> Self {
        let Hold { lock, token, token_id } = hold;
        Self {
            grant,
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
        let writing = Writing {
            directory: self.directory.clone(),
            paths: self.paths.clone(),
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
        let (path, clock) = (self.paths.token.clone(), self.clock.clone());
        let ours = self.token_id;
        Box::pin(async move {
            while ours.is_at(&path) {
                clock.sleep(LOOK_EVERY).await;
            }
            replaced(&path)
        })
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        vec![
            Descriptor { fd: Arc::clone(&self.lock), inheritable: true },
            // A command that wrote into the token record would damage it, so that one stays with fencepost.
            Descriptor { fd: Arc::clone(&self.token), inheritable: false },
        ]
    }

    fn handover(&self) -> Option<Handover> {
        let Grant { name, holder, token, ttl, .. } = &self.grant;
        ttl.map(|_| Handover { lock: name.clone(), holder: *holder, token: *token, detail: None })
    }

    fn detach(self: Box<Self>) {}

    async fn release(self: Box<Self>) -> Result<()> {
        // Closing is the release. An explicit unlock would free the lock for every duplicate, a guardian's too.
        if self.token_id.is_at(&self.paths.token) { Ok(()) } else { Err(replaced(&self.paths.token)) }
    }
}
