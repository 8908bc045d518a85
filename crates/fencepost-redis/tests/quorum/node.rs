//! A node as its scripts make it: one lock, its counter, tombstones, and the guard against lost data.
//!
//! The rules can be broken on purpose, each in the way of a well-known mistake.

use std::time::Duration;

use fencepost_core::FencingToken;
use fencepost_redis::quorum::{Reading, Reply, Request};

/// A holder id: one for each attempt.
pub(crate) type Holder = u32;

/// No ttl is longer, and so no record of a lease is older.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(2);

/// How the scripts decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    pub(crate) write_back: WriteBack,
    /// The same for the token that is proposed together with the lock.
    pub(crate) write_with_lock: WriteBack,
    /// A proposal needs the lock.
    pub(crate) checks_holder: bool,
    /// A node that lost its data grants nothing before its quarantine is over and it has a floor.
    pub(crate) guard: bool,
    /// A node remembers whom it cancelled.
    pub(crate) tombstones: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WriteBack {
    /// As it should be: the token is written if the counter is below it.
    IfLess,
    /// Wrong: also if the counter is equal.
    IfNotGreater,
    /// Wrong: whatever the counter is.
    Always,
    /// Wrong: nothing is written. Each grant counts up instead, and the token is the greatest of the counts.
    Never,
}

impl Rules {
    pub(crate) const RIGHT: Self = Self {
        write_back: WriteBack::IfLess,
        write_with_lock: WriteBack::IfLess,
        checks_holder: true,
        guard: true,
        tombstones: true,
    };

    /// Without any write: the usual way.
    pub(crate) const COUNTING: Self =
        Self { write_back: WriteBack::Never, write_with_lock: WriteBack::Never, ..Self::RIGHT };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) holder: Holder,
    /// Zero where none is written yet.
    pub(crate) token: u64,
    pub(crate) expires: u64,
    /// Whether its ttl began when the token was written, or later.
    pub(crate) prolonged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Ready,
    QuarantinedUntil(u64),
    Unseeded,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) rules: Rules,
    pub(crate) record: Option<Record>,
    pub(crate) counter: u64,
    pub(crate) written_by: Holder,
    pub(crate) floor: u64,
    pub(crate) tombstones: Vec<(Holder, u64)>,
    pub(crate) state: State,
    pub(crate) incarnation: u32,
}

impl Node {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            record: None,
            counter: 0,
            written_by: 0,
            floor: 0,
            tombstones: Vec::new(),
            state: State::Ready,
            incarnation: 0,
        }
    }

    /// Carries out one script. `now` and `ttl` are nanoseconds of its own clock.
    pub(crate) fn serve(&mut self, now: u64, holder: Holder, ttl: u64, request: Request) -> Reply {
        self.pass(now);
        match request {
            Request::Lock(token) => self.lock(now, holder, ttl, token.get()),
            Request::Propose(token) => self.propose(now, holder, ttl, token.get()),
            Request::Renew if self.holds(holder) => {
                self.prolong(now, ttl);
                Reply::Renewed
            }
            Request::Renew => Reply::Lost,
            Request::Cancel => self.cancel(now, holder),
        }
    }

    pub(crate) fn read(&mut self, now: u64) -> Reading {
        self.pass(now);
        let max = token(self.effective());
        match self.state {
            State::Ready => Reading::Ready { max },
            State::QuarantinedUntil(until) => Reading::Quarantined { ready_in: left(until, now) },
            State::Unseeded => Reading::Unseeded { max },
        }
    }

    /// Gives a floor to the incarnation that asked for one.
    pub(crate) fn seed(&mut self, now: u64, incarnation: u32, floor: u64) -> bool {
        self.pass(now);
        let fits = self.state == State::Unseeded && self.incarnation == incarnation;
        if fits {
            self.floor = self.floor.max(floor);
            self.state = State::Ready;
        }
        fits
    }

    /// Starts anew with the data of `kept`, or with none.
    pub(crate) fn restart(&mut self, now: u64, kept: Option<&Self>) {
        let incarnation = self.incarnation + 1;
        *self = kept.cloned().unwrap_or_else(|| Self::new(self.rules));
        self.incarnation = incarnation;
        if self.rules.guard {
            let quarantine = MAX_TTL + MAX_TTL / 1_000 + Duration::from_millis(50);
            self.state = State::QuarantinedUntil(now + nanos(quarantine));
        } else {
            self.state = State::Ready;
        }
    }

    fn lock(&mut self, now: u64, holder: Holder, ttl: u64, number: u64) -> Reply {
        if let Some(refusal) = self.guarded(now) {
            return refusal;
        }
        if self.rules.tombstones && self.tombstones.iter().any(|(cancelled, _)| *cancelled == holder) {
            return Reply::Cancelled;
        }
        let counter = token(self.effective());
        let has_written = self.counter == number && self.written_by == holder;
        let writes = self.takes(self.rules.write_with_lock, number);
        match &mut self.record {
            Some(record) if record.holder != holder => {
                let remaining = if record.token == 0 { Duration::ZERO } else { left(record.expires, now) };
                Reply::Busy { remaining: Some(remaining), token: token(record.token) }
            }
            Some(record) => {
                record.expires = record.expires.max(now.saturating_add(ttl));
                if has_written && record.token == number { Reply::Acked } else { Reply::Granted { counter } }
            }
            None => {
                let token = if writes { number } else { 0 };
                let expires = now.saturating_add(ttl);
                self.record = Some(Record { holder, token, expires, prolonged: writes });
                if self.rules.write_back == WriteBack::Never {
                    self.counter += 1;
                }
                if !writes {
                    return Reply::Granted { counter };
                }
                (self.counter, self.written_by) = (number, holder);
                Reply::Acked
            }
        }
    }

    fn takes(&self, rule: WriteBack, number: u64) -> bool {
        match rule {
            WriteBack::IfLess => self.effective() < number,
            WriteBack::IfNotGreater => self.effective() <= number,
            WriteBack::Always => true,
            WriteBack::Never => false,
        }
    }

    fn propose(&mut self, now: u64, holder: Holder, ttl: u64, number: u64) -> Reply {
        if let Some(refusal) = self.guarded(now) {
            return refusal;
        }
        let has_lock = self.holds(holder);
        if self.rules.checks_holder && !has_lock {
            return Reply::NoLock;
        }
        let again = self.counter == number && self.written_by == holder;
        let counts = self.rules.write_back == WriteBack::Never;
        if !again && !counts && !self.takes(self.rules.write_back, number) {
            return Reply::Stale { counter: token(self.effective()) };
        }
        if !counts {
            (self.counter, self.written_by) = (number, holder);
        }
        if has_lock {
            self.prolong(now, ttl);
        }
        if let Some(record) = self.record.as_mut().filter(|record| record.holder == holder) {
            record.token = number;
        }
        Reply::Acked
    }

    fn cancel(&mut self, now: u64, holder: Holder) -> Reply {
        self.tombstones.push((holder, now + nanos(MAX_TTL)));
        self.record = self.record.filter(|record| record.holder != holder);
        Reply::Done
    }

    pub(crate) fn pass(&mut self, now: u64) {
        self.record = self.record.filter(|record| now < record.expires);
        self.tombstones.retain(|(_, until)| now < *until);
        if matches!(self.state, State::QuarantinedUntil(until) if now >= until) {
            self.state = State::Unseeded;
        }
    }

    fn guarded(&self, now: u64) -> Option<Reply> {
        match self.state {
            State::Ready => None,
            State::QuarantinedUntil(until) => Some(Reply::Quarantined { ready_in: left(until, now) }),
            State::Unseeded => Some(Reply::Unseeded),
        }
    }

    fn holds(&self, holder: Holder) -> bool {
        self.record.is_some_and(|record| record.holder == holder)
    }

    fn prolong(&mut self, now: u64, ttl: u64) {
        let record = self.record.as_mut().expect("the holder has the lock");
        record.expires = record.expires.max(now.saturating_add(ttl));
        record.prolonged = true;
    }

    pub(crate) fn effective(&self) -> u64 {
        self.counter.max(self.floor)
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a short duration")
}

/// Counters begin at zero, tokens at one.
fn token(number: u64) -> Option<FencingToken> {
    FencingToken::try_from(number).ok()
}

fn left(until: u64, now: u64) -> Duration {
    Duration::from_nanos(until - now)
}
