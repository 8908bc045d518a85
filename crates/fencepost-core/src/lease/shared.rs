//! What the holder of a lease and the task that keeps it share: until when it is believed in, whether it is lost, and the claim
//! while nobody does anything with it.
//!
//! Invariant: whoever waits for the loss has left its waker before it looked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_channel::{mpsc, oneshot};

use super::keeping::{Order, Taken};
use crate::backend::Claim;
use crate::clock::{Clock, Moment, lock};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{self, Observer};
use crate::keeper::{Event, passed_deadline};
use crate::name::LockName;
use crate::poll::until;
use crate::telling::tell;

/// How long the store may take to say whether an overdue lease is still its holder's.
const REVALIDATE_MOST: Duration = Duration::from_secs(10);

/// What the holder and the keeping task share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) lock: LockName,
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// When the lease was handed out, where somebody observes it.
    begun_at: OnceLock<Moment>,
    /// Nanoseconds; `u64::MAX` where the lease does not run out.
    deadline: AtomicU64,
    pub(super) lost: OnceLock<Error>,
    listeners: Mutex<Vec<Waker>>,
    /// The claim, while nobody does anything with it.
    parked: Mutex<Option<Box<dyn Claim>>>,
    /// Whether the store keeps the lock beyond the deadline.
    is_kept: bool,
    /// Whether the deadline was seen to have passed, and nobody has revalidated the lease since.
    was_overdue: AtomicBool,
}

impl Shared {
    pub(super) fn new(
        clock: Clock,
        lock: LockName,
        observer: Option<Arc<dyn Observer>>,
        deadline: Deadline,
        is_kept: bool,
    ) -> Self {
        let shared = Self {
            clock,
            lock,
            observer,
            begun_at: OnceLock::new(),
            deadline: AtomicU64::new(0),
            lost: OnceLock::new(),
            listeners: Mutex::default(),
            parked: Mutex::default(),
            is_kept,
            was_overdue: AtomicBool::new(false),
        };
        shared.set_deadline(deadline);
        shared
    }

    pub(super) fn begin(&self) {
        self.begun_at.get_or_init(|| self.clock.now());
    }

    /// How long the lease was held; `None` where it never was handed out, or nobody observes it.
    fn held(&self) -> Option<Duration> {
        self.begun_at.get().map(|begun_at| self.clock.now().since(*begun_at))
    }

    pub(super) fn tell_released(&self, outcome: &Result<()>) {
        if let Some(held) = self.held() {
            let released = || event::Event::Released { held, error: outcome.as_ref().err().cloned() };
            tell(self.observer.as_ref(), &self.lock, released);
        }
    }

    pub(super) fn tell_detached(&self) {
        if let Some(held) = self.held() {
            tell(self.observer.as_ref(), &self.lock, || event::Event::Detached { held });
        }
    }

    pub(super) fn park(&self, claim: Box<dyn Claim>) {
        *lock(&self.parked) = Some(claim);
    }

    pub(super) fn take_parked(&self) -> Option<Box<dyn Claim>> {
        lock(&self.parked).take()
    }

    pub(super) fn set_deadline(&self, deadline: Deadline) {
        let nanos = deadline.moment().map_or(u64::MAX, Moment::as_nanos);
        self.deadline.store(nanos, Ordering::Release);
    }

    pub(super) fn deadline(&self) -> Deadline {
        match self.deadline.load(Ordering::Acquire) {
            u64::MAX => Deadline::NEVER,
            nanos => Deadline::at(Moment::from_nanos(nanos)),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
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
        if !self.is_kept {
            return None;
        }
        // Once seen it stays so, also where a renewal that nobody asked for was acknowledged in that moment.
        if self.deadline().passed(self.clock.now()) {
            self.was_overdue.store(true, Ordering::Release);
        }
        self.was_overdue.load(Ordering::Acquire).then(passed_deadline)
    }

    /// The holder has asked, and the store has said that the lease is still its own.
    pub(super) fn note_revalidation(&self) {
        self.was_overdue.store(false, Ordering::Release);
    }

    pub(super) async fn revalidate(&self, orders: &mpsc::UnboundedSender<Order>) -> Result<()> {
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
        if orders.unbounded_send(Order::Note(Box::new(event), sender)).is_ok() {
            // If not, whoever keeps it has ended, and it is lost.
            let _ = is_noted.await;
        }
        self.check()
    }

    pub(super) fn lose(&self, error: Error) -> Error {
        let mut is_news = false;
        let lost = self.lost.get_or_init(|| {
            is_news = true;
            error
        });
        self.call_listeners();
        if is_news {
            tell(self.observer.as_ref(), &self.lock, || event::Event::Lost { error: lost.clone() });
        }
        lost.clone()
    }

    pub(super) fn call_listeners(&self) {
        for listener in lock(&self.listeners).drain(..) {
            listener.wake();
        }
    }

    pub(super) fn poll_lost(&self, waker: &Waker) -> Poll<Error> {
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
