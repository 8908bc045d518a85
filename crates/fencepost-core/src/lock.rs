//! One lock, with the options of its acquisition: what users hold before they hold a lease.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::{join_all, select_all, select_ok};

use crate::backend::{AcquireRequest, Claim, Mode, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Attempt, Both, Observer};
use crate::fence::Fence;
use crate::lease::Lease;
use crate::locks::{Locks, too_long, without_logbook};
use crate::logbook::{Entries, MarkOn, Period};
use crate::name::LockName;
use crate::poll::{Raced, race, until};
use crate::profile::Tokens;
use crate::telling::{Asking, tell_other_ttl, tell_stale};
use crate::token::HolderId;

/// The length of lease that is asked for unless [`Lock::ttl`] says otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// The shortest length of lease that can be asked for: less is over before anybody could act on it.
const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// The most slots of one lock: who waits stands in the queue of each.
const MOST_SLOTS: usize = 100;

/// How long a fence may take to be sealed where no deadline bounds it.
const SEAL_MOST: Duration = Duration::from_secs(30);

/// One lock, with the options of its acquisition. Not re-entrant: a second acquire waits for the first lease, also in
/// the same process.
#[derive(Clone, Debug)]
pub struct Lock {
    locks: Locks,
    name: LockName,
    ttl: Duration,
    grace: Option<Duration>,
    wait: Option<Duration>,
    at_least: Option<Duration>,
    label: Option<String>,
    fences: Vec<Arc<dyn Fence>>,
    durable: bool,
    mode: Mode,
    slots: Option<usize>,
    entries: Entries,
    observer: Option<Arc<dyn Observer>>,
}

impl Lock {
    pub(crate) fn new(locks: Locks, name: LockName) -> Self {
        Self {
            locks,
            name,
            ttl: DEFAULT_TTL,
            grace: None,
            wait: None,
            at_least: None,
            label: None,
            fences: Vec::new(),
            durable: false,
            mode: Mode::Exclusive,
            slots: None,
            entries: Entries::default(),
            observer: None,
        }
    }

    /// The length of lease to ask for. A backend whose leases do not run out ignores it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long the holder's work takes to stop. Renewals are timed so that a healthy holder never comes so near to its
    /// deadline. Default: five seconds or a quarter of the lease, whichever is less.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long [`acquire`](Self::acquire) waits at most. Default: until the lock is free.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Keeps the lock taken at least so long after the grant, even if it is released sooner.
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = Some(at_least);
        self
    }

    /// The holder in words, for people who look at the lock.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Seals `fence` with the token of each grant before the lease is handed out.
    pub fn fence(mut self, fence: Arc<dyn Fence>) -> Self {
        self.fences.push(fence);
        self
    }

    /// Refuses a backend whose tokens could go back after a loss of data.
    pub fn require_durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Holds the lock beside others that share it. The token lets readers be told apart and a later writer be told from them; no fence
    /// is sealed with it, since a reader writes nothing.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Takes one of `count` slots of the lock, each of which is a lock of its own by the name `NAME#0` to `NAME#(count − 1)`, with a
    /// token of its own: at most `count` hold one, as long as all ask for the same `count`. A slot and the lock itself do not exclude
    /// each other.
    pub fn slots(mut self, count: usize) -> Self {
        self.slots = Some(count);
        self
    }

    /// Refuses the lock, as [already done](ErrorKind::AlreadyDone), where `period` or a later one counts as done; and has it count
    /// as done when `mark_on` says. What counts stands beside the lock's token, so that a store that loses data forgets it.
    pub fn once_per(mut self, period: Period, mark_on: MarkOn) -> Self {
        self.entries.once = Some((period, mark_on));
        self
    }

    /// Keeps the last `count` grants beside the lock's token, for [`Locks::logbook`] (at most 1000). It takes two requests more for an
    /// acquisition and one more for a release.
    pub fn history(mut self, count: u64) -> Self {
        self.entries.history = count;
        self
    }

    /// Tells `observer`, too, what happens to each attempt and its lease; the one that was named first is told first.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(match self.observer.take() {
            Some(other) => Arc::new(Both(other, observer)),
            None => observer,
        });
        self
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Takes the lock, waiting until it is free or the wait is over.
    ///
    /// # Cancel safety
    /// Dropping the call leaves no holder and no waiter behind.
    ///
    /// # Errors
    /// [`ErrorKind::Contended`] when the wait is over; [`ErrorKind::Stale`] when a fence has seen a greater token;
    /// [`ErrorKind::Indeterminate`] when the store may have granted it to nobody who knows.
    pub async fn acquire(&self) -> Result<Lease> {
        self.acquire_within(self.shortest(Wait::Forever), Vec::new()).await
    }

    /// Takes the lock if it is free; `None` if it is not.
    ///
    /// # Cancel safety
    /// Dropping the call leaves no holder behind.
    pub async fn try_acquire(&self) -> Result<Option<Lease>> {
        match self.acquire_within(Wait::No, Vec::new()).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `work` while holding the lock, and gives the lock back. The work is dropped when the lease is lost.
    ///
    /// # Cancel safety
    /// Dropping the call drops the work and gives the lock back.
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire), and [`ErrorKind::Lost`] when the lease was lost before the work had ended.
    ///
    /// # Examples
    /// ```
    /// # use fencepost_core::{Locks, MemoryBackend};
    /// # let time = fencepost_core::VirtualTime::new(1);
    /// # let clock = time.clock();
    /// # time.block_on(async {
    /// let locks = Locks::new(MemoryBackend::new(clock));
    /// let token = locks.lock("nightly")?.run(async |lease| lease.token()).await?;
    /// # Ok::<(), fencepost_core::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T> {
        let lease = self.acquire().await?;
        let output = match race(lease.lost(), work(&lease)).await {
            Raced::First(error) => Err(error),
            Raced::Second(output) => lease.check().map(|()| output),
        };
        match lease.release().await {
            Err(error) if error.kind() == ErrorKind::Lost => output.and(Err(error)),
            // The work has ended inside the lease; any other release that fails is bounded by the ttl.
            _ => output,
        }
    }

    /// Takes several locks, all or none: in the order of their names, so that two sets never wait for each other, and
    /// within `wait` and the shortest of their own waits. The leases come in the order of `locks`.
    ///
    /// # Cancel safety
    /// Dropping the call leaves no holder and no waiter behind.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when a lock is named twice; else the first error, after the rest were released.
    pub async fn acquire_all(locks: &[Self], wait: Wait) -> Result<Vec<Lease>> {
        let mut order: Vec<usize> = (0..locks.len()).collect();
        order.sort_by_key(|&index| locks[index].place());
        if let Some(twice) = order.windows(2).find(|pair| locks[pair[0]].place() == locks[pair[1]].place()) {
            let error = Error::new(ErrorKind::InvalidArgument, "acquire the locks", "it is named twice");
            return Err(error.on(&locks[twice[0]].name));
        }
        let wait = locks.iter().fold(wait, |wait, lock| lock.shortest(wait));
        let mut leases: Vec<(usize, Lease)> = Vec::with_capacity(locks.len());
        for index in order {
            let holders = leases.iter().map(|(_, lease)| lease.holder()).collect();
            match acquire_beside(&leases, Box::pin(locks[index].acquire_within(wait, holders))).await {
                Ok(lease) => leases.push((index, lease)),
                Err(error) => {
                    release_all(leases.into_iter().map(|(_, lease)| lease).collect()).await;
                    return Err(error);
                }
            }
        }
        leases.sort_by_key(|(index, _)| *index);
        Ok(leases.into_iter().map(|(_, lease)| lease).collect())
    }

    /// The shorter of `wait` and the lock's own wait.
    fn shortest(&self, wait: Wait) -> Wait {
        let Some(own) = self.wait.map(|own| self.locks.0.clock().now().after(own)) else { return wait };
        match wait {
            Wait::No => Wait::No,
            Wait::Until(at) => Wait::Until(at.min(own)),
            Wait::Forever => Wait::Until(own),
        }
    }

    fn place(&self) -> (String, &LockName) {
        (self.locks.to_string(), &self.name)
    }

    async fn acquire_within(&self, wait: Wait, beside: Vec<HolderId>) -> Result<Lease> {
        let attempt = Attempt { lock: &self.name, backend: self.locks.profile().backend };
        let asking = Asking::begin(self.observer.as_ref(), attempt, self.locks.0.clock());
        let outcome = self.acquire_told(wait, beside, asking.observer()).await;
        asking.end(&outcome);
        outcome
    }

    async fn acquire_told(
        &self,
        wait: Wait,
        beside: Vec<HolderId>,
        observer: Option<&Arc<dyn Observer>>,
    ) -> Result<Lease> {
        self.refuse_what_cannot_be().map_err(|error| error.on(&self.name))?;
        self.locks.0.clock().start().map_err(|error| error.on(&self.name))?;
        match self.slots {
            Some(count) => Box::pin(self.acquire_slot(count, wait, beside, observer)).await,
            None => self.acquire_one(wait, beside, observer).await,
        }
    }

    /// Takes any slot that is free, or else waits for all of them and takes the first that it gets.
    async fn acquire_slot(
        &self,
        count: usize,
        wait: Wait,
        beside: Vec<HolderId>,
        observer: Option<&Arc<dyn Observer>>,
    ) -> Result<Lease> {
        let mut slots = Vec::with_capacity(count);
        for number in 0..count {
            let name = format!("{}#{number}", self.name).parse()?;
            slots.push(Self { name, slots: None, ..self.clone() });
        }
        // Nobody's first choice is everybody's.
        let [first, ..] = HolderId::draw(self.locks.0.clock()).to_bytes();
        slots.rotate_left(usize::from(first) % count);
        for slot in &slots {
            match slot.acquire_one(Wait::No, beside.clone(), observer).await {
                Err(error) if error.kind() == ErrorKind::Contended => {}
                outcome => return outcome,
            }
        }
        if wait == Wait::No {
            let what = format!("all of its {count} slots are held");
            return Err(Error::new(ErrorKind::Contended, "acquire the lock", what).on(&self.name));
        }
        let waits = slots.iter().map(|slot| Box::pin(slot.acquire_one(wait, beside.clone(), observer)));
        let (lease, others) = select_ok(waits).await?;
        drop(others);
        Ok(lease)
    }

    async fn acquire_one(
        &self,
        wait: Wait,
        beside: Vec<HolderId>,
        observer: Option<&Arc<dyn Observer>>,
    ) -> Result<Lease> {
        let clock = self.locks.0.clock();
        let request = AcquireRequest {
            name: self.name.clone(),
            holder: HolderId::draw(clock),
            label: self.label.clone().unwrap_or_else(|| crate::label::of_this_process().to_owned()),
            mode: self.mode,
            ttl: self.ttl,
            at_least: self.at_least,
            wait,
            beside,
            observer: observer.cloned(),
        };
        let (claim, completion) = self.claim(&request).await.map_err(|error| error.on(&self.name))?;
        let profile = self.locks.profile();
        let lease = Lease::start(claim, clock, profile, self.grace, observer.cloned());
        let lease = lease.completed_by(completion);
        match self.seal(&lease).await {
            Ok(()) => {
                tell_other_ttl(observer, &lease, self.ttl);
                Ok(lease)
            }
            Err(error) => {
                tell_stale(observer, &self.name, &error);
                drop(lease.release().await);
                Err(error.on(&self.name))
            }
        }
    }

    /// Gets a claim, and writes about it what is to be written; with what its holder sets when its work is done.
    async fn claim(&self, request: &AcquireRequest) -> Result<(Box<dyn Claim>, Option<Arc<AtomicBool>>)> {
        if self.entries.are_none() {
            return Ok((self.locks.0.acquire(request).await?, None));
        }
        let booked = Box::pin(self.entries.claim(&*self.locks.0, request)).await?;
        let completion = booked.completion();
        Ok((Box::new(booked), Some(completion)))
    }

    fn refuse_what_cannot_be(&self) -> Result<()> {
        self.refuse_what_the_profile_lacks()?;
        let profile = self.locks.profile();
        let refuse = |kind, what: String| Err(Error::new(kind, "acquire the lock", what));
        if self.ttl.is_zero() || (self.ttl < SHORTEST_TTL && profile.longest_ttl.is_some()) {
            let what =
                format!("a ttl of {:?} is less than the {SHORTEST_TTL:?} that it takes to act", self.ttl);
            return refuse(ErrorKind::InvalidArgument, what);
        }
        if let Some(grace) = self.grace.filter(|grace| *grace > self.ttl / 2) {
            let what = format!("a grace of {grace:?} is more than half of the ttl of {:?}", self.ttl);
            return refuse(ErrorKind::InvalidArgument, what);
        }
        if let Some(longest) = profile.longest_ttl.filter(|longest| self.ttl > *longest) {
            return Err(too_long(self.ttl, longest, &self.locks).during("acquire the lock"));
        }
        if let Some(count) = self.slots.filter(|count| !(1..=MOST_SLOTS).contains(count)) {
            return refuse(
                ErrorKind::InvalidArgument,
                format!("a lock has 1 to {MOST_SLOTS} slots, and not {count}"),
            );
        }
        let is_writer = !self.fences.is_empty() || !self.entries.are_none() || self.at_least.is_some();
        if self.mode == Mode::Shared && is_writer {
            let what =
                "who shares it only reads: seals no fence, writes no logbook, keeps nobody out afterwards";
            let what = what.to_owned();
            return refuse(ErrorKind::InvalidArgument, what);
        }
        if self.slots.is_some() && (self.mode == Mode::Shared || self.entries.once.is_some()) {
            let what = "a slot is held by one, and a period is done in no certain slot".to_owned();
            return refuse(ErrorKind::InvalidArgument, what);
        }
        Ok(())
    }

    fn refuse_what_the_profile_lacks(&self) -> Result<()> {
        let profile = self.locks.profile();
        let refuse = |what| Err(Error::new(ErrorKind::Unsupported, "acquire the lock", what));
        if self.at_least.is_some() && !profile.rest {
            return refuse(format!("{} cannot keep a lock taken after its release", profile.backend));
        }
        if self.durable && profile.tokens != Tokens::Durable {
            return refuse(format!("the tokens of {} could go back after a loss of data", self.locks));
        }
        if self.mode == Mode::Shared && !profile.share {
            return refuse(format!("a lock of {} cannot be shared", profile.backend));
        }
        if self.slots.is_some() && !profile.slots {
            return refuse(format!("a lock of {} is not to be had in slots", profile.backend));
        }
        if !self.entries.are_none() && !profile.logbook {
            return Err(without_logbook(profile));
        }
        Ok(())
    }

    /// A grant whose reply came after its own deadline is no grant, and a lease whose fences are not sealed is none.
    async fn seal(&self, lease: &Lease) -> Result<()> {
        lease.check()?;
        if self.fences.is_empty() {
            return Ok(());
        }
        let stamp = lease.stamp();
        let give_up_at =
            lease.deadline().moment().unwrap_or_else(|| self.locks.0.clock().now().after(SEAL_MOST));
        for fence in &self.fences {
            let sealed = until(self.locks.0.clock(), Some(give_up_at), fence.seal(&stamp)).await;
            sealed
                .unwrap_or_else(|| {
                    let what = format!("{fence} did not answer in time");
                    Err(Error::new(ErrorKind::Unavailable, "seal the fence", what))
                })
                .map_err(|error| of_fence(&**fence, error))?;
        }
        lease.check()
    }
}

/// Says that it is the fence that is wrong, and not the place of the lock.
fn of_fence(fence: &dyn Fence, error: Error) -> Error {
    if error.kind() == ErrorKind::Stale || error.operation() == "seal the fence" {
        return error;
    }
    let advice = error.advice().map(ToOwned::to_owned);
    let named = Error::new(error.kind(), "seal the fence", fence.to_string()).caused_by(error);
    match advice {
        Some(advice) => named.hint(advice),
        None => named,
    }
}

/// Waits for the next lock of a set, unless one that is held already gets lost meanwhile.
async fn acquire_beside(held: &[(usize, Lease)], next: impl Future<Output = Result<Lease>>) -> Result<Lease> {
    if held.is_empty() {
        return next.await;
    }
    let lost = select_all(held.iter().map(|(_, lease)| Box::pin(lease.lost())));
    match race(lost, next).await {
        Raced::First((error, ..)) => Err(error),
        Raced::Second(lease) => lease,
    }
}

/// Releases leases, all at once. What fails is bounded by the ttl.
pub async fn release_all(leases: Vec<Lease>) -> Vec<Error> {
    // All at once: a store that does not answer for one must not keep the others taken.
    join_all(leases.into_iter().rev().map(release_one)).await.into_iter().flatten().collect()
}

async fn release_one(lease: Lease) -> Option<Error> {
    let lock = lease.lock().clone();
    lease.release().await.err().map(|error| error.on(&lock))
}
