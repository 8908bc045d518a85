//! A lease on one server.

use async_trait::async_trait;
use fencepost_core::{Claim, Descriptor, Error, Grant, Handover, Renewal, Result};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::keys::Keys;
use crate::leases::gone;
use crate::record;
use crate::resp::Reply;
use crate::script;
use crate::server::Server;
use crate::session::{lost_touch, refuse};

/// A lock that is held on one server. Dropped without a release it stays taken until its ttl has run out.
#[derive(Debug)]
pub(crate) struct RedisClaim {
    server: Server,
    grant: Grant,
    keys: Keys,
    gone: Shared<oneshot::Receiver<Error>>,
    /// Whether a request to acquire may still be on its way.
    is_late: bool,
}

impl RedisClaim {
    pub(crate) fn new(
        server: Server,
        grant: Grant,
        keys: Keys,
        gone: oneshot::Receiver<Error>,
        is_late: bool,
    ) -> Self {
        Self { server, grant, keys, gone: gone.shared(), is_late }
    }
}

impl Drop for RedisClaim {
    fn drop(&mut self) {
        self.server.shared.leases.remove(self.grant.holder);
    }
}

#[async_trait]
impl Claim for RedisClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        self.server.renew(self.grant.holder, self.grant.ttl.unwrap_or_default()).await
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        let gone = self.gone.clone();
        Box::pin(async move {
            match gone.await {
                Ok(error) => error,
                // The claim has ended, and nobody will say any more.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        Vec::new()
    }

    fn handover(&self) -> Option<Handover> {
        let Grant { name, holder, token, .. } = self.grant.clone();
        Some(Handover { lock: name, holder, token, detail: None })
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let handover = Handover {
            lock: self.grant.name.clone(),
            holder: self.grant.holder,
            token: self.grant.token,
            detail: None,
        };
        release(&self.server, &self.keys, &handover, self.is_late).await
    }
}

/// Gives a lease back, and goes on trying until the server has answered.
pub(crate) async fn release(server: &Server, keys: &Keys, handover: &Handover, is_late: bool) -> Result<()> {
    let beginning = record::beginning(handover.holder, handover.token);
    let tombstone = keys.tombstone(handover.holder);
    let for_long = if is_late { server.options().max_ttl.as_millis() } else { 0 }.to_string();
    let keys = [&*keys.lock, &keys.queue, &keys.waiters, &tombstone];
    let mut was_sent = false;
    loop {
        let session = match server.session().await {
            Ok(session) => session,
            // Where it was not sent yet, the caller is told what is wrong; else only the server knows what became of it.
            Err(error) if !was_sent && error.kind() != fencepost_core::ErrorKind::Unavailable => {
                return Err(error);
            }
            Err(_) => continue,
        };
        match session.connection.run(&script::RELEASE, &keys, &[&beginning, &for_long]).await {
            Ok(reply) => match refuse(reply)? {
                Reply::Integer(1) => return Ok(()),
                // Our own release, sent once more after its answer was lost.
                _ if was_sent => return Ok(()),
                _ => return Err(gone(None).during("release the lock")),
            },
            Err(broken) => {
                was_sent |= broken.was_sent;
                drop(lost_touch(&broken));
            }
        }
    }
}
