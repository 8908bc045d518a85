//! The backend in this process's memory: the reference for what every other backend must do.
//!
//! Its leases run out, its waiters queue in order, and in virtual time all of it is repeatable. It is meant for tests
//! and for the documentation's examples; it locks nothing outside this process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_channel::mpsc;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt};

use crate::backend::{
    AcquireRequest, Backend, Claim, Descriptor, Grant, Handover, LockState, Mode, Reader, Renewal, Revoked,
    Status, Waiter,
};
use crate::clock::{Clock, Moment, lock};
use crate::error::{Error, ErrorKind, LossReason, Result};
use crate::examine::Examination;
use crate::name::{LockName, NamePrefix};
use crate::profile::{Connections, Expiry, Loss, Profile, Scope, Timing, Waiting};
use crate::token::{FencingToken, HolderId};

/// What the memory backend promises.
pub const PROFILE: Profile = Profile::weakest("memory")
    .expiry(Expiry::AfterTtl)
    .waiting(Waiting::Queued)
    .loss(Loss::Pushed)
    .scope(Scope::Process)
    .timing(Timing::Monotonic)
    .outlives_sessions()
    .revocable()
    .rests()
    .shares()
    .keeps_logbook()
    .longest_ttl(Some(Duration::from_hours(24)))
    .costs(0, 0, Connections::None);

/// Locks in this process's memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryBackend {
    clock: Clock,
    records: Arc<Mutex<BTreeMap<LockName, Record>>>,
    onlookers: Arc<Mutex<Vec<Onlooker>>>,
}

/// Somebody who is told that locks may have changed. A channel of one place joins what is told at once.
#[derive(Debug)]
struct Onlooker {
    prefix: NamePrefix,
    signals: mpsc::Sender<()>,
}

/// All that is known of one lock.
#[derive(Debug, Default)]
struct Record {
    last: Option<FencingToken>,
    /// One who holds it alone, or all who share it.
    held: Vec<Held>,
    logbook: Option<Vec<u8>>,
    rests_until: Option<Moment>,
    /// The token that the lock rests from.
    rests_from: Option<FencingToken>,
    /// Holders whose leases were taken away, and why, until their claims are gone.
    revoked: Vec<(HolderId, String)>,
    queue: VecDeque<Queued>,
}

#[derive(Debug)]
struct Held {
    holder: HolderId,
    label: String,
    mode: Mode,
    token: FencingToken,
    since_micros: u64,
    ends_at: Moment,
    rests_until: Option<Moment>,
    listener: Option<Waker>,
}

#[derive(Debug)]
struct Queued {
    holder: HolderId,
    label: String,
    mode: Mode,
    since_micros: u64,
    waker: Waker,
}

impl MemoryBackend {
    /// A backend without any locks yet, whose leases run out by `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    fn with<T>(&self, name: &LockName, look: impl FnOnce(&mut Record) -> T) -> T {
        look(lock(&self.records).entry(name.clone()).or_default())
    }

    /// The same, where the lock may be another one afterwards.
    fn change<T>(&self, name: &LockName, change: impl FnOnce(&mut Record) -> T) -> T {
        let output = self.with(name, change);
        let mut onlookers = lock(&self.onlookers);
        onlookers.retain(|onlooker| !onlooker.signals.is_closed());
        for onlooker in onlookers.iter_mut().filter(|onlooker| onlooker.prefix.matches(name)) {
            // What is full tells it already.
            let _ = onlooker.signals.try_send(());
        }
        output
    }

    /// One look at the lock for a request: takes it, or says when to look again at the latest.
    fn step(&self, request: &AcquireRequest, waker: &Waker) -> Result<Taken> {
        let now = self.clock.now();
        self.change(&request.name, |record| {
            record.settle(now);
            if record.is_free_for(request) {
                return record.grant(request, now, self.clock.wall_micros()).map(Taken::Granted);
            }
            record.enqueue(request, self.clock.wall_micros(), waker);
            let ends = record.held.iter().map(|held| held.ends_at);
            Ok(Taken::Not(ends.chain(record.rests_until).min()))
        })
    }
}

/// What a look at a lock gave.
enum Taken {
    Granted(Grant),
    /// Not yet; it changes by itself at that moment.
    Not(Option<Moment>),
}

impl Record {
    /// Lets go of what has run out.
    fn settle(&mut self, now: Moment) {
        for held in self.held.extract_if(.., |held| held.ends_at <= now).collect::<Vec<_>>() {
            self.rest(&held);
        }
        self.rests_until.take_if(|until| *until <= now);
    }

    /// Whether `request` may have it: beside those who hold it, and behind nobody whom it would pass by.
    fn is_free_for(&self, request: &AcquireRequest) -> bool {
        let goes_with = |mode: Mode| mode == Mode::Shared && request.mode == Mode::Shared;
        let mut before = self.queue.iter().take_while(|waiter| waiter.holder != request.holder);
        self.rests_until.is_none()
            && self.held.iter().all(|held| goes_with(held.mode))
            && before.all(|waiter| goes_with(waiter.mode))
    }

    fn rest(&mut self, held: &Held) {
        self.rests_until = held.rests_until;
        self.rests_from = Some(held.token);
    }

    fn grant(&mut self, request: &AcquireRequest, now: Moment, since_micros: u64) -> Result<Grant> {
        let token = FencingToken::following(self.last, since_micros)?;
        self.last = Some(token);
        self.queue.retain(|waiter| waiter.holder != request.holder);
        self.held.push(Held {
            holder: request.holder,
            label: request.label.clone(),
            mode: request.mode,
            token,
            since_micros,
            ends_at: now.after(request.ttl),
            rests_until: request.at_least.map(|at_least| now.after(at_least)),
            listener: None,
        });
        let (name, holder) = (request.name.clone(), request.holder);
        Ok(Grant { name, holder, token, ttl: Some(request.ttl), counted_from: now, slack: None })
    }

    fn enqueue(&mut self, request: &AcquireRequest, since_micros: u64, waker: &Waker) {
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| waiter.holder == request.holder) {
            waiter.waker.clone_from(waker);
            return;
        }
        self.queue.push_back(Queued {
            holder: request.holder,
            label: request.label.clone(),
            mode: request.mode,
            since_micros,
            waker: waker.clone(),
        });
    }

    fn dequeue(&mut self, holder: HolderId) {
        self.queue.retain(|waiter| waiter.holder != holder);
        self.wake_all();
    }

    fn wake_all(&self) {
        for waiter in &self.queue {
            waiter.waker.wake_by_ref();
        }
    }

    /// Ends the hold of `holder`; whether it was one.
    fn free(&mut self, holder: HolderId, now: Moment) -> bool {
        self.settle(now);
        let Some(index) = self.held.iter().position(|held| held.holder == holder) else { return false };
        let mut held = self.held.remove(index);
        self.rest(&held);
        self.settle(now);
        if let Some(listener) = held.listener.take() {
            listener.wake();
        }
        self.wake_all();
        true
    }

    /// The next token is one more than the last, and the wall clock may lift it further.
    fn lift(&mut self, to: FencingToken) {
        let last = FencingToken::try_from(to.get() - 1).ok();
        self.last = self.last.max(last);
    }

    fn poll_revoked(&mut self, holder: HolderId, waker: &Waker) -> Poll<Error> {
        if let Some((_, reason)) = self.revoked.iter().find(|(revoked, _)| *revoked == holder) {
            return Poll::Ready(Error::lost(LossReason::Revoked, format!("it was taken away: {reason}")));
        }
        if let Some(held) = self.held.iter_mut().find(|held| held.holder == holder) {
            held.listener = Some(waker.clone());
        }
        Poll::Pending
    }

    fn state(&mut self, name: &LockName, now: Moment) -> LockState {
        self.settle(now);
        let mut state = LockState::free(name.clone());
        state.waiters = self.queue.iter().map(Queued::seen).collect();
        if let Some(until) = self.rests_until {
            state.status = Status::Resting;
            state.token = self.rests_from;
            state.remaining = Some(until.since(now));
        }
        if self.held.iter().any(|held| held.mode == Mode::Shared) {
            state.readers = self.held.iter().map(|held| held.seen(now)).collect();
        }
        if let Some(held) = self.held.first() {
            state.status = Status::Held;
            state.holder = Some(held.holder);
            state.label = Some(held.label.clone());
            state.token = Some(held.token);
            state.since_micros = Some(held.since_micros);
            state.remaining = Some(held.ends_at.since(now));
        }
        state
    }
}

impl Held {
    fn seen(&self, now: Moment) -> Reader {
        Reader {
            holder: self.holder,
            label: Some(self.label.clone()),
            token: self.token,
            since_micros: Some(self.since_micros),
            remaining: Some(self.ends_at.since(now)),
        }
    }
}

impl Queued {
    fn seen(&self) -> Waiter {
        Waiter {
            holder: Some(self.holder),
            label: Some(self.label.clone()),
            since_micros: Some(self.since_micros),
        }
    }
}

impl fmt::Display for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

/// Takes a waiter out of the queue, however its wait ends.
struct Place<'a> {
    backend: &'a MemoryBackend,
    request: &'a AcquireRequest,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.backend.change(&self.request.name, |record| record.dequeue(self.request.holder));
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        let give_up_at = request.wait.give_up_at(self.clock.now());
        let _place = Place { backend: self, request };
        let mut alarm = None;
        let grant = poll_fn(|context| {
            loop {
                let changes_at = match self.step(request, context.waker())? {
                    Taken::Granted(grant) => return Poll::Ready(Ok(grant)),
                    Taken::Not(changes_at) => changes_at,
                };
                if give_up_at.is_some_and(|at| self.clock.now() >= at) {
                    return Poll::Ready(Err(Error::new(
                        ErrorKind::Contended,
                        "acquire the lock",
                        "it is held",
                    )));
                }
                let Some(at) = changes_at.into_iter().chain(give_up_at).min() else { return Poll::Pending };
                let sleep = alarm.insert(self.clock.sleep_until(at));
                if Pin::new(sleep).poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        });
        Ok(Box::new(MemoryClaim { backend: self.clone(), grant: grant.await? }))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        Ok(self.with(name, |record| record.state(name, self.clock.now())))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let now = self.clock.now();
        let mut records = lock(&self.records);
        let matching = records.iter_mut().filter(|(name, _)| prefix.matches(name));
        let states = matching.map(|(name, record)| record.state(name, now));
        Ok(states.filter(|state| state.status != Status::Free).collect())
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        let now = self.clock.now();
        self.change(name, |record| {
            record.settle(now);
            let Some(held) = record.held.iter_mut().find(|held| held.token == token) else {
                return Ok(Revoked::NotCurrent);
            };
            held.rests_until = None;
            let holder = held.holder;
            record.revoked.push((holder, reason.to_owned()));
            record.free(holder, now);
            Ok(Revoked::Done)
        })
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        self.with(name, |record| record.lift(to));
        Ok(())
    }

    async fn renew(&self, _: &Handover, _: Duration) -> Result<Renewal> {
        let what = "locks in memory end with their process";
        Err(Error::new(ErrorKind::Unsupported, "renew the lease", what))
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        let now = self.clock.now();
        let freed = self.change(&handover.lock, |record| {
            let ours = record.held.iter().any(|held| held.token == handover.token);
            ours && record.free(handover.holder, now)
        });
        if freed { Ok(()) } else { Err(gone("release the lock")) }
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        Ok(self.with(name, |record| record.logbook.clone()))
    }

    async fn signals(&self, prefix: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        let (signals, told) = mpsc::channel(0);
        lock(&self.onlookers).push(Onlooker { prefix: prefix.clone(), signals });
        Ok(Some(told.boxed()))
    }

    async fn examine(&self) -> Result<Examination> {
        Ok(Examination::default())
    }
}

fn gone(operation: &'static str) -> Error {
    Error::lost(LossReason::Expired, "it is not held any more").during(operation)
}

/// A hold in memory. Dropping it without a release leaves the lock taken until its ttl has run out, like a crash.
#[derive(Debug)]
struct MemoryClaim {
    backend: MemoryBackend,
    grant: Grant,
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        let holder = self.grant.holder;
        self.backend
            .with(&self.grant.name, |record| record.revoked.retain(|(revoked, _)| *revoked != holder));
    }
}

#[async_trait]
impl Claim for MemoryClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        let counted_from = self.backend.clock.now();
        let (holder, ttl) = (self.grant.holder, self.grant.ttl);
        self.backend.with(&self.grant.name, |record| {
            record.settle(counted_from);
            let held = record.held.iter_mut().find(|held| held.holder == holder);
            let held = held.ok_or_else(|| gone("renew the lease"))?;
            held.ends_at = counted_from.after(ttl.unwrap_or_default());
            Ok(Renewal { ttl, counted_from })
        })
    }

    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        let (now, holder) = (self.backend.clock.now(), self.grant.holder);
        self.backend.with(&self.grant.name, |record| {
            record.settle(now);
            if !record.held.iter().any(|held| held.holder == holder) {
                return Err(gone("write the logbook"));
            }
            record.logbook = Some(content.to_vec());
            Ok(())
        })
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        let (backend, name, holder) = (self.backend.clone(), self.grant.name.clone(), self.grant.holder);
        Box::pin(poll_fn(move |context| {
            backend.with(&name, |record| record.poll_revoked(holder, context.waker()))
        }))
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        Vec::new()
    }

    fn handover(&self) -> Option<Handover> {
        None
    }

    fn detach(self: Box<Self>) {}

    async fn release(self: Box<Self>) -> Result<()> {
        let holder = self.grant.holder;
        let freed =
            self.backend.change(&self.grant.name, |record| record.free(holder, self.backend.clock.now()));
        if freed { Ok(()) } else { Err(gone("release the lock")) }
    }
}
