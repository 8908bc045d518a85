//! A lease on a quorum.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    Claim, Descriptor, Error, ErrorKind, FencingToken, Grant, Handover, LossReason, Observer, Raced, Renewal,
    Result, lock, race, until,
};
use futures_channel::{mpsc, oneshot};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::candidate::{Candidate, Going};
use super::exchange::{Exchange, stragglers_most};
use crate::leases::{Held, gone};
use crate::quorum::{Cancellation, Event, Reply, Request, Tenure, Terms, Verdict};

/// How long the nodes beyond a majority are heard out after a renewal, as a part of the ttl; the next renewal asks them anew.
const HEAR_OUT_PART: u32 = 4;

/// A lock that is held on a majority of the nodes. Dropped without a release it stays taken until its ttl has run out.
pub(super) struct RedlockClaim {
    candidate: Arc<Candidate>,
    grant: Grant,
    terms: Terms,
    tenure: Tenure,
    is_lost: bool,
    /// What a node has said who knows that the lease was taken away.
    taken_away: Arc<Mutex<Option<Error>>>,
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
        tenure: Tenure,
        observer: Option<&Arc<dyn Observer>>,
    ) -> Self {
        candidate.hold();
        let (name, holder) = (candidate.name.clone(), candidate.holder);
        let (token, ttl, counted_from) = (tenure.token(), terms.ttl(), tenure.counted_from());
        let mut revocations = Vec::new();
        for node in candidate.nodes.all() {
            let (lost, revoked) = oneshot::channel();
            revocations.push(revoked);
            let observer = observer.cloned();
            let key = candidate.key.clone();
            let held = Held { name: name.clone(), key, token, ttl, observer, lost: Some(lost) };
            node.server.shared.leases.insert(holder, held);
        }
        let slack = Some(tenure.slack());
        let grant = Grant { name, holder, token, ttl: Some(ttl), counted_from, slack };
        let (taken_away, revocations) = (Arc::default(), Mutex::new(revocations));
        Self { candidate, grant, terms, tenure, is_lost: false, taken_away, revocations }
    }

    /// How nodes are asked on behalf of this claim.
    fn asking(&self) -> impl Fn(usize, Request) -> BoxFuture<'static, Option<Reply>> + Send + use<> {
        let (candidate, ttl) = (Arc::clone(&self.candidate), self.terms.ttl());
        let taken_away = Arc::clone(&self.taken_away);
        move |node, request| {
            let (candidate, taken_away) = (Arc::clone(&candidate), Arc::clone(&taken_away));
            ask(candidate, taken_away, ttl, node, request).boxed()
        }
    }

    /// Hears out the nodes that have not answered a round which has succeeded without them. Those that do not have the lock
    /// are filled in, for which they are asked twice more.
    fn hear_out(&self, mut exchange: Exchange) {
        let (mut tenure, asking) = (self.tenure.clone(), self.asking());
        let (most, all) = (self.terms.ttl() / HEAR_OUT_PART, self.terms.quorum().nodes());
        self.candidate.nodes.clock().serve(async move {
            exchange.linger(most, all, &mut tenure, asking).await;
        });
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
async fn ask(
    candidate: Arc<Candidate>,
    taken_away: Arc<Mutex<Option<Error>>>,
    ttl: Duration,
    node: usize,
    request: Request,
) -> Option<Reply> {
    if request != Request::Renew {
        return candidate.ask(node, request).await;
    }
    // Also that it is still another server than the other nodes.
    candidate.nodes.session(node).await.ok()?;
    match candidate.nodes.all()[node].server.renew(candidate.holder, ttl).await {
        Ok(_) => Some(Reply::Renewed),
        Err(error) if error.loss_reason() == Some(LossReason::Revoked) => {
            *lock(&taken_away) = Some(error);
            Some(Reply::Cancelled)
        }
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
        let (mut exchange, asking) = (Exchange::new(self.candidate.nodes.clock().clone()), self.asking());
        let tenure = &mut self.tenure;
        let verdict = exchange.drive(Event::Began, |now, event| tenure.step(now, event), asking).await;
        // Whichever node says so: whoever took it away was told that it is done.
        if let Some(error) = lock(&self.taken_away).clone() {
            self.is_lost = true;
            return Err(error);
        }
        match verdict {
            Verdict::Renewed { counted_from } => {
                self.hear_out(exchange);
                Ok(Renewal { ttl: Some(self.terms.ttl()), counted_from })
            }
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

    fn detach(self: Box<Self>) {}

    async fn release(self: Box<Self>) -> Result<()> {
        release(&self.candidate, self.terms, self.grant.token).await
    }
}

fn lost() -> Error {
    Error::lost(LossReason::Expired, "a majority of the nodes does not know it any more")
}

/// Gives a lease back on all nodes. Waits for a majority and a little longer; the rest is asked in the background.
///
/// # Cancel safety
/// A dropped call may or may not have given it back; nodes that were not asked keep it until its ttl is over.
///
/// # Errors
/// `Lost` when so many nodes did not know it any more that no majority can have.
pub(super) async fn release(candidate: &Arc<Candidate>, terms: Terms, token: FencingToken) -> Result<()> {
    let (quorum, clock) = (terms.quorum(), candidate.nodes.clock());
    let (said, mut heard) = mpsc::unbounded();
    let mut leaving = leave_all(candidate, terms, Going::Releases(token), Some(said)).boxed();
    // It is sent now wherever it can be; what is sent next comes after it.
    let is_over = (&mut leaving).now_or_never().is_some();
    let mut leaving = Some(leaving).filter(|_| !is_over);
    for node in candidate.nodes.all() {
        node.server.hand_on(&candidate.key);
    }
    let (mut freed, mut strange, mut give_up_at) = (0, 0, None);
    let began = clock.now();
    loop {
        let rest = leaving.as_mut().map_or_else(|| pending().boxed(), |rest| rest.boxed());
        match until(clock, give_up_at, race(heard.next(), rest)).await {
            Some(Raced::First(Some(true))) => freed += 1,
            Some(Raced::First(Some(false))) => strange += 1,
            // What it has still said is read next, up to the end.
            Some(Raced::Second(())) => leaving = None,
            Some(Raced::First(None)) | None => break,
        }
        if freed >= quorum.majority() || strange > quorum.minority() {
            // The others are asked again when they can be reached.
            if freed + strange >= candidate.nodes.promising() {
                break;
            }
            let now = clock.now();
            give_up_at = give_up_at.or_else(|| Some(now.after(stragglers_most(now.since(began)))));
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
