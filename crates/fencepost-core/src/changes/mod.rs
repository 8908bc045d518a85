//! What becomes of locks while somebody watches: a look whenever the store says that there may be something to see, and now and
//! then without that.
//!
//! A signal only says when to look, so one that is missing makes a change late and hides none that lasts. What came and went between
//! two looks stands in the lock's logbook, where one is kept.
//! Invariant: what is told is the difference to what was told before, so nothing is told twice, and an outage hides no lasting change.

mod ear;
mod past;
mod seen;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::LockState;
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::locks::Locks;
use crate::logbook::Logbook;
use crate::name::{LockName, NamePrefix};
use crate::poll::until;

use ear::Ear;
use past::Past;
pub use seen::{Change, ChangeKind};

/// How long until the next look where the store pushes nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same where it does: for what it forgot to push.
const LOOK_ANYWAY_EVERY: Duration = Duration::from_secs(5);

/// The shortest time between two looks: signals that come meanwhile are joined.
const PAUSE: Duration = Duration::from_millis(50);

/// How long after the end of a lease, as it was seen, to look for the end.
const AFTER_THE_END: Duration = Duration::from_millis(10);

/// How long a look may take, and listening to the store.
const LOOK_MOST: Duration = Duration::from_secs(10);

/// The first and the longest pause while the store cannot be reached.
const TRY_AGAIN: Duration = Duration::from_millis(250);
const TRY_AGAIN_MOST: Duration = Duration::from_secs(5);

/// Tells what becomes of locks whose names begin with a prefix; see [`Locks::watch`](crate::Locks::watch).
///
/// It looks when the store signals, every second where the store signals nothing, and when a lease that was seen runs out; at most
/// twenty times a second, and never for more than half of the time. What lasts as long as the time between two looks is sure to be
/// told. A holder that came and went in between is told where the lock keeps a [history](crate::Lock::history), of a lock that was
/// seen before or that is named by the whole prefix; where there is none, it is not seen.
///
/// # Examples
/// ```
/// use fencepost_core::{ChangeKind, Locks, MemoryBackend};
///
/// # let time = fencepost_core::VirtualTime::new(1);
/// # let clock = time.clock();
/// # time.block_on(async {
/// let locks = Locks::new(MemoryBackend::new(clock));
/// let mut watch = locks.watch("ledger/");
/// assert!(watch.next().await?.is_empty(), "all are free at first");
/// let lease = locks.lock("ledger/2026-11")?.acquire().await?;
/// let changes = watch.next().await?;
/// assert_eq!((changes[0].kind, changes[0].state.token), (ChangeKind::Held, Some(lease.token())));
/// # Ok::<(), fencepost_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Watch {
    eyes: Eyes,
    ear: Ear,
    clock: Clock,
    /// When to look next.
    due: Moment,
    /// No look before it, whatever is signalled.
    not_before: Moment,
    /// The pause before the next try, while the store cannot be reached.
    away: Option<Duration>,
}

/// What is looked at, and what was seen.
#[derive(Debug)]
struct Eyes {
    locks: Locks,
    prefix: NamePrefix,
    seen: Option<Seen>,
    past: Past,
    tells_renewals: bool,
}

/// A look that has succeeded.
#[derive(Debug)]
struct Seen {
    at: Moment,
    wall_micros: u64,
    states: BTreeMap<LockName, LockState>,
}

type Books = Vec<(LockName, Logbook)>;

impl Watch {
    pub(crate) fn new(locks: Locks, prefix: NamePrefix) -> Self {
        let clock = locks.backend().clock().clone();
        let now = clock.now();
        let past = Past::new(&prefix);
        let eyes = Eyes { locks, prefix, seen: None, past, tells_renewals: false };
        Self { eyes, ear: Ear::new(now), clock, due: now, not_before: now, away: None }
    }

    /// Tells of renewals as well, for who shows how much of a lease remains.
    pub fn with_renewals(mut self) -> Self {
        self.eyes.tells_renewals = true;
        self
    }

    /// Waits for the next changes, in the order of the names and, of one lock, of time. The first call tells what is not free, also if
    /// that is nothing; and so does the first one after an error, of what is different now.
    ///
    /// # Cancel safety
    /// Dropping it loses no change: the next call tells it.
    ///
    /// # Errors
    /// When the store cannot be looked at: once. Calling it again waits until it can be, with growing pauses.
    pub async fn next(&mut self) -> Result<Vec<Change>> {
        loop {
            self.until_due().await;
            self.listen().await;
            let is_news = self.eyes.seen.is_none() || self.away.is_some();
            let begun = self.clock.now();
            let looked = until(&self.clock, Some(begun.after(LOOK_MOST)), self.eyes.look()).await;
            match looked.unwrap_or_else(|| Err(unanswered())) {
                Ok((seen, books)) => {
                    let changes = self.take_in(seen, &books);
                    if is_news || !changes.is_empty() {
                        return Ok(changes);
                    }
                }
                Err(error) if self.note_outage() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Waits until there may be something to see.
    async fn until_due(&mut self) {
        while self.away.is_some() || !self.ear.opens_at(self.clock.now()) {
            let now = self.clock.now();
            if now >= self.due {
                return;
            }
            if until(&self.clock, Some(self.due), self.ear.hears(&self.clock)).await.is_some() {
                self.due = self.due.min(self.not_before.max(now));
                // What is signalled until then is joined.
                self.clock.sleep_until(self.due).await;
            }
        }
    }

    /// Listens to the store from now on, if it pushes: the look that follows sees what was not signalled yet.
    async fn listen(&mut self) {
        // What cannot be reached is first looked at.
        if self.eyes.seen.is_some() && self.away.is_none() {
            self.ear.open(&self.eyes.locks, &self.eyes.prefix, &self.clock).await;
        }
        self.ear.forget_what_was_heard(self.clock.now());
    }

    /// What is different now.
    fn take_in(&mut self, seen: Seen, books: &Books) -> Vec<Change> {
        let now = self.clock.now();
        self.away = None;
        self.not_before = now.after(PAUSE.max(now.since(seen.at)));
        let end = seen.first_end().map(|end| end.after(AFTER_THE_END));
        let anyway = now.after(if self.ear.is_open() { LOOK_ANYWAY_EVERY } else { LOOK_EVERY });
        let changes = self.eyes.take_in(seen, books);
        let soon = self.eyes.past.is_in_doubt().then_some(now);
        self.due = end.into_iter().chain(soon).fold(anyway, Moment::min).max(self.not_before);
        changes
    }

    /// Whether the outage is a new one.
    fn note_outage(&mut self) -> bool {
        let now = self.clock.now();
        let is_new = self.away.is_none();
        let pause = self.away.unwrap_or(TRY_AGAIN);
        self.away = Some((pause * 2).min(TRY_AGAIN_MOST));
        self.due = now.after(pause + self.clock.jitter(pause / 4));
        self.ear = Ear::new(now);
        is_new
    }
}

impl Eyes {
    async fn look(&self) -> Result<(Seen, Books)> {
        let clock = self.locks.backend().clock();
        let (at, wall_micros) = (clock.now(), clock.wall_micros());
        let listed = self.locks.backend().list(&self.prefix).await?;
        let states: BTreeMap<_, _> = listed.into_iter().map(|state| (state.name.clone(), state)).collect();
        let mut books = Vec::new();
        if self.locks.profile().logbook {
            for name in self.past.to_read(self.seen.as_ref(), &states) {
                match self.locks.logbook(name.as_str()).await {
                    Ok(book) => books.push((name, book)),
                    Err(error) if is_outage(&error) => return Err(error),
                    // One that cannot be read tells nothing; the locks are seen all the same.
                    Err(_) => {}
                }
            }
        }
        Ok((Seen { at, wall_micros, states }, books))
    }

    fn take_in(&mut self, now: Seen, books: &Books) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, book) in books {
            changes.extend(self.past.passed(name, book, self.seen.as_ref(), &now));
        }
        let nothing = Seen { at: now.at, wall_micros: now.wall_micros, states: BTreeMap::new() };
        let before = self.seen.as_ref().unwrap_or(&nothing);
        for (kind, state) in seen::differences(&before.states, &now.states, now.at.since(before.at)) {
            if kind != ChangeKind::Renewed || self.tells_renewals {
                changes.push(Change { at_micros: now.wall_micros, kind, state });
            }
        }
        // It is stable: what has passed comes before what is.
        changes.sort_by(|one, other| one.state.name.cmp(&other.state.name));
        past::drop_repeated_ends(&mut changes);
        self.seen = Some(now);
        changes
    }
}

impl Seen {
    /// When the first of the leases runs out if nothing is done.
    fn first_end(&self) -> Option<Moment> {
        self.states.values().filter_map(|state| state.remaining).min().map(|left| self.at.after(left))
    }
}

fn is_outage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}

fn unanswered() -> Error {
    let what = format!("no answer for {} seconds", LOOK_MOST.as_secs());
    Error::new(ErrorKind::Unavailable, "look at the locks", what)
}
