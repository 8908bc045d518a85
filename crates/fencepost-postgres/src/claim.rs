//! A lease: a lock that a session on the server holds.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    Claim, Descriptor, Error, ErrorKind, Grant, Handover, LossReason, Mode, Renewal, Result, until,
};
use futures_util::future::BoxFuture;

use crate::logbook;
use crate::server::Server;
use crate::session::{Session, answered};

/// How long a holder that has lost its session asks why before it is told.
const ASK_WHY_MOST: Duration = Duration::from_millis(500);

/// How long a claim that was dropped may take to be given back before its session is closed.
const GIVE_BACK_MOST: Duration = Duration::from_secs(2);

/// How soon a holder that has waited gives its first sign of life. Who gives the lock back before saves the server that.
const STAY_AFTER: Duration = Duration::from_millis(5);

/// A lock that is held. Dropped without a release it is given back in the background.
#[derive(Debug)]
pub(crate) struct PostgresClaim {
    server: Server,
    session: Arc<Session>,
    id: i32,
    mode: Mode,
    grant: Grant,
    is_released: bool,
}

impl PostgresClaim {
    /// It takes over the use of the session from whoever asked.
    pub(crate) fn new(server: Server, session: Arc<Session>, id: i32, mode: Mode, grant: Grant) -> Self {
        server.note_holder(grant.holder, &grant.name, &session);
        if session.may_be_ended() {
            stay_soon(&server, &session);
        }
        Self { server, session, id, mode, grant, is_released: false }
    }
}

/// Until then the server ends the session, and gives the lock to the next, when it takes it for idle: because the holder is stopped,
/// or because its clock is set forward.
fn stay_soon(server: &Server, session: &Arc<Session>) {
    let (clock, session) = (server.clock().clone(), Arc::downgrade(session));
    server.clock().serve(async move {
        clock.sleep(STAY_AFTER).await;
        if let Some(session) = session.upgrade().filter(|session| session.is_used()) {
            // Where it fails the session has ended, or the next renewal does it.
            drop(session.stay().await);
        }
    });
}

impl PostgresClaim {
    /// What a request that failed means for the lease: a session that cannot be talked to is closed, and the lease is lost.
    async fn meant_by(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Unavailable {
            return error;
        }
        self.session.close();
        self.lost().await
    }
}

#[async_trait]
impl Claim for PostgresClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        let counted_from = self.server.clock().now();
        match self.session.holds(self.id).await {
            Ok(true) => Ok(Renewal { ttl: self.grant.ttl, counted_from }),
            Ok(false) => {
                Err(Error::lost(LossReason::Expired, "the session on the server does not hold it any more"))
            }
            Err(error) => Err(self.meant_by(error).await),
        }
    }

    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        let writing = Box::pin(logbook::write(&self.session, self.id, &self.grant, content));
        match answered(self.server.clock(), writing).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(Error::lost(LossReason::Expired, "the session on the server does not hold it any more"))
            }
            Err(error) => Err(self.meant_by(error).await),
        }
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        let (gone, server) = (self.session.connection.gone(), self.server.clone());
        let (id, token) = (self.id, self.grant.token);
        Box::pin(async move {
            let (why, by_server) = match gone.await {
                Ok(ended) => (ended.why.to_string(), ended.by_server),
                Err(_) => ("nobody works for the connection any more".to_owned(), false),
            };
            // Only the server takes a lease away. Whoever has it now does not wait until this one knows.
            if !by_server {
                return Error::lost(LossReason::SessionEnded, format!("the session has ended: {why}"));
            }
            let give_up_at = Some(server.clock().now().after(ASK_WHY_MOST));
            match until(server.clock(), give_up_at, server.why_revoked(id, token)).await {
                Some(Ok(Some(reason))) => {
                    Error::lost(LossReason::Revoked, format!("it was taken away: {reason}"))
                }
                _ => Error::lost(LossReason::SessionEnded, format!("the session has ended: {why}")),
            }
        })
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        vec![self.session.connection.descriptor().clone()]
    }

    fn handover(&self) -> Option<Handover> {
        None
    }

    fn detach(self: Box<Self>) {}

    async fn release(mut self: Box<Self>) -> Result<()> {
        self.is_released = true;
        self.server.forget_holder(self.grant.holder);
        let released = self.session.release(self.id, self.mode).await;
        match released {
            Ok(true) => {
                self.server.keep(Arc::clone(&self.session));
                Ok(())
            }
            Ok(false) => {
                self.session.close();
                let what = "the session on the server did not hold it any more";
                Err(Error::lost(LossReason::Expired, what).during("release the lock"))
            }
            // A session that is gone, or is closed now, holds nothing.
            Err(error) => {
                self.session.close();
                let what = format!("the session has ended: {error}");
                Err(Error::lost(LossReason::SessionEnded, what).during("release the lock"))
            }
        }
    }
}

impl Drop for PostgresClaim {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        self.server.forget_holder(self.grant.holder);
        if self.session.has_one_user() {
            self.session.close();
            return;
        }
        // Others of its set are still held on the session.
        let (server, session) = (self.server.clone(), Arc::clone(&self.session));
        let (id, mode) = (self.id, self.mode);
        self.server.clock().spawn(async move {
            let give_up_at = Some(server.clock().now().after(GIVE_BACK_MOST));
            match until(server.clock(), give_up_at, session.release(id, mode)).await {
                Some(Ok(true)) => server.keep(session),
                _ => session.close(),
            }
        });
    }
}
