//! A lease: the first place in the queue of a lock.

use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{
    Claim, Descriptor, Error, ErrorKind, Grant, Handover, LockName, LossReason, Mode, Renewal, Result,
};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::connection::{Broken, Connection};
use crate::failure::{fine, garbled, gone, lost_touch, refused};
use crate::logbook;
use crate::nodes::{self, Place};
use crate::offset;
use crate::protocol::{Answer, Code, Request};
use crate::queue::erase_behind;
use crate::record::{LockRecord, Rest};
use crate::session::Behind;
use crate::trace::Trace;

/// A lock that is held. Dropped without a release it is given back in the background.
#[derive(Debug)]
pub(crate) struct ZooKeeperClaim {
    /// What is in the queue; nothing once it was released.
    trace: Option<Trace>,
    grant: Grant,
    path: Arc<str>,
    made_by: i64,
    gone: Shared<oneshot::Receiver<Error>>,
    rest: Option<Rest>,
    /// The transaction that made the lock's node.
    lock_made_by: i64,
}

impl ZooKeeperClaim {
    pub(crate) fn new(
        trace: Trace,
        grant: Grant,
        gone: oneshot::Receiver<Error>,
        rest: Option<Rest>,
        lock_made_by: i64,
    ) -> Self {
        let stand = trace.stand.as_ref();
        let (path, made_by) =
            stand.map(|stand| (Arc::clone(stand.path()), stand.stat.made_by)).unwrap_or_default();
        Self { trace: Some(trace), grant, path, made_by, gone: gone.shared(), rest, lock_made_by }
    }

    fn node(&self) -> &str {
        nodes::node_of(&self.path)
    }
}

impl Drop for ZooKeeperClaim {
    fn drop(&mut self) {
        if let Some(trace) = self.trace.take() {
            trace.used.session.let_go(&self.path);
            erase_behind(trace);
        }
    }
}

#[async_trait]
impl Claim for ZooKeeperClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        let Some(trace) = &self.trace else { return Err(gone(None)) };
        match trace.used.session.renewed(&self.path).await {
            // Why, is said in a moment.
            Err(error) if error.kind() == ErrorKind::Lost => Err(self.gone.clone().await.unwrap_or(error)),
            outcome => outcome,
        }
    }

    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        let Some(trace) = &self.trace else { return Err(gone(None)) };
        if Place::of(self.node()).is_none_or(|place| place.mode == Mode::Shared) {
            let what = "who shares the lock writes none";
            return Err(Error::new(ErrorKind::InvalidArgument, "write the logbook", what));
        }
        logbook::write(&trace.used.session, trace.lock(), self.node(), content).await
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
        let detail = Detail { node: self.node().to_owned(), made_by: self.made_by };
        Some(Handover { lock: name, holder, token, detail: Some(detail.text(token.get())) })
    }

    fn detach(self: Box<Self>) {}

    async fn release(mut self: Box<Self>) -> Result<()> {
        let Some(trace) = &mut self.trace else { return Err(gone(None)) };
        let session = trace.used.session.clone();
        session.let_go(&self.path);
        let mut was_sent = false;
        loop {
            let connection = match session.connection().await {
                Ok(connection) => connection,
                Err(error) if session.has_ended() => return Err(error.during("release the lock")),
                Err(_) => continue,
            };
            match leave(&connection, trace, &self.path, self.rest.as_ref(), self.lock_made_by).await {
                Ok(true) => break,
                // Our own release, sent once more after its answer was lost.
                Ok(false) if was_sent => break,
                Ok(false) => {
                    self.trace = None;
                    return Err(gone(None).during("release the lock"));
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => was_sent = true,
                Err(error) => return Err(error),
            }
        }
        self.trace = None;
        Ok(())
    }
}

/// Leaves the place of a lease. Whether it was there.
///
/// # Cancel safety
/// As [`release`].
async fn leave(
    connection: &Connection,
    trace: &Trace,
    path: &str,
    rest: Option<&Rest>,
    lock_made_by: i64,
) -> Result<bool> {
    let session = &trace.used.session;
    let rest = rest.filter(|rest| rest.until_micros > session.clock().wall_micros());
    // Whoever held it alone had nobody before it.
    let alone = Place::of(nodes::node_of(path)).filter(|place| place.mode == Mode::Exclusive);
    let next = if alone.is_some() && rest.is_none() { session.next_behind(path) } else { None };
    let was_there = match next {
        Some(next) => leave_to(connection, path, next).await?,
        None => release(connection, trace.lock(), nodes::node_of(path), rest, session.clock()).await?,
    };
    if let Some(place) = alone.filter(|_| was_there) {
        session.pass(trace.lock(), lock_made_by, place.number());
    }
    Ok(was_there)
}

/// Leaves a place that had nobody before it, and tells whoever of this session stands right behind it what is seen of its own place
/// afterwards: it is the first one by then, if it is still there. Whoever is told nothing looks.
async fn leave_to(connection: &Connection, path: &str, next: Behind) -> Result<bool> {
    let (left, asked) = {
        let mut batch = connection.batch();
        (batch.call(&Request::delete(path, -1)), batch.call(&Request::data(&next.path, false)))
    };
    let was_there = was_there(left.await)?;
    if let Ok(answer) = asked.await
        && was_there
        && answer.code == Code::OK
    {
        next.tell(answer.seen);
    }
    Ok(was_there)
}

/// Whether what was to be deleted was there.
fn was_there(answer: Result<Answer, Broken>) -> Result<bool> {
    match answer.map_err(|broken| lost_touch(&broken))?.code {
        Code::OK => Ok(true),
        Code::NO_NODE => Ok(false),
        code => Err(refused(code)),
    }
}

/// Deletes a place, and has the lock rest where that is asked for. Whether the place was there.
///
/// # Cancel safety
/// A dropped call may or may not have deleted it.
pub(crate) async fn release(
    connection: &Connection,
    lock: &str,
    node: &str,
    rest: Option<&Rest>,
    clock: &fencepost_core::Clock,
) -> Result<bool> {
    let path = format!("{lock}/{node}");
    let Some(rest) = rest.filter(|rest| rest.until_micros > clock.wall_micros()) else {
        return was_there(connection.call(&Request::delete(&path, -1)).await);
    };
    loop {
        let answer = fine(connection.call(&Request::data(lock, false)).await)?;
        let (bytes, stat) = answer.data().map_err(garbled)?;
        let record = LockRecord { rest: Some(rest.clone()), ..LockRecord::read(&bytes) };
        let change = [Request::delete(&path, -1), Request::set_data(lock, &record.bytes(), stat.version)];
        let answer = connection.call(&Request::all(&change)).await.map_err(|broken| lost_touch(&broken))?;
        if offset::is_done(&answer)? {
            return Ok(true);
        }
        if answer.parts().map_err(garbled)?.first() == Some(&Code::NO_NODE) {
            return Ok(false);
        }
    }
}

/// What another process needs to know of a place: its node, and which offset makes the token of it.
pub(crate) struct Detail {
    pub(crate) node: String,
    made_by: i64,
}

impl Detail {
    fn text(&self, token: u64) -> String {
        format!("{} {}", self.node, token.saturating_sub(u64::try_from(self.made_by).unwrap_or_default()))
    }

    /// Reads what was handed over. The node, and by which transaction it must have been made to have the token.
    ///
    /// # Errors
    /// `Lost` when it is not what a lease of this backend hands over.
    pub(crate) fn read(handover: &Handover) -> Result<Self> {
        let foreign = || {
            let what = "it is not held by the lease that is given back";
            Error::lost(LossReason::Expired, what).during("release the lock")
        };
        let detail =
            handover.detail.as_deref().and_then(|detail| detail.split_once(' ')).ok_or_else(foreign)?;
        let offset: u64 = detail.1.parse().map_err(|_| foreign())?;
        let made_by = handover.token.get().checked_sub(offset).and_then(|number| i64::try_from(number).ok());
        let node = detail.0.to_owned();
        if Place::of(&node).is_none_or(|place| place.holder != handover.holder) {
            return Err(foreign());
        }
        Ok(Self { node, made_by: made_by.ok_or_else(foreign)? })
    }

    /// Whether a node was made by the transaction that gives the token.
    pub(crate) fn is_of(&self, made_by: i64) -> bool {
        self.made_by == made_by
    }
}

/// The path of the node that a lease hangs on, below the chroot of its backend: it is there as long as the lease is.
///
/// A transaction of ZooKeeper's own that begins with a check of it, at any version, is carried out under the lease or not at all.
pub fn lease_node(lock: &LockName, handover: &Handover) -> Option<String> {
    let detail = handover.detail.as_deref()?;
    let (node, _) = detail.split_once(' ')?;
    Some(format!("{}/{node}", nodes::lock("", lock)))
}
