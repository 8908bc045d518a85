//! A lease: a key that is the first of its queue, and the session that keeps it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    Claim, Descriptor, Error, ErrorKind, Grant, Handover, HolderId, LockName, LossReason, Mode, Renewal,
    Result,
};
use futures_util::future::BoxFuture;

use crate::crowd::{Presence, call_all};
use crate::keys::Keys;
use crate::logbook::Pen;
use crate::members::Failed;
use crate::record::micros;
use crate::requests::one;
use crate::rest::Rest;
use crate::server::{FOR_A_WHILE, FOR_EVER, ONCE, Server, gone};
use crate::session::{self, Session};
use crate::stand::Stand;
use crate::watch::Heard;

/// How long a lock is held before its key is watched: most are given back sooner, and would pay for it.
const WATCH_AFTER: Duration = Duration::from_millis(20);

/// The pause before a watch that has ended is begun anew.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// A lock that is held. Dropped without a release its session is ended in the background.
#[derive(Debug)]
pub(crate) struct EtcdClaim {
    server: Server,
    grant: Grant,
    session: Session,
    stand: Arc<Stand>,
    _presence: Presence,
    rest: Option<Rest>,
    /// When it was granted, where it was waited for: microseconds since 1970.
    granted: Option<u64>,
    logbook: Pen,
}

impl EtcdClaim {
    pub(crate) fn new(
        grant: Grant,
        session: Session,
        (stand, presence): (Stand, Presence),
        at_least: Option<Duration>,
        has_waited: bool,
    ) -> Self {
        let server = session.server().clone();
        let rest = at_least.map(|at_least| Rest::from_now(at_least, server.clock()));
        let granted = has_waited.then(|| server.clock().wall_micros());
        let logbook = Pen::of(&server, stand.first_at);
        let stand = Arc::new(stand);
        Self { server, grant, session, stand, _presence: presence, rest, granted, logbook }
    }
}

#[async_trait]
impl Claim for EtcdClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        if let Some(renewal) = renew(&mut self.session, &self.stand).await? {
            return Ok(renewal);
        }
        Err(why_gone(&self.server, &self.grant.name, self.grant.holder).await)
    }

    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        if self.stand.mode == Mode::Shared {
            let what = "who shares the lock only reads";
            return Err(Error::new(ErrorKind::Unsupported, "write the logbook", what));
        }
        if Box::pin(self.logbook.write(&self.stand, self.session.id(), content)).await? {
            return Ok(());
        }
        Err(why_gone(&self.server, &self.grant.name, self.grant.holder).await.during("write the logbook"))
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        let (server, stand) = (self.server.clone(), Arc::clone(&self.stand));
        let (name, holder, granted) = (self.grant.name.clone(), self.grant.holder, self.granted);
        // There is one for each lock that is held, so what is done once is boxed for as long as it takes.
        Box::pin(async move {
            server.clock().sleep(WATCH_AFTER).await;
            if let Some(granted) = granted {
                // Only onlookers would miss it.
                drop(Box::pin(stand.note_grant(granted, ONCE)).await);
            }
            until_gone(&server, &stand).await;
            // The place is still noted here until the holder lets go.
            server.crowd().call(&stand);
            Box::pin(why_gone(&server, &name, holder)).await
        })
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        Vec::new()
    }

    fn handover(&self) -> Option<Handover> {
        let Grant { name, holder, token, .. } = self.grant.clone();
        let detail = self.rest.map(|rest| rest.text(self.server.clock()));
        Some(Handover { lock: name, holder, token, detail })
    }

    fn detach(self: Box<Self>) {
        self.session.leave();
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let Self { server, mut session, stand, _presence, rest, .. } = *self;
        let is_resting = rest.is_some_and(|rest| !rest.left(server.clock()).is_zero());
        let (was_there, was_late) = Box::pin(give_up(&server, &stand, rest)).await?;
        session.note_late(was_late);
        // A place that rests has the name of the lease.
        if was_there && !is_resting {
            session.keep();
        }
        // Otherwise the session is dropped, and with it ends what may come late.
        if was_there || was_late { Ok(()) } else { Err(gone().during("release the lock")) }
    }
}

/// Leaves the place at once, or to a lease that keeps it for the rest of the time. Whether it was there, and whether an earlier
/// try may have left it.
pub(crate) async fn give_up(server: &Server, stand: &Stand, rest: Option<Rest>) -> Result<(bool, bool)> {
    let left = rest.map(|rest| rest.left(server.clock())).unwrap_or_default();
    if left.is_zero() {
        return Box::pin(leave(server, stand)).await.map_err(Failed::error);
    }
    let seconds = i64::try_from(left.as_secs() + 1).unwrap_or(i64::MAX);
    let lease = session::grant(server, seconds, FOR_EVER).await.map_err(Failed::error)?;
    let until = server.clock().wall_micros() + micros(left);
    let left_to_it = stand.rest(lease.id, until, FOR_EVER).await.map_err(Failed::error)?;
    // The lease ends a second or so later than it should; where this process lives on, it ends the rest in time.
    let (server, end_at) = (server.clone(), server.clock().now().after(left));
    server.clock().clone().serve(async move {
        server.clock().sleep_until(end_at).await;
        drop(Box::pin(session::end(&server, lease.id, FOR_A_WHILE)).await);
    });
    Ok(left_to_it)
}

/// Leaves the queue. Who stands right behind in this process is told at once, by what the same transaction has seen; several
/// readers look for themselves.
async fn leave(server: &Server, stand: &Stand) -> Result<(bool, bool), Failed> {
    let mut behind = server.crowd().take_behind(stand);
    let only = if behind.len() == 1 { behind.pop() } else { None };
    let Some(next) = only else {
        let left = stand.leave(FOR_EVER).await;
        call_all(behind);
        return left;
    };
    let (was_there, is_late, seen) = stand.leave_to(&next.stand, FOR_EVER).await?;
    next.tell(seen);
    if was_there {
        return Ok((true, is_late));
    }
    // One of the two was not there; if it was the other, this one is left all the same.
    let (was_there, was_late) = stand.leave(FOR_EVER).await?;
    Ok((was_there, is_late || was_late))
}

/// Renews a session, and sees that its key is still there; `None` where one of them is gone.
pub(crate) async fn renew(session: &mut Session, stand: &Arc<Stand>) -> Result<Option<Renewal>> {
    let renewal = session.server().renew(session.id(), session.ttl(), Arc::clone(stand)).await?;
    if let Some(renewal) = renewal {
        session.begin_term(renewal);
    }
    Ok(renewal)
}

/// Why a holder has lost its lease.
pub(crate) async fn why_gone(server: &Server, name: &LockName, holder: HolderId) -> Error {
    let key = Keys::of(server.root(), name).reason(holder);
    server.why_gone(&key).await
}

/// Ends when the key is not there any more, by the word of a majority or of a watch.
async fn until_gone(server: &Server, stand: &Stand) {
    let mut revision = stand.created + 1;
    loop {
        let watch = Box::pin(server.members().watch(stand.key.as_bytes(), revision)).await;
        if let Ok(mut watch) = watch {
            loop {
                match watch.next().await {
                    Some(Heard::Begun) => {}
                    Some(Heard::Changed) => return,
                    None => break,
                }
            }
        }
        // What was missed meanwhile is seen by looking, also where the revision was compacted away.
        server.clock().sleep(WATCH_PAUSE + server.clock().jitter(WATCH_PAUSE)).await;
        // The question is boxed with its answer: it would take its place for as long as the lock is held.
        let look = async { server.read(&one(&stand.key), ONCE).await };
        let Ok(found) = Box::pin(look).await else { continue };
        if found.kvs.first().is_none_or(|key| key.create_revision != stand.created) {
            return;
        }
        revision = found.header.unwrap_or_default().revision + 1;
    }
}

/// The loss of a lease that is not the holder's any more.
pub(crate) fn not_held() -> Error {
    Error::lost(LossReason::Expired, "it is not held any more").during("release the lock")
}
