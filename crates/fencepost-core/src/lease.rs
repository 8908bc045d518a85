//! A lease: one live claim as its holder sees it, and the task that keeps it.
//!
//! Dropping the lease needs no runtime: it closes a channel, and the task gives the claim back. Between renewals the claim
//! is parked where a release can take it without waking the task. Invariant: once `check` has refused, it refuses for
//! ever, but for a lease that was revalidated.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};

use crate::backend::{Claim, Descriptor, Grant, Handover, Renewal};
use crate::clock::{Clock, Moment, lock};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, LossReason, Result};
use crate::event::{self, Observer};
use crate::fence::Stamp;
use crate::keeper::{Action, Event, Keeper, passed_deadline};
use crate::name::LockName;
use crate::poll::{Raced, race, until};
use crate::token::{FencingToken, HolderId};

/// How long a release of a lease that does not run out may take before the holder is told that it is not known.
const RELEASE_MOST: Duration = Duration::from_secs(10);

/// How long a release is tried at least, also when the deadline is near or past.
const RELEASE_LEAST: Duration = Duration::from_millis(500);

/// How long the store may take to say whether an overdue lease is still its holder's.
const REVALIDATE_MOST: Duration = Duration::from_secs(10);

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
    release: oneshot::Sender<oneshot::Sender<Result<()>>>,
    revalidate: mpsc::UnboundedSender<Revalidation>,
}

/// What a store said of an overdue lease, and who wants to know that it is noted.
type Revalidation = (Event, oneshot::Sender<()>);

impl Lease {
    /// Starts to keep `claim`, whose release may be needed until the lease is gone. `is_kept` says that the store keeps the lock
    /// beyond the deadline.
    pub(crate) fn start(
        claim: Box<dyn Claim>,
        clock: &Clock,
        is_kept: bool,
        grace: Option<Duration>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        let grant = claim.grant().clone();
        let term = Renewal { ttl: grant.ttl, counted_from: grant.counted_from };
        let [.., high, low] = grant.holder.to_bytes();
        let keeper =
            Keeper::new(clock.now(), term, grace).spread(u16::from_be_bytes([high, low])).kept(is_kept);
        let shared = Arc::new(Shared::new(clock.clone(), keeper.deadline(), is_kept));
        let (release, released) = oneshot::channel();
        let (revalidate, revalidated) = mpsc::unbounded();
        let keeping = Keeping { keeper, shared: Arc::clone(&shared), lock: grant.name.clone(), observer };
        let (descriptors, handover) = (claim.descriptors(), claim.handover());
        let gone = claim.lost();
        shared.park(claim);
        clock.spawn(keeping.run(gone, released, revalidated));
        Self { grant, shared, descriptors, handover, release, revalidate }
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
        self.shared.revalidate(&self.revalidate).await.map_err(|error| error.on(&self.grant.name))
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

    /// Gives the lock back, and waits until the store has said so.
    ///
    /// # Cancel safety
    /// Dropping the call does not stop the release.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when it was not held any more, so that what was done under it may have overlapped with
    /// somebody else's work; [`ErrorKind::Indeterminate`] when the store did not answer (the ttl bounds it).
    pub async fn release(self) -> Result<()> {
        let Self { grant, shared, descriptors, release, .. } = self;
        // The lock stays taken while one of these is open.
        drop(descriptors);
        if let Some(claim) = shared.take_parked() {
            // The task has nothing to keep any more.
            drop(release);
            let clock = shared.clock.clone();
            let outcome = ToItsEnd::of(Box::pin(give_back(shared, claim)), clock).await;
            return outcome.map_err(|error| error.on(&grant.name));
        }
        // A renewal is under way; the task gives the claim back when it has let go of it.
        let (answer, answered) = oneshot::channel();
        let outcome = match release.send(answer) {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(unknown_release())),
            Err(_) => Err(unknown_release()),
        };
        outcome.map_err(|error| error.on(&grant.name))
    }
}

fn unknown_release() -> Error {
    Error::new(ErrorKind::Indeterminate, "release the lock", "the store did not answer in time")
}

/// What the holder and the keeping task share.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    /// Nanoseconds; `u64::MAX` where the lease does not run out.
    deadline: AtomicU64,
    lost: OnceLock<Error>,
    listeners: Mutex<Vec<Waker>>,
    /// The claim, while nobody does anything with it.
    parked: Mutex<Option<Box<dyn Claim>>>,
    /// Whether the store keeps the lock beyond the deadline.
    is_kept: bool,
}

impl Shared {
    fn new(clock: Clock, deadline: Deadline, is_kept: bool) -> Self {
        let shared = Self {
            clock,
            deadline: AtomicU64::new(0),
            lost: OnceLock::new(),
            listeners: Mutex::default(),
            parked: Mutex::default(),
            is_kept,
        };
        shared.set_deadline(deadline);
        shared
    }

    fn park(&self, claim: Box<dyn Claim>) {
        *lock(&self.parked) = Some(claim);
    }

    fn take_parked(&self) -> Option<Box<dyn Claim>> {
        lock(&self.parked).take()
    }

    fn set_deadline(&self, deadline: Deadline) {
        let nanos = deadline.moment().map_or(u64::MAX, Moment::as_nanos);
        self.deadline.store(nanos, Ordering::Release);
    }

    fn deadline(&self) -> Deadline {
        match self.deadline.load(Ordering::Acquire) {
            u64::MAX => Deadline::NEVER,
            nanos => Deadline::at(Moment::from_nanos(nanos)),
        }
    }

    fn check(&self) -> Result<()> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        // The keeping task may be late or stopped; the deadline holds all the same, and for good.
        match self.overdue() {
            Some(error) => Err(error),
            None if self.deadline().passed(self.clock.now()) => Err(self.lose(passed_deadline())),
            None => Ok(()),
        }
    }

    /// Why a lease is not to be believed in that the store may still keep.
    fn overdue(&self) -> Option<Error> {
        (self.is_kept && self.deadline().passed(self.clock.now())).then(passed_deadline)
    }

    async fn revalidate(&self, noted: &mpsc::UnboundedSender<Revalidation>) -> Result<()> {
        if self.lost.get().is_some() || self.overdue().is_none() {
            return self.check();
        }
        let give_up_at = Some(self.clock.now().after(REVALIDATE_MOST));
        let unanswered =
            || Error::new(ErrorKind::Unavailable, "revalidate the lease", "the store did not answer in time");
        let event = {
            let busy = || {
                Error::new(ErrorKind::Unavailable, "revalidate the lease", "the store is being asked already")
            };
            let mut taken = Taken { claim: Some(self.take_parked().ok_or_else(busy)?), shared: self };
            let Some(claim) = taken.claim.as_mut() else { return Err(busy()) };
            match until(&self.clock, give_up_at, claim.renew()).await {
                Some(Ok(term)) => Event::Revalidated(term),
                Some(Err(error)) if error.kind() == ErrorKind::Lost => Event::Failed(error),
                Some(Err(error)) => return Err(error.during("revalidate the lease")),
                None => return Err(unanswered()),
            }
        };
        let (sender, is_noted) = oneshot::channel();
        if noted.unbounded_send((event, sender)).is_ok() {
            // If not, whoever keeps it has ended, and it is lost.
            let _ = is_noted.await;
        }
        self.check()
    }

    fn lose(&self, error: Error) -> Error {
        let error = self.lost.get_or_init(|| error).clone();
        self.call_listeners();
        error
    }

    fn call_listeners(&self) {
        for listener in lock(&self.listeners).drain(..) {
            listener.wake();
        }
    }

    fn poll_lost(&self, waker: &Waker) -> Poll<Error> {
        let mut listeners = lock(&self.listeners);
        if let Some(error) = self.lost.get().cloned().or_else(|| self.overdue()) {
            return Poll::Ready(error);
        }
        if !listeners.iter().any(|listener| listener.will_wake(waker)) {
            listeners.push(waker.clone());
        }
        Poll::Pending
    }
}

/// The task that keeps one lease. If a bug ends it, nobody believes in the lease afterwards.
struct Keeping {
    keeper: Keeper,
    shared: Arc<Shared>,
    lock: LockName,
    observer: Option<Arc<dyn Observer>>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.lose(Error::lost(LossReason::KeeperDied, "it is not kept any more"));
        }
    }
}

type Released = oneshot::Receiver<oneshot::Sender<Result<()>>>;

impl Keeping {
    async fn run(
        mut self,
        gone: BoxFuture<'static, Error>,
        released: Released,
        revalidated: mpsc::UnboundedReceiver<Revalidation>,
    ) {
        let mut gone = gone.fuse();
        let mut released = released.fuse();
        // At the end of it the lease is dropped, and released.
        let mut revalidated = revalidated.chain(futures_util::stream::pending());
        let mut event = Event::Woke;
        let mut noted = None;
        let answer = loop {
            let action = self.keeper.step(self.shared.clock.now(), event.clone());
            self.shared.set_deadline(self.keeper.deadline());
            self.tell(&event, &action);
            // Whoever asked may have gone.
            let _ = noted.take().map(|noted: oneshot::Sender<()>| noted.send(()));
            let next = carry_out(Arc::clone(&self.shared), action);
            let news = race(&mut gone, revalidated.next());
            // A lost claim is kept until the holder lets go of it: its work may not have stopped yet.
            event = match race(&mut released, race(news, next)).await {
                Raced::First(answer) => break answer.ok(),
                Raced::Second(Raced::First(Raced::First(error))) => Event::Gone(error),
                Raced::Second(Raced::First(Raced::Second(told))) => {
                    let (event, sender) = told.unzip();
                    noted = sender;
                    event.unwrap_or(Event::Woke)
                }
                Raced::Second(Raced::Second(outcome)) => outcome,
            };
        };
        // Nothing is parked any more where the release has taken it.
        let Some(claim) = self.shared.take_parked() else { return };
        let outcome = give_back(Arc::clone(&self.shared), claim).await;
        if let Some(answer) = answer {
            // Whoever dropped the call to release does not want to know.
            drop(answer.send(outcome));
        }
    }

    /// Makes known what has happened, after the deadline has moved.
    fn tell(&self, event: &Event, action: &Action) {
        match (action, event) {
            (Action::Lose(error), _) => {
                let error = self.shared.lose(error.clone());
                self.observe(&event::Event::Lost { error });
            }
            (Action::Overdue(error), _) => {
                self.shared.call_listeners();
                self.observe(&event::Event::Lost { error: error.clone() });
            }
            (_, Event::Renewed(_) | Event::Revalidated(_)) => {
                self.observe(&event::Event::Renewed { deadline: self.keeper.deadline() });
            }
            (_, Event::Failed(error)) => self.observe(&event::Event::RenewFailed { error: error.clone() }),
            _ => {}
        }
    }

    fn observe(&self, event: &event::Event) {
        if let Some(observer) = &self.observer {
            observer.observe(&self.lock, event);
        }
    }
}

async fn carry_out(shared: Arc<Shared>, action: Action) -> Event {
    match action {
        Action::Wait(Some(at)) => shared.clock.sleep_until(at).await,
        Action::Wait(None) | Action::Overdue(_) | Action::Lose(_) => std::future::pending().await,
        Action::Renew(give_up_at) => return renew(&shared, give_up_at).await,
    }
    Event::Woke
}

async fn renew(shared: &Shared, give_up_at: Moment) -> Event {
    let Some(claim) = shared.take_parked() else { return std::future::pending().await };
    let mut taken = Taken { claim: Some(claim), shared };
    let Some(claim) = taken.claim.as_mut() else { return Event::Woke };
    match until(&shared.clock, Some(give_up_at), claim.renew()).await {
        Some(Ok(term)) => Event::Renewed(term),
        Some(Err(error)) => Event::Failed(error),
        None => Event::Woke,
    }
}

/// A claim that is being renewed, and is parked again however that ends.
struct Taken<'a> {
    claim: Option<Box<dyn Claim>>,
    shared: &'a Shared,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.shared.park(claim);
        }
    }
}

/// Releases the claim; a lease that was lost is given back too, so that nothing of it is left behind.
async fn give_back(shared: Arc<Shared>, claim: Box<dyn Claim>) -> Result<()> {
    let clock = &shared.clock;
    let give_up_at = shared.deadline().moment().unwrap_or_else(|| clock.now().after(RELEASE_MOST));
    let give_up_at = give_up_at.max(clock.now().after(RELEASE_LEAST));
    let outcome =
        until(clock, Some(give_up_at), claim.release()).await.unwrap_or_else(|| Err(unknown_release()));
    match shared.lost.get() {
        Some(error) => Err(error.clone()),
        None => outcome,
    }
}

/// A future that is run to its end in the background if its caller drops it.
struct ToItsEnd {
    future: Option<BoxFuture<'static, Result<()>>>,
    clock: Clock,
}

impl ToItsEnd {
    fn of(future: BoxFuture<'static, Result<()>>, clock: Clock) -> Self {
        Self { future: Some(future), clock }
    }
}

impl Future for ToItsEnd {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl Drop for ToItsEnd {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.clock.spawn(future.map(drop));
        }
    }
}
