//! One strike of a fault: the holder is caught at a point of its hold, the fault strikes and lasts until somebody else has written,
//! and ends; and it is seen what became of the holder's own write.
//!
//! Invariant: what is reported as an effect was seen, and not concluded from what was done.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::crew::{Crew, holds_within};
use crate::history::{Record, Step};
use crate::links::Links;
use crate::pattern::Facts;
use crate::schedule::{Act, Point, Strike};
use crate::servers::LockServers;
use crate::watch::Watch;

/// What a strike has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Whom it has struck.
    pub worker: usize,
    /// In which hold.
    pub hold: u32,
    /// From when, in nanoseconds of `CLOCK_BOOTTIME`.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// What was done, in words.
    pub what: String,
    /// Whether somebody else had the lock while it lasted.
    pub is_handed_over: bool,
    /// Whether the holder was killed while it held the lock.
    pub is_killed: bool,
    /// How long it took until somebody else had the lock.
    pub recovery: Option<Duration>,
    /// Why it could not strike.
    pub failed: Option<String>,
}

impl Effect {
    /// Whether it has changed who has the lock.
    pub fn has_bitten(&self) -> bool {
        self.failed.is_none() && (self.is_handed_over || self.is_killed)
    }
}

/// What a strike needs.
pub(crate) struct Stage<'a> {
    pub(crate) servers: &'a mut dyn LockServers,
    pub(crate) links: Vec<Links>,
    pub(crate) crew: Crew,
    pub(crate) watch: &'a mut dyn Watch,
    pub(crate) facts: &'static Facts,
}

/// The holder that was caught.
struct Caught {
    worker: usize,
    hold: u32,
    /// Whether its process stands still; else its write is held up on its way.
    is_stopped: bool,
}

impl Stage<'_> {
    /// Strikes once, and ends when everything goes on as before.
    pub(crate) fn strike(&mut self, strike: &Strike) -> Effect {
        let what = strike.act.describe();
        if let Act::Partition(_) = strike.act
            && !self.links[0].can_be_cut()
        {
            let why = "the lab cannot stand between a worker and these servers";
            return Effect { what, failed: Some(why.to_owned()), ..Effect::default() };
        }
        if strike.act == Act::Lose(crate::fault::Loss::OldCopy)
            && let Err(why) = self.servers.copy()
        {
            return Effect { what, failed: Some(why), ..Effect::default() };
        }
        let Some(caught) = self.catch(strike) else {
            let failed = Some("no holder could be caught between its check and its write".to_owned());
            return Effect { what, failed, ..Effect::default() };
        };
        self.watch.strikes(&format!("{what} (worker {})", caught.worker + 1));
        let mut effect = Effect {
            worker: caught.worker,
            hold: caught.hold,
            from: self.crew.now(),
            what,
            is_killed: strike.act == Act::Crash,
            ..Effect::default()
        };
        effect.failed = self.act(strike.act, &caught).err();
        if effect.failed.is_none() {
            self.await_next(&mut effect);
        }
        self.undo(strike.act, &caught);
        effect.until = self.crew.now();
        self.await_end(&caught, strike.act);
        effect.failed = effect.failed.or(self.settle(strike.act, caught.worker).err());
        effect
    }

    /// Waits until a holder comes to the point, and arrests it there.
    fn catch(&mut self, strike: &Strike) -> Option<Caught> {
        // What has happened while servers were copied is over.
        self.crew.drain(self.watch);
        let limit = self.crew.after(CATCHING);
        let mut grants = 0;
        while let Some(record) = self.crew.next(limit, self.watch) {
            grants += u64::from(matches!(record.step, Step::Claimed { .. }));
            if grants < strike.after || !is_at(strike.point, &record.step) {
                continue;
            }
            if let Some(caught) = self.arrest(&record, strike.act) {
                return Some(caught);
            }
        }
        None
    }

    /// A holder that was too fast goes on, and another one is caught.
    fn arrest(&mut self, at: &Record, act: Act) -> Option<Caught> {
        let (worker, hold) = at.key();
        if act == Act::Pause || !self.links[worker].can_hold_a_write() {
            self.crew.stop(worker);
            self.crew.drain(self.watch);
            if self.crew.last_of(worker) != Some(at) {
                self.crew.go_on(worker);
                return None;
            }
            self.crew.note(worker, hold, Step::Paused, self.watch);
            return Some(Caught { worker, hold, is_stopped: true });
        }
        self.links[worker].hold_writes();
        let limit = self.crew.after(SENDING);
        let is_sent = |record: &Record| record.key() == (worker, hold) && is_sending(&record.step);
        let sent = self.crew.find(limit, self.watch, is_sent);
        if sent.is_some() && holds_within(ARRIVING, || self.links[worker].holds_a_write()) {
            // What is held up may be the write of a later hold.
            self.crew.drain(self.watch);
            if self.crew.last_of(worker) == sent.as_ref() {
                return Some(Caught { worker, hold, is_stopped: false });
            }
        }
        self.links[worker].deliver_writes();
        None
    }

    fn act(&mut self, act: Act, caught: &Caught) -> Result<(), String> {
        match act {
            Act::Pause => Ok(()),
            Act::Crash => {
                // Before, since the lock may be somebody else's as soon as the process is gone.
                self.crew.note(caught.worker, caught.hold, Step::Killed, self.watch);
                self.crew.kill(caught.worker);
                Ok(())
            }
            Act::Partition(how) => {
                self.links[caught.worker].cut_off(how, self.facts.ttl);
                Ok(())
            }
            Act::StepClock => self.servers.step_clock(self.step()),
            Act::Restart { leases } => self.servers.restart(self.facts.ttl * leases),
            Act::Lose(how) => {
                self.servers.lose(how)?;
                let addresses = self.servers.addresses();
                self.links.iter().for_each(|links| links.lead_to(&addresses));
                Ok(())
            }
        }
    }

    /// Waits until somebody else has taken the lock and written, which a fault need not lead to.
    fn await_next(&mut self, effect: &mut Effect) {
        let limit = self.crew.after(self.patience());
        let (worker, from) = (effect.worker, effect.from);
        let mut claimed = BTreeSet::new();
        let mut first = None;
        let has_written = |record: &Record| {
            if record.worker == worker || record.at < from {
                return false;
            }
            if matches!(record.step, Step::Claimed { .. }) {
                claimed.insert(record.key());
                first.get_or_insert(record.at);
            }
            record.step.is_answer() && claimed.contains(&record.key())
        };
        effect.is_handed_over = self.crew.find(limit, self.watch, has_written).is_some();
        effect.recovery = first.map(|at| Duration::from_nanos(at - from));
    }

    fn undo(&mut self, act: Act, caught: &Caught) {
        let links = &self.links[caught.worker];
        if matches!(act, Act::Partition(_)) {
            links.heal();
        }
        if caught.is_stopped && act != Act::Crash {
            self.crew.note(caught.worker, caught.hold, Step::Resumed, self.watch);
            self.crew.go_on(caught.worker);
        } else {
            links.deliver_writes();
        }
    }

    /// Waits until it is known what became of the holder's own write.
    fn await_end(&mut self, caught: &Caught, act: Act) {
        if act == Act::Crash {
            // The write of a dead worker is answered to nobody.
            let links = &self.links[caught.worker];
            holds_within(ANSWERING, || links.is_quiet());
            return;
        }
        let (limit, key) = (self.crew.after(ANSWERING), (caught.worker, caught.hold));
        let is_end = |record: &Record| record.key() == key && record.step == Step::Releasing;
        self.crew.find(limit, self.watch, is_end);
    }

    /// Lets everything go on as before, and a few holds pass.
    fn settle(&mut self, act: Act, worker: usize) -> Result<(), String> {
        match act {
            Act::Crash => self.crew.launch(worker)?,
            Act::StepClock => self.servers.step_clock_back(self.step())?,
            _ => {}
        }
        self.pass_holds(SETTLING_HOLDS, self.patience());
        Ok(())
    }

    /// Waits until so many holds have ended.
    pub(crate) fn pass_holds(&mut self, count: usize, most: Duration) {
        let limit = self.crew.after(most);
        for _ in 0..count {
            let is_released = |record: &Record| record.step == Step::Released;
            if self.crew.find(limit, self.watch, is_released).is_none() {
                return;
            }
        }
    }

    /// Longer than a lease.
    fn step(&self) -> Duration {
        self.facts.ttl * 3
    }

    /// How long it takes at most until somebody else has the lock, where anybody gets it.
    pub(crate) fn patience(&self) -> Duration {
        self.facts.ttl * 2 + self.facts.recovery
    }
}

fn is_at(point: Point, step: &Step) -> bool {
    match point {
        Point::BeforeTheCheck => matches!(step, Step::Read { .. }),
        Point::BetweenCheckAndWrite => *step == Step::Checked { holds: true },
    }
}

fn is_sending(step: &Step) -> bool {
    matches!(step, Step::Writing { .. })
}

/// How long it takes at most until a holder has been caught.
const CATCHING: Duration = Duration::from_secs(15);
/// How long a holder takes at most from its check to its write.
const SENDING: Duration = Duration::from_secs(1);
/// How long a write takes at most from its author to the proxy.
const ARRIVING: Duration = Duration::from_millis(200);
/// How long it takes at most until a write that was delivered is answered.
const ANSWERING: Duration = Duration::from_secs(4);
const SETTLING_HOLDS: usize = 2;
