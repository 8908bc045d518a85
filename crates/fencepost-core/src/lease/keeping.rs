//! The task that keeps one lease: it renews, tells of the loss, and gives the claim back in the end.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};
use futures_util::future::{BoxFuture, Fuse};
use futures_util::{FutureExt, StreamExt};

use super::shared::Shared;
use crate::backend::Claim;
use crate::clock::{Clock, Moment};
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
    pub(super) async fn run(
        mut self,
        mut gone: Fuse<BoxFuture<'static, Error>>,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) {
        let mut event = Event::Woke;
        let mut noted = None;
        let parting = loop {
            let action = self.keeper.step(self.shared.clock.now(), event.clone());
            self.shared.set_deadline(self.keeper.deadline());
            self.tell(&event, &action);
            // Whoever asked may have gone.
            let _ = noted.take().map(|noted: oneshot::Sender<()>| noted.send(()));
            let mut next = pin!(carry_out(Arc::clone(&self.shared), action));
            // A lost claim is kept until the holder lets go of it: its work may not have stopped yet. There may be ten thousand of these
            // tasks: races within races would make each of them several times as large.
            let news = poll_fn(|context| {
                if let Poll::Ready(error) = gone.poll_unpin(context) {
                    return Poll::Ready(News::Gone(error));
                }
                if let Poll::Ready(order) = orders.poll_next_unpin(context) {
                    return Poll::Ready(News::Ordered(order));
                }
                next.as_mut().poll(context).map(News::Done)
            });
            event = match news.await {
                News::Ordered(Some(Order::Note(event, sender))) => {
                    noted = Some(sender);
                    *event
                }
                News::Ordered(parting) => break parting,
                News::Gone(error) => Event::Gone(error),
                News::Done(event) => event,
            };
        };
        // Nothing is parked any more where the release has taken it.
        let Some(claim) = self.shared.take_parked() else { return };
        if let Some(Order::Detach(done)) = parting {
            claim.detach();
            self.shared.tell_detached();
            let _ = done.send(());
            return;
        }
        let outcome = Box::pin(give_back(Arc::clone(&self.shared), claim)).await;
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

async fn carry_out(shared: Arc<Shared>, action: Action) -> Event {
    match action {
        Action::Wait(Some(at)) => shared.clock.sleep_until(at).await,
        Action::Wait(None) | Action::Overdue(_) | Action::Lose(_) => std::future::pending().await,
        Action::Renew(give_up_at) => return Box::pin(renew(&shared, give_up_at)).await,
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
    use crate::backend::Renewal;
    use crate::profile::Assured;

    /// Each of ten thousand leases has one.
    #[test]
    fn task_that_keeps_a_lease_is_small() {
        let clock = Clock::system();
        let term = Renewal { ttl: Some(Duration::from_secs(30)), counted_from: clock.now() };
        let keeper = Keeper::new(clock.now(), term, None, Assured::Whole);
        let shared = Arc::new(Shared::new(clock, "a".parse().unwrap(), None, keeper.deadline(), false));
        let (_holder, orders) = mpsc::unbounded();
        let task = Keeping { keeper, shared }.run(std::future::pending().boxed().fuse(), orders);
        assert!(size_of_val(&task) <= 512, "{} bytes", size_of_val(&task));
    }
}
