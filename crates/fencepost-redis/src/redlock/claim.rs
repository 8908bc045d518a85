//! A lease on a quorum.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    Claim, Descriptor, Error, ErrorKind, FencingToken, Grant, Handover, LossReason, Observer, Raced, Renewal,
    Result, race, until,
};
use futures_channel::{mpsc, oneshot};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::candidate::{Candidate, Going};
use super::exchange::Exchange;
use crate::leases::{Held, gone};
use crate::quorum::{Cancellation, Event, Granted, Reply, Request, Tenure, Terms, Verdict};
use crate::session::lock;

/// How long a release waits for the nodes beyond a majority.
const STRAGGLERS_MOST: Duration = Duration::from_millis(50);

/// A lock that is held on a majority of the nodes. Dropped without a release it stays taken until its ttl has run out.
pub(super) struct RedlockClaim {
    candidate: Arc<Candidate>,
    grant: Grant,
    terms: Terms,
    tenure: Tenure,
    exchange: Exchange,
    is_lost: bool,
    revocations: Mutex<Vec<oneshot::Receiver<Error>>>,
}

impl fmt::Debug for RedlockClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockClaim").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl RedlockClaim {
    pub(super) fn new(
        candidate: Arc<Candidate>,
        terms: Terms,
        granted: Granted,
        exchange: Exchange,
        observer: Option<&Arc<dyn Observer>>,
    ) -> Self {
        candidate.hold();
        let (name, holder) = (candidate.name.clone(), candidate.holder);
        let (token, ttl) = (granted.token, terms.ttl());
        let mut revocations = Vec::new();
        for (index, node) in candidate.nodes.all().iter().enumerate() {
            let (lost, revoked) = oneshot::channel();
            revocations.push(revoked);
            // One node speaks for all where the observer is told something.
            let observer = observer.filter(|_| index == 0).cloned();
            let keys = candidate.keys.clone();
            let held = Held { name: name.clone(), keys, token, ttl, observer, lost: Some(lost) };
            node.server.shared.leases.insert(holder, held);
        }
        let slack = Some(granted.slack);
        let grant = Grant { name, holder, token, ttl: Some(ttl), counted_from: granted.counted_from, slack };
        let tenure = Tenure::new(terms, granted);
        Self {
            candidate,
            grant,
            terms,
            tenure,
            exchange,
            is_lost: false,
            revocations: Mutex::new(revocations),
        }
    }
}

impl Drop for RedlockClaim {
    fn drop(&mut self) {
        for node in self.candidate.nodes.all() {
            node.server.shared.leases.remove(self.grant.holder);
        }
    }
}

/// Asks a node on behalf of a holder: renewals go together with those of others.
async fn ask(candidate: Arc<Candidate>, ttl: Duration, node: usize, request: Request) -> Option<Reply> {
    if request != Request::Renew {
        return candidate.ask(node, request).await;
    }
    match candidate.nodes.all()[node].server.renew(candidate.holder, ttl).await {
        Ok(_) => Some(Reply::Renewed),
        Err(error) if error.kind() == ErrorKind::Lost => Some(Reply::Lost),
        Err(_) => None,
    }
}

#[async_trait]
impl Claim for RedlockClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        if self.is_lost {
            return Err(lost());
        }
        let (candidate, ttl, tenure) = (&self.candidate, self.terms.ttl(), &mut self.tenure);
        let step = |now, event| tenure.step(now, event);
        let asking = |node, request| ask(Arc::clone(candidate), ttl, node, request);
        match self.exchange.drive(Event::Began, step, asking).await {
            Verdict::Renewed { counted_from } => Ok(Renewal { ttl: Some(ttl), counted_from }),
            Verdict::Unconfirmed => {
                let what =
                    format!("fewer than {} of the nodes have confirmed it", self.terms.quorum().majority());
                Err(Error::new(ErrorKind::Unavailable, "renew the lease", what))
            }
            Verdict::Lost(_) => {
                self.is_lost = true;
                Err(lost())
            }
        }
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        let revocations = std::mem::take(&mut *lock(&self.revocations));
        let mut told: FuturesUnordered<_> = revocations.into_iter().collect();
        Box::pin(async move {
            while let Some(word) = told.next().await {
                // What one node alone has lost is no loss; that somebody took the lease away is, whichever node says so.
                if let Ok(error) = word
                    && error.loss_reason() == Some(LossReason::Revoked)
                {
                    return error;
                }
            }
            pending().await
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
        release(&self.candidate, self.terms, self.grant.token).await
    }
}

fn lost() -> Error {
    Error::lost(LossReason::Expired, "a majority of the nodes does not know it any more")
}

/// Gives a lease back on all nodes. Waits for a majority and a little longer; the rest is asked in the background.
///
/// # Errors
/// `Lost` when so many nodes did not know it any more that no majority can have.
pub(super) async fn release(candidate: &Arc<Candidate>, terms: Terms, token: FencingToken) -> Result<()> {
    let (quorum, clock) = (terms.quorum(), candidate.nodes.clock());
    let (said, mut heard) = mpsc::unbounded();
    let leaving = leave_all(candidate, terms, Going::Releases(token), Some(said)).boxed();
    let (mut freed, mut strange, mut give_up_at) = (0, 0, None);
    let mut leaving = Some(leaving);
    loop {
        let rest = leaving.as_mut().map_or_else(|| pending().boxed(), |rest| rest.boxed());
        match until(clock, give_up_at, race(heard.next(), rest)).await {
            Some(Raced::First(Some(true))) => freed += 1,
            Some(Raced::First(Some(false))) => strange += 1,
            // What it has still said is read next, up to the end.
            Some(Raced::Second(())) => leaving = None,
            Some(Raced::First(None)) | None => break,
        }
        if freed + strange == quorum.nodes() {
            break;
        }
        if freed >= quorum.majority() || strange > quorum.minority() {
            give_up_at = give_up_at.or_else(|| Some(clock.now().after(STRAGGLERS_MOST)));
        }
    }
    if let Some(rest) = leaving {
        clock.serve(rest);
    }
    if freed >= quorum.majority() {
        return Ok(());
    }
    if strange > quorum.minority() {
        return Err(gone(None).during("release the lock"));
    }
    let what = format!("{freed} of the nodes have freed it, and {} make a majority", quorum.majority());
    Err(Error::new(ErrorKind::Indeterminate, "release the lock", what))
}

/// Has every node forget a candidate, also those that never answered it, until its ttl has passed. `said` is told of each
/// node that answered whether it has freed the lock.
pub(super) fn leave_all(
    candidate: &Arc<Candidate>,
    terms: Terms,
    going: Going,
    said: Option<mpsc::UnboundedSender<bool>>,
) -> impl Future<Output = ()> + Send + use<> {
    let candidate = Arc::clone(candidate);
    async move {
        let mut cancellation = Cancellation::new(terms);
        let mut exchange = Exchange::new(candidate.nodes.clock().clone());
        let step = |now, event| cancellation.step(now, event);
        exchange
            .drive(Event::Began, step, |node, _| {
                let (candidate, said) = (Arc::clone(&candidate), said.clone());
                async move {
                    let has_freed = candidate.leave(node, going).await.ok()?;
                    if let Some(said) = said {
                        // Whoever released may not wait for this one.
                        drop(said.unbounded_send(has_freed));
                    }
                    Some(Reply::Done)
                }
            })
            .await;
    }
}
