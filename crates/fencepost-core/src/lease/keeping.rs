//! The task that keeps one lease: it renews, tells of the loss, and gives the claim back in the end.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_util::future::{BoxFuture, Fuse};
use futures_util::{FutureExt, StreamExt};

use super::shared::Shared;
use crate::backend::Claim;
use crate::clock::{Clock, Moment, Sleep};
use crate::error::{Error, ErrorKind, LossReason, Result};
use crate::event;
use crate::keeper::{Action, Event, Keeper};
use crate::poll::until;

/// How long a release of a lease that does not run out may take before the holder is told that it is not known.
const RELEASE_MOST: Duration = Duration::from_secs(10);

/// How long a release is tried at least, also when the deadline is near or past.
const RELEASE_LEAST: Duration = Duration::from_millis(500);

/// The task that keeps one lease. If a bug ends it, nobody believes in the lease afterwards.
pub(super) struct Keeping {
    pub(super) keeper: Keeper,
    pub(super) shared: Arc<Shared>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.lose(Error::lost(LossReason::KeeperDied, "it is not kept any more"));
        }
    }
}

/// What a holder has the task do, and who waits until that is done. Without a holder, the lease is given back.
#[derive(Debug)]
pub(super) enum Order {
    /// The lease is given back.
    Release(oneshot::Sender<Result<()>>),
    /// The lease stays, and is kept no more.
    Detach(oneshot::Sender<()>),
    /// The holder has asked the store whether the lease is still its own, and this is the answer.
    Note(Box<Event>, oneshot::Sender<()>),
}

/// What a task waits for.
enum News {
    Ordered(Option<Order>),
    Gone(Error),
    Done(Event),
}

impl Keeping {
    /// There may be ten thousand of these tasks. A block has its arguments once, where an async function has them twice, and what is over
    /// when it waits takes no place in it.
    #[expect(clippy::manual_async_fn, reason = "an async function would be half as large again")]
    pub(super) fn run(
        mut self,
        mut gone: Fuse<BoxFuture<'static, Error>>,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let mut news = (Event::Woke, None);
            let parting = loop {
                let mut next = {
                    let (event, noted) = news;
                    let action = self.step(&event, noted);
                    Next::of(&self.shared, &action)
                };
                // A lost claim is kept until the holder lets go of it: its work may not have stopped yet.
                let heard = poll_fn(|context| {
                    if let Poll::Ready(error) = gone.poll_unpin(context) {
                        return Poll::Ready(News::Gone(error));
                    }
                    if let Poll::Ready(order) = orders.poll_next_unpin(context) {
                        return Poll::Ready(News::Ordered(order));
                    }
                    next.poll(context).map(News::Done)
                });
                news = match heard.await {
                    News::Ordered(Some(Order::Note(event, noted))) => (*event, Some(noted)),
                    News::Ordered(parting) => break parting,
                    News::Gone(error) => (Event::Gone(error), None),
                    News::Done(event) => (event, None),
                };
            };
            Box::pin(self.part(parting)).await;
        }
    }

    fn step(&mut self, event: &Event, noted: Option<oneshot::Sender<()>>) -> Action {
        let action = self.keeper.step(self.shared.clock.now(), event.clone());
        self.shared.set_deadline(self.keeper.deadline());
        self.tell(event, &action);
        // Whoever asked may have gone.
        let _ = noted.map(|noted| noted.send(()));
        action
    }

    async fn part(&self, parting: Option<Order>) {
        // Nothing is parked any more where the release has taken it.
        let Some(claim) = self.shared.take_parked() else { return };
        if let Some(Order::Detach(done)) = parting {
            claim.detach();
            self.shared.tell_detached();
            let _ = done.send(());
            return;
        }
        let outcome = give_back(Arc::clone(&self.shared), claim).await;
        if let Some(Order::Release(answer)) = parting {
            // Whoever dropped the call to release does not want to know.
            drop(answer.send(outcome));
        }
    }

    /// Makes known what has happened, after the deadline has moved.
    fn tell(&self, event: &Event, action: &Action) {
        match (action, event) {
            (Action::Lose(error), _) => {
                self.shared.lose(error.clone());
            }
            (Action::Overdue(error), _) => {
                self.shared.call_listeners();
                self.observe(&event::Event::Lost { error: error.clone() });
            }
            (_, Event::Revalidated(_)) => {
                self.shared.note_revalidation();
                self.observe(&event::Event::Renewed { deadline: self.keeper.deadline() });
            }
            (_, Event::Renewed(_)) => {
                self.observe(&event::Event::Renewed { deadline: self.keeper.deadline() });
            }
            (_, Event::Failed(error)) => self.observe(&event::Event::RenewFailed { error: error.clone() }),
            _ => {}
        }
    }

    fn observe(&self, event: &event::Event) {
        if let Some(observer) = &self.shared.observer {
            observer.observe(&self.shared.lock, event);
        }
    }
}

/// What is under way, while a task waits.
enum Next {
    /// What the keeper waits for, if anything.
    Moment(Option<Sleep>),
    Renewal(BoxFuture<'static, Event>),
}

impl Next {
    fn of(shared: &Arc<Shared>, action: &Action) -> Self {
        match *action {
            Action::Wait(at) => Self::Moment(at.map(|at| shared.clock.sleep_until(at))),
            Action::Overdue(_) | Action::Lose(_) => Self::Moment(None),
            Action::Renew(give_up_at) => {
                let shared = Arc::clone(shared);
                Self::Renewal(Box::pin(async move { renew(&shared, give_up_at).await }))
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        match self {
            Self::Moment(None) => Poll::Pending,
            Self::Moment(Some(sleep)) => sleep.poll_unpin(context).map(|()| Event::Woke),
            Self::Renewal(renewal) => renewal.poll_unpin(context),
        }
    }
}

async fn renew(shared: &Shared, give_up_at: Moment) -> Event {
    let Some(claim) = shared.take_parked() else {
        // The holder is asking the store itself, and may get no answer.
        shared.clock.sleep_until(give_up_at).await;
        return Event::Woke;
    };
    let mut taken = Taken { claim: Some(claim), shared };
    let Some(claim) = taken.claim.as_mut() else { return Event::Woke };
    match until(&shared.clock, Some(give_up_at), claim.renew()).await {
        Some(Ok(term)) => Event::Renewed(term),
        Some(Err(error)) => Event::Failed(error),
        None => Event::Woke,
    }
}

/// A claim that is being renewed, and is parked again however that ends.
pub(super) struct Taken<'a> {
    pub(super) claim: Option<Box<dyn Claim>>,
    pub(super) shared: &'a Shared,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.shared.park(claim);
        }
    }
}

/// Releases the claim; a lease that was lost is given back too, so that nothing of it is left behind.
pub(super) async fn give_back(shared: Arc<Shared>, claim: Box<dyn Claim>) -> Result<()> {
    let clock = &shared.clock;
    let give_up_at = shared.deadline().moment().unwrap_or_else(|| clock.now().after(RELEASE_MOST));
    let give_up_at = give_up_at.max(clock.now().after(RELEASE_LEAST));
    let outcome =
        until(clock, Some(give_up_at), claim.release()).await.unwrap_or_else(|| Err(unknown_release()));
    let outcome = match shared.lost.get() {
        Some(error) => Err(error.clone()),
        None => outcome,
    };
    shared.tell_released(&outcome);
    outcome
}

/// A future that is run to its end in the background if its caller drops it.
pub(super) struct ToItsEnd {
    future: Option<BoxFuture<'static, Result<()>>>,
    clock: Clock,
}

impl ToItsEnd {
    pub(super) fn of(future: BoxFuture<'static, Result<()>>, clock: Clock) -> Self {
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

pub(super) fn unknown_release() -> Error {
    Error::new(ErrorKind::Indeterminate, "release the lock", "the store did not answer in time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Descriptor, Grant, Handover, Renewal};
    use crate::clock::{VirtualTime, lock};
    use crate::deadline::Deadline;
    use crate::lease::Lease;
    use crate::memory::PROFILE;
    use crate::profile::{Assured, Profile};
    use crate::token::HolderId;
    use async_trait::async_trait;
    use std::sync::Mutex;

    const TTL: Duration = Duration::from_secs(1);

    /// How long the store takes for everything.
    const SLOW: Duration = Duration::from_millis(30);

    #[derive(Debug)]
    struct SlowClaim {
        clock: Clock,
        grant: Grant,
        gone_at: Option<Moment>,
        done: Arc<Mutex<Vec<&'static str>>>,
    }

    impl SlowClaim {
        fn note(&self, what: &'static str) {
            lock(&self.done).push(what);
        }
    }

    #[async_trait]
    impl Claim for SlowClaim {
        fn grant(&self) -> &Grant {
            &self.grant
        }

        async fn renew(&mut self) -> Result<Renewal> {
            self.note("renews");
            let counted_from = self.clock.now();
            self.clock.sleep(SLOW).await;
            Ok(Renewal { ttl: Some(TTL), counted_from })
        }

        fn lost(&self) -> BoxFuture<'static, Error> {
            let Some(at) = self.gone_at else { return std::future::pending().boxed() };
            let gone = || Error::lost(LossReason::Revoked, "it was taken away");
            self.clock.sleep_until(at).map(move |()| gone()).boxed()
        }

        fn descriptors(&self) -> Vec<Descriptor> {
            Vec::new()
        }

        fn handover(&self) -> Option<Handover> {
            let Grant { name, holder, token, .. } = self.grant.clone();
            Some(Handover { lock: name, holder, token, detail: None })
        }

        fn detach(self: Box<Self>) {
            self.note("detached");
        }

        async fn release(self: Box<Self>) -> Result<()> {
            self.clock.sleep(SLOW).await;
            self.note("released");
            Ok(())
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Way {
        Released,
        /// And nobody waits for it.
        ReleaseDropped,
        Dropped,
        Detached,
    }

    /// Lets go of a lease `after` a while; what the holder is told, and what was done to its claim. The store takes it away `gone_after`.
    fn let_go(way: Way, after: Duration, gone_after: Option<Duration>) -> (Result<()>, Vec<&'static str>) {
        let time = VirtualTime::new(1);
        let clock = time.clock();
        let done = Arc::<Mutex<Vec<_>>>::default();
        let told = time.block_on(async {
            let now = clock.now();
            let (holder, token) = (HolderId::draw(&clock), 1.try_into().unwrap());
            let (name, ttl) = ("a".parse().unwrap(), Some(TTL));
            let grant = Grant { name, holder, token, ttl, counted_from: now, slack: None };
            let gone_at = gone_after.map(|after| now.after(after));
            let claim = SlowClaim { clock: clock.clone(), grant, gone_at, done: Arc::clone(&done) };
            let profile = Profile { detach: true, ..PROFILE };
            let lease = Lease::start(Box::new(claim), &clock, &profile, None, None);
            clock.sleep(after).await;
            let told = match way {
                Way::Released => lease.release().await,
                Way::ReleaseDropped => lease.release().now_or_never().unwrap_or(Ok(())),
                Way::Dropped => {
                    drop(lease);
                    Ok(())
                }
                Way::Detached => lease.detach().await.map(drop),
            };
            clock.settled().await;
            told
        });
        let done = lock(&done).clone();
        (told, done)
    }

    /// While a renewal is under way, just before, and just after.
    #[test]
    fn lease_is_let_go_of_once_at_whatever_instant() {
        let (mut renewals, mut instants) = (0, 0);
        for ms in (0..700).step_by(3) {
            for way in [Way::Released, Way::ReleaseDropped, Way::Dropped, Way::Detached] {
                let (told, mut done) = let_go(way, Duration::from_millis(ms), None);
                let last = if way == Way::Detached { "detached" } else { "released" };
                assert!(told.is_ok(), "{way:?} after {ms} ms: {told:?}");
                assert_eq!(done.pop(), Some(last), "{way:?} after {ms} ms");
                assert!(done.iter().all(|what| *what == "renews"), "{way:?} after {ms} ms: {done:?}");
                renewals += done.len();
                instants += 1;
            }
        }
        assert!(renewals > instants, "it was renewed meanwhile");
    }

    #[test]
    fn lease_that_was_taken_away_is_given_back_all_the_same_and_its_holder_told() {
        let gone_after = Duration::from_millis(301);
        for ms in (0..600).step_by(3) {
            for way in [Way::Released, Way::ReleaseDropped, Way::Dropped, Way::Detached] {
                let after = Duration::from_millis(ms);
                let (told, mut done) = let_go(way, after, Some(gone_after));
                // One that is detached before is nobody's affair here.
                let last = if way == Way::Detached && after < gone_after { "detached" } else { "released" };
                assert_eq!(done.pop(), Some(last), "{way:?} after {ms} ms");
                assert!(done.iter().all(|what| *what == "renews"), "{way:?} after {ms} ms: {done:?}");
                let is_told = matches!(way, Way::Released | Way::Detached);
                if is_told && after > gone_after {
                    assert_eq!(told.unwrap_err().kind(), ErrorKind::Lost, "{way:?} after {ms} ms");
                }
            }
        }
    }

    #[test]
    fn renewal_while_the_holder_asks_the_store_itself_is_tried_again() {
        let time = VirtualTime::new(1);
        let clock = time.clock();
        let shared = Shared::new(clock.clone(), "a".parse().unwrap(), None, Deadline::NEVER, true);
        let (most, end) = (clock.now().after(SLOW), clock.now().after(TTL));
        let event = time.block_on(until(&clock, Some(end), renew(&shared, most)));
        assert!(matches!(event, Some(Event::Woke)), "{event:?}");
    }

    /// Each of ten thousand leases has one.
    #[test]
    fn task_that_keeps_a_lease_is_small() {
        let clock = Clock::system();
        let term = Renewal { ttl: Some(Duration::from_secs(30)), counted_from: clock.now() };
        let keeper = Keeper::new(clock.now(), term, None, Assured::Whole);
        let shared = Arc::new(Shared::new(clock, "a".parse().unwrap(), None, keeper.deadline(), false));
        let (_holder, orders) = mpsc::unbounded();
        let task = Keeping { keeper, shared }.run(std::future::pending().boxed().fuse(), orders);
        assert!(size_of_val(&task) <= 256, "{} bytes", size_of_val(&task));
    }
}
