//! A lease: one live claim as its holder sees it; `keeping` is the task that keeps it, `shared` what both know.
//!
//! Dropping the lease needs no runtime: it closes a channel, and the task gives the claim back. Between renewals the claim
//! is parked where a release can take it without waking the task. Invariant: once `check` has refused, it refuses for
//! ever, but for a lease that was revalidated.

mod keeping;
mod shared;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_util::FutureExt;

use crate::backend::{Claim, Descriptor, Grant, Handover, Renewal};
use crate::clock::Clock;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, LossReason, Result};
use crate::event::Observer;
use crate::fence::Stamp;
use crate::keeper::Keeper;
use crate::name::LockName;
use crate::profile::{Assured, Expiry, Profile};
use crate::telling::tell_stale;
use crate::token::{FencingToken, HolderId};
use keeping::{Keeping, Order, ToItsEnd, give_back, unknown_release};
use shared::Shared;

/// A held lock.
///
/// It is renewed in the background until it is released, dropped or lost. Call [`check`](Self::check) before each step
/// that must not happen twice, and show the [`stamp`](Self::stamp) to whatever is written to.
///
/// Dropping it gives the lock back in the background; [`release`](Self::release) waits for that and says how it went.
#[derive(Debug)]
#[must_use = "a lease that is dropped is given back"]
pub struct Lease {
    grant: Grant,
    shared: Arc<Shared>,
    descriptors: Vec<Descriptor>,
    handover: Option<Handover>,
    assured: Assured,
    is_detachable: bool,
    /// What tells whoever keeps the logbook that the work is done.
    completion: Option<Arc<AtomicBool>>,
    /// What the task that keeps it is to do; closed, it gives the lease back.
    orders: mpsc::UnboundedSender<Order>,
}

impl Lease {
    /// Starts to keep `claim`, as a store of this profile has granted it.
    pub(crate) fn start(
        claim: Box<dyn Claim>,
        clock: &Clock,
        profile: &Profile,
        grace: Option<Duration>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        let grant = claim.grant().clone();
        let term = Renewal { ttl: grant.ttl, counted_from: grant.counted_from };
        let [.., high, low] = grant.holder.to_bytes();
        // With a session, the store keeps the lock beyond the deadline.
        let (assured, is_kept) = (profile.assured, profile.expiry == Expiry::WithSession);
        let now = clock.now();
        let keeper =
            Keeper::new(now, term, grace, assured).spread(now, u16::from_be_bytes([high, low])).kept(is_kept);
        let lock = grant.name.clone();
        let shared = Arc::new(Shared::new(clock.clone(), lock, observer, keeper.deadline(), is_kept));
        let (orders, ordered) = mpsc::unbounded();
        let keeping = Keeping { keeper, shared: Arc::clone(&shared) };
        let (descriptors, handover) = (claim.descriptors(), claim.handover());
        let gone = claim.lost().fuse();
        shared.park(claim);
        clock.spawn(keeping.run(gone, ordered));
        let is_detachable = profile.detach;
        let completion = None;
        Self { grant, shared, descriptors, handover, assured, is_detachable, completion, orders }
    }

    /// The lease is handed out: from now on observers hear of its end.
    pub(crate) fn begin(&self) {
        self.shared.begin();
    }

    /// Has [`complete`](Self::complete) set `completion`.
    pub(crate) fn completed_by(self, completion: Option<Arc<AtomicBool>>) -> Self {
        Self { completion, ..self }
    }

    /// The lock that is held.
    pub fn lock(&self) -> &LockName {
        &self.grant.name
    }

    /// The fencing token of this grant; it never changes.
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    /// Who holds it: this attempt.
    pub fn holder(&self) -> HolderId {
        self.grant.holder
    }

    /// The length of lease that the store really gave; `None` if it does not run out.
    pub fn ttl(&self) -> Option<Duration> {
        self.grant.ttl
    }

    /// How much of the lease is left for certain right after a renewal: what the time that work takes to stop must fit in. The
    /// whole ttl on most stores.
    pub fn assured(&self) -> Option<Duration> {
        self.grant.ttl.map(|ttl| self.assured.of(ttl))
    }

    /// Of how many nodes of a quorum the loss could be borne when it was granted; `None` where one store decides.
    pub fn slack(&self) -> Option<usize> {
        self.grant.slack
    }

    /// What to show to a fence.
    pub fn stamp(&self) -> Stamp {
        Stamp { lock: self.grant.name.clone(), token: self.grant.token, holder: self.grant.holder.into() }
    }

    /// By when the holder must have finished acting, as far as is known now.
    pub fn deadline(&self) -> Deadline {
        self.shared.deadline()
    }

    /// How long the lease is still believed in; `None` if it does not run out, zero once it is lost.
    pub fn remaining(&self) -> Option<Duration> {
        if self.shared.lost.get().is_some() {
            return Some(Duration::ZERO);
        }
        self.deadline().remaining(self.shared.clock.now())
    }

    /// Whether the lock is still held, as far as this process can know without asking. Reads one clock and sends
    /// nothing, so it can stand before every step.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] once the lease is lost, and ever after; past its deadline, unless it is
    /// [revalidated](Self::revalidate).
    pub fn check(&self) -> Result<()> {
        self.shared.check().map_err(|error| error.on(&self.grant.name))
    }

    /// Heeds what a fence has answered to this lease's stamp: one that was refused is lost from now on, since somebody else
    /// holds the lock. Stop, and read again before you write under a new lease. Every other answer is passed on.
    ///
    /// # Errors
    /// Those of `answer`.
    ///
    /// # Examples
    /// ```
    /// use fencepost_core::{ErrorKind, Fence, Locks, MemoryBackend, MemoryFence};
    ///
    /// # let time = fencepost_core::VirtualTime::new(1);
    /// # let clock = time.clock();
    /// # time.block_on(async {
    /// let (locks, fence) = (Locks::new(MemoryBackend::new(clock)), MemoryFence::default());
    /// let late = locks.lock("orders")?.acquire().await?;
    /// let stamp = late.stamp();
    /// locks.revoke("orders", late.token(), "it does not answer").await?;
    /// let next = locks.lock("orders")?.acquire().await?;
    /// fence.seal(&next.stamp()).await?;
    ///
    /// assert_eq!(late.heed(fence.check(&stamp).await).unwrap_err().kind(), ErrorKind::Stale);
    /// assert_eq!(late.check().unwrap_err().kind(), ErrorKind::Lost);
    /// next.heed(fence.check(&next.stamp()).await)?;
    /// next.check()?;
    /// # Ok::<(), fencepost_core::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn heed<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Stale
        {
            let what = "a fence has refused its token";
            tell_stale(self.shared.observer.as_ref(), &self.grant.name, error);
            self.shared.lose(Error::lost(LossReason::Refused, what).caused_by(error.clone()));
        }
        answer
    }

    /// Asks the store whether an overdue lease is still held, and goes on with it, under the same token, if it is: after a
    /// pause that was longer than the ttl, where the lock ends with a session that the server still keeps. Where the deadline has
    /// not come it asks nothing.
    ///
    /// What was believed meanwhile does not count: nobody else has held the lock, but this holder's own command may have been
    /// stopped at the deadline.
    ///
    /// # Cancel safety
    /// A dropped call changes nothing; the lease stays overdue.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lease is lost, and, at once, where the store may have given the lock to somebody else at
    /// the deadline; any other kind when the store does not answer: the lease stays overdue.
    pub async fn revalidate(&self) -> Result<()> {
        self.shared.revalidate(&self.orders).await.map_err(|error| error.on(&self.grant.name))
    }

    /// Ends when the lease is lost, or overdue, and says why.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing; it can be awaited again and by several.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + use<> {
        let (shared, name) = (Arc::clone(&self.shared), self.grant.name.clone());
        async move { poll_fn(|context| shared.poll_lost(context.waker())).await.on(&name) }
    }

    /// The descriptors that the lock hangs on, for whoever must outlive this process.
    pub fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// What another process needs to give the lease back.
    pub fn handover(&self) -> Option<&Handover> {
        self.handover.as_ref()
    }

    /// Lets go of the lease without giving it back: it runs out after its ttl unless somebody renews it, in whatever process, with
    /// what this returns ([`Locks::renew`](crate::Locks::renew), [`Locks::give_back`](crate::Locks::give_back)).
    ///
    /// # Cancel safety
    /// A dropped call has let go of the lease or given it back.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where a lease ends with the process or the session of its holder, and [`ErrorKind::Lost`] when it is
    /// not held any more; it is given back then.
    pub async fn detach(self) -> Result<Handover> {
        self.check()?;
        let Self { grant, shared, handover, is_detachable, orders, .. } = self;
        let Some(handover) = handover.filter(|_| is_detachable) else {
            let what = "a lease there ends with the process or the session of its holder";
            return Err(Error::new(ErrorKind::Unsupported, "detach the lease", what).on(&grant.name));
        };
        if let Some(claim) = shared.take_parked() {
            drop(orders);
            claim.detach();
            shared.tell_detached();
            return Ok(handover);
        }
        // A renewal is under way.
        let (done, is_done) = oneshot::channel();
        // Without an answer whoever keeps it has ended, and nothing is given back either.
        drop(orders.unbounded_send(Order::Detach(done)));
        let _ = is_done.await;
        Ok(handover)
    }

    /// Gives the lock back like [`release`](Self::release), and says that the work is done: where the lock was to be had
    /// [once per period](crate::Lock::once_per), the period counts as done from now on at the latest.
    ///
    /// # Cancel safety
    /// Dropping the call does not stop the release.
    ///
    /// # Errors
    /// Those of `release`; any of them means that the period may not count as done.
    pub async fn complete(self) -> Result<()> {
        if let Some(completion) = &self.completion {
            completion.store(true, Ordering::Release);
        }
        self.release().await
    }

    /// Gives the lock back, and waits until the store has said so.
    ///
    /// # Cancel safety
    /// Dropping the call does not stop the release.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when it was not held any more, so that what was done under it may have overlapped with
    /// somebody else's work; [`ErrorKind::Indeterminate`] when the store did not answer (the ttl bounds it).
    pub async fn release(self) -> Result<()> {
        let Self { grant, shared, descriptors, orders, .. } = self;
        // The lock stays taken while one of these is open.
        drop(descriptors);
        if let Some(claim) = shared.take_parked() {
            // The task has nothing to keep any more.
            drop(orders);
            let clock = shared.clock.clone();
            let outcome = ToItsEnd::of(Box::pin(give_back(shared, claim)), clock).await;
            return outcome.map_err(|error| error.on(&grant.name));
        }
        // A renewal is under way; the task gives the claim back when it has let go of it.
        let (answer, answered) = oneshot::channel();
        let outcome = match orders.unbounded_send(Order::Release(answer)) {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(unknown_release())),
            Err(_) => Err(unknown_release()),
        };
        outcome.map_err(|error| error.on(&grant.name))
    }
}
