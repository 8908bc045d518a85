//! A lease on one server.

use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{Claim, Descriptor, Error, ErrorKind, Grant, Handover, Mode, Renewal, Result};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::connection::Broken;
use crate::failure::{lost_touch, refuse, refused, unexpected};
use crate::keys::LockKey;
use crate::leases::gone;
use crate::record;
use crate::resp::Reply;
use crate::script;
use crate::server::Server;
use crate::session::{REFUSED_PAUSE, Session};

/// How long a logbook is kept after it was written: longer than the year that the longest period of a plan takes.
const LOGBOOK_KEPT: Duration = Duration::from_hours(400 * 24);

/// A lock that is held on one server. Dropped without a release it stays taken until its ttl has run out.
#[derive(Debug)]
pub(crate) struct RedisClaim {
    server: Server,
    grant: Grant,
    key: LockKey,
    gone: Shared<oneshot::Receiver<Error>>,
    /// Beside whom it is held.
    mode: Mode,
    /// Whether a request to acquire may still be on its way.
    is_late: bool,
}

impl RedisClaim {
    pub(crate) fn new(
        server: Server,
        grant: Grant,
        key: LockKey,
        mode: Mode,
        gone: oneshot::Receiver<Error>,
        is_late: bool,
    ) -> Self {
        Self { server, grant, key, mode, gone: gone.shared(), is_late }
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

    /// It is sent once, so that no earlier one comes after a later one.
    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        let session = self.server.session().await?;
        let Grant { holder, token, .. } = self.grant;
        let (beginning, kept) = (record::beginning(holder, token), LOGBOOK_KEPT.as_secs().to_string());
        let words = [self.key.as_bytes(), beginning.as_bytes(), content, kept.as_bytes()];
        let script = &script::WRITE_LOGBOOK;
        match session.connection.run_text(script.text, script.hash(), 1, &words).await {
            Ok(reply) => match refuse(reply)? {
                Reply::Integer(1) => Ok(()),
                state => Err(gone(state.text()).during("write the logbook")),
            },
            Err(broken) if broken.was_sent => {
                let what = format!("{}; the server may have done it", broken.why);
                Err(Error::new(ErrorKind::Indeterminate, "write the logbook", what))
            }
            Err(broken) => Err(lost_touch(&broken)),
        }
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

    fn detach(self: Box<Self>) {}

    async fn release(self: Box<Self>) -> Result<()> {
        let Grant { name, holder, token, .. } = self.grant.clone();
        let handover = Handover { lock: name, holder, token, detail: None };
        release(&self.server, &self.key, &handover, self.mode, self.is_late).await
    }
}

/// Renews a lease that this process does not keep.
pub(crate) async fn renew(
    server: &Server,
    session: &Session,
    handover: &Handover,
    ttl: Duration,
) -> Result<Renewal> {
    let key = LockKey::of(&handover.lock);
    let beginning = record::beginning(handover.holder, handover.token);
    let counted_from = server.clock().now();
    let reply =
        session.connection.run(&script::RENEW, &[&key], &[&beginning, &ttl.as_millis().to_string()]).await;
    let reply = reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
    match reply.list() {
        [_, Reply::Integer(1)] => Ok(Renewal { ttl: Some(ttl), counted_from }),
        [_, state] => Err(gone(state.text()).during("renew the lease")),
        _ => Err(unexpected("a renewal", &reply)),
    }
}

/// Gives a lease back, and goes on trying until the server has done so or has said that it is gone.
///
/// # Cancel safety
/// A dropped call may or may not have given it back.
///
/// # Errors
/// `Lost` when it was not the holder's any more; what a server says that will not change its mind.
pub(crate) async fn release(
    server: &Server,
    key: &LockKey,
    handover: &Handover,
    mode: Mode,
    is_late: bool,
) -> Result<()> {
    let beginning = record::beginning(handover.holder, handover.token);
    let for_long = is_late.then(|| server.options().max_ttl.as_millis().to_string());
    let arguments: Vec<&str> = [&*beginning].into_iter().chain(for_long.as_deref()).collect();
    let mut was_sent = false;
    loop {
        let session = match server.session().await {
            Ok(session) => session,
            // Where it was not sent yet, the caller is told what is wrong; else only the server knows what became of it.
            Err(error) if !was_sent && error.kind() != ErrorKind::Unavailable => return Err(error),
            Err(_) => continue,
        };
        let reply = if is_late || was_sent {
            session.connection.run_in_full(&script::RELEASE, &[key], &arguments).await
        } else if mode == Mode::Exclusive {
            send_and_hand_on(server, &session, key, &arguments).await
        } else {
            // Others may have it still.
            session.connection.run(&script::RELEASE, &[key], &arguments).await
        };
        match reply {
            Ok(Reply::Integer(1)) => return Ok(()),
            Ok(Reply::Refused(what)) => {
                let error = refused(&what);
                if error.kind() != ErrorKind::Unavailable {
                    return Err(error);
                }
                session.give_up_on_a_replica(&what);
                server.clock().sleep(REFUSED_PAUSE).await;
            }
            // Our own release, sent once more after its answer was lost.
            Ok(_) if was_sent => return Ok(()),
            Ok(_) => return Err(gone(None).during("release the lock")),
            Err(broken) => was_sent |= broken.was_sent,
        }
    }
}

async fn send_and_hand_on(
    server: &Server,
    session: &Session,
    key: &LockKey,
    arguments: &[&str],
) -> Result<Reply, Broken> {
    let keys: [&str; 1] = [key];
    let mut releasing = pin!(session.connection.run(&script::RELEASE, &keys, arguments));
    // It is sent now; what is sent next comes after it.
    if let Some(reply) = releasing.as_mut().now_or_never() {
        return reply;
    }
    server.hand_on(key);
    releasing.await
}
