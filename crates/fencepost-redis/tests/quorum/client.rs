//! A client: it acquires, holds, renews and gives back, with the real machines, again and again.

use std::time::Duration;

use fencepost_core::Moment;
use fencepost_redis::quorum::{
    Action, Answer, Attempt, Cancellation, Event, GREATEST_TOKEN, Granted, Loss, Outcome, Refusal, Reply,
    Request, Tenure, Terms, Verdict, Why, back_off,
};

use crate::clock::{LocalClock, MS};
use crate::history::Hold;
use crate::holding::Holding;
use crate::node::{Holder, nanos};
use crate::random::Random;
use crate::reseed::Reseed;
use crate::scenario::{Flaw, Floor, Weather};
use crate::tally::Count;
use crate::world::{Ask, Stage, Told};

/// What a client waits for. A number tells a timer from those that were set before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    Act(u32),
    Machine(Holder),
    Reseed(u32),
}

pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) clock: LocalClock,
    pub(crate) paused_until: u64,
    pub(crate) reseed: Option<Reseed>,
    pub(crate) serial: u32,
    skew_ms: i64,
    is_idle: bool,
    work: Work,
    partings: Vec<(Holder, Terms, Cancellation)>,
    act: u32,
    finished: bool,
}

enum Work {
    Resting,
    Trying { holder: Holder, terms: Terms, attempt: Attempt, began: u64, proposals: u32 },
    Holding(Holding),
}

impl Client {
    pub(crate) fn draw(number: usize, weather: &Weather, random: &mut Random) -> Self {
        let most = i64::try_from(weather.skew_ms).expect("a small skew");
        Self {
            number,
            clock: LocalClock::draw(random),
            paused_until: 0,
            reseed: None,
            serial: 0,
            skew_ms: random.rate(most),
            is_idle: random.per_mille(weather.idleness),
            work: Work::Resting,
            partings: Vec::new(),
            act: 0,
            finished: false,
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(crate) fn pause(&mut self, stage: &mut Stage, until: u64) {
        stage.tally.count(Count::Paused);
        if matches!(self.work, Work::Holding(_)) {
            stage.tally.count(Count::PausedHolder);
        }
        self.paused_until = self.paused_until.max(until);
    }

    /// The process ends; nothing is given back. Another begins in its place.
    pub(crate) fn die(&mut self, stage: &mut Stage) {
        stage.tally.count(Count::Died);
        if let Work::Holding(holding) = &mut self.work {
            holding.close(stage, self.clock);
        }
        self.work = Work::Resting;
        self.partings.clear();
        self.reseed = None;
        let pause = stage.random.between(MS, 300 * MS);
        self.act_in(stage, pause);
    }

    pub(crate) fn wake(&mut self, stage: &mut Stage, timer: Timer) {
        match timer {
            Timer::Act(act) if act == self.act => self.act(stage),
            Timer::Machine(holder) => self.feed(stage, holder, Event::Woke),
            Timer::Reseed(serial) => self.decide_seed(stage, serial),
            Timer::Act(_) => {}
        }
    }

    pub(crate) fn hear(&mut self, stage: &mut Stage, node: usize, told: Told) {
        match told {
            Told::Quorum { holder, round, reply } => {
                if reply == Reply::Unseeded {
                    self.begin_reseed(stage, node);
                }
                self.feed(stage, holder, Event::Replied { node, round, reply });
            }
            Told::Broken { holder, round } => self.feed(stage, holder, Event::Failed { node, round }),
            Told::Read { serial, reading, incarnation } => {
                self.hear_reading(stage, node, serial, reading, incarnation);
            }
            Told::Seeded(true) => {}
            Told::Seeded(false) => stage.tally.count(Count::SeedRefused),
        }
    }

    pub(crate) fn now(&self, stage: &Stage) -> Moment {
        self.clock.moment(stage.now)
    }

    fn act(&mut self, stage: &mut Stage) {
        let now = self.now(stage);
        match &mut self.work {
            Work::Resting => self.begin(stage),
            Work::Trying { .. } => {}
            Work::Holding(holding) if holding.is_at_its_end(now) => self.part(stage),
            Work::Holding(holding) => {
                let holder = holding.holder;
                self.feed(stage, holder, Event::Began);
                if let Work::Holding(holding) = &mut self.work {
                    holding.after_begin(stage, now);
                    let next = holding.next_act(now);
                    self.act_at(stage, next);
                }
            }
        }
    }

    fn begin(&mut self, stage: &mut Stage) {
        let wall = 1_700_000_000_000_000 + stage.now / 1_000;
        let wall = wall.saturating_add_signed(self.skew_ms * 1_000).min(GREATEST_TOKEN);
        let last = stage.history.holds.last().map_or(0, |hold| hold.token);
        let floor = match stage.scenario.floor {
            _ if stage.weather.floor => wall,
            Floor::Near | Floor::Sometimes => last.saturating_sub(3) + stage.random.between(0, 6),
            Floor::Never | Floor::Always => 0,
        };
        let ttl = Duration::from_millis(stage.weather.ttl_ms);
        let terms = Terms::new(stage.quorum, ttl, floor).expect("the wall clock is right");
        let holder = stage.new_holder();
        let attempt = Attempt::new(terms);
        self.work = Work::Trying { holder, terms, attempt, began: stage.now, proposals: 0 };
        self.feed(stage, holder, Event::Began);
    }

    /// Gives an event to the machine of `holder`, and does what it says.
    fn feed(&mut self, stage: &mut Stage, holder: Holder, event: Event) {
        let now = self.now(stage);
        match &mut self.work {
            Work::Trying { holder: ours, terms, attempt, proposals, .. } if *ours == holder => {
                let terms = *terms;
                count_answer(stage, event);
                let actions = attempt.step(now, event);
                if let Some(Action::Send { request: Request::Propose(_), .. }) = actions.first() {
                    *proposals += 1;
                    if *proposals == 2 {
                        stage.tally.count(Count::ProposedAgain);
                    }
                }
                let outcome = self.perform(stage, holder, terms, actions);
                if let Some(outcome) = outcome {
                    self.conclude(stage, outcome);
                }
            }
            Work::Holding(holding) if holding.holder == holder => {
                let terms = holding.terms;
                let actions = holding.step(stage, self.clock, now, event);
                let verdict = self.perform(stage, holder, terms, actions);
                if let Some(verdict) = verdict {
                    self.judge(stage, verdict);
                }
            }
            _ => self.feed_parting(stage, now, holder, event),
        }
    }

    fn feed_parting(&mut self, stage: &mut Stage, now: Moment, holder: Holder, event: Event) {
        let place = self.partings.iter().position(|(parting, ..)| *parting == holder);
        let Some(place) = place else { return };
        let (_, terms, cancellation) = &mut self.partings[place];
        let terms = *terms;
        let actions = cancellation.step(now, event);
        if let Some(left) = self.perform(stage, holder, terms, actions) {
            self.partings.swap_remove(place);
            if !left.is_empty() {
                stage.tally.count(Count::UnconfirmedCancellation);
            }
        }
    }

    fn perform<T>(
        &self,
        stage: &mut Stage,
        holder: Holder,
        terms: Terms,
        actions: Vec<Action<T>>,
    ) -> Option<T> {
        let mut done = None;
        for action in actions {
            match action {
                Action::Send { node, round, request } => {
                    let ttl = nanos(terms.ttl());
                    stage.send(self.number, node, Ask::Quorum { holder, ttl, round, request });
                }
                Action::WakeAt(at) => stage.wake(self.clock.when(at), self.number, Timer::Machine(holder)),
                Action::Done(outcome) => done = Some(outcome),
            }
        }
        done
    }

    fn conclude(&mut self, stage: &mut Stage, outcome: Outcome) {
        stage.trace(|| format!("client {}: {outcome:?}", self.number));
        match outcome {
            Outcome::Granted(granted) => self.hold(stage, granted),
            Outcome::NotGranted(refusal) => self.try_later(stage, &refusal),
        }
    }

    fn hold(&mut self, stage: &mut Stage, mut granted: Granted) {
        let Work::Trying { holder, terms, began, proposals, .. } = self.work else { return };
        let now = self.now(stage);
        stage.tally.count(if proposals == 0 { Count::HeldAfterOneRound } else { Count::HeldAfterSeveral });
        if stage.scenario.flaw == Flaw::CountsFromTheAnswer {
            granted.counted_from = now;
        }
        stage.tally.count(Count::Holds);
        stage.history.holds.push(Hold {
            holder,
            token: granted.token.get(),
            began,
            returned: stage.now,
            claims: Vec::new(),
        });
        let tenure = Tenure::new(terms, granted);
        let length = Duration::from_nanos(stage.random.between(MS, stage.weather.hold_ms * MS));
        let release_at = if self.is_idle { now.after(terms.ttl() * 2) } else { now.after(length) };
        let mut holding =
            Holding::new(holder, terms, tenure, stage.history.holds.len() - 1, release_at, self.is_idle);
        holding.watch(stage, self.clock);
        let next = holding.next_act(now);
        self.work = Work::Holding(holding);
        self.act_at(stage, next);
    }

    fn judge(&mut self, stage: &mut Stage, verdict: Verdict) {
        stage.trace(|| format!("client {}: {verdict:?}", self.number));
        stage.tally.count(match verdict {
            Verdict::Renewed { .. } => Count::Renewed,
            Verdict::Unconfirmed => Count::UnconfirmedRenewal,
            Verdict::Lost(Loss::Deadline) => Count::DeadlinePassed,
            Verdict::Lost(Loss::Refused) => Count::RefusedLease,
        });
        if matches!(verdict, Verdict::Lost(_)) {
            self.part(stage);
        }
    }

    /// Gives back what is held, and rests; once faults are over it has then done enough.
    fn part(&mut self, stage: &mut Stage) {
        let Work::Holding(holding) = &mut self.work else { return };
        holding.close(stage, self.clock);
        let (holder, terms, hold) = (holding.holder, holding.terms, holding.hold);
        stage.trace(|| format!("client {}: gives back {holder}", self.number));
        self.work = Work::Resting;
        self.cancel(stage, holder, terms);
        if stage.history.holds[hold].began >= stage.weather.calm_from {
            self.finished = true;
            return;
        }
        let pause = stage.random.between(0, stage.weather.rest_ms * MS);
        self.act_in(stage, pause);
    }

    fn cancel(&mut self, stage: &mut Stage, holder: Holder, terms: Terms) {
        self.partings.push((holder, terms, Cancellation::new(terms)));
        self.feed(stage, holder, Event::Began);
    }

    fn try_later(&mut self, stage: &mut Stage, refusal: &Refusal) {
        let Work::Trying { holder, terms, .. } = self.work else { return };
        stage.tally.count(match refusal.why {
            Why::Contended => Count::Contended,
            Why::Quarantined => Count::QuarantinedAttempt,
            Why::Unreachable => Count::Unreachable,
            Why::Late => Count::LateAttempt,
            Why::Outvoted | Why::Exhausted => Count::Outvoted,
        });
        self.work = Work::Resting;
        self.cancel(stage, holder, terms);
        let at = self.retry_at(stage, refusal);
        self.act_at(stage, at);
    }

    fn retry_at(&self, stage: &mut Stage, refusal: &Refusal) -> Moment {
        let now = self.now(stage);
        let jitter = Duration::from_nanos(stage.random.between(MS, 20 * MS));
        let waits_for_seed = refusal.answers.contains(&Answer::Said(Reply::Unseeded));
        match refusal.free_at {
            // Some come early: they do not wait for the ttl of a lock that may be given back before.
            Some(at) if at > now && stage.random.per_mille(300) => now.after(at.since(now) / 3 + jitter),
            Some(at) if at > now => at.after(jitter),
            Some(_) => now.after(back_off(Duration::from_millis(3), stage.random.next())),
            None if waits_for_seed => now.after(Duration::from_millis(150) + jitter),
            None => now.after(Duration::from_millis(40) + jitter * 2),
        }
    }

    fn act_at(&mut self, stage: &mut Stage, at: Moment) {
        self.act += 1;
        stage.wake(self.clock.when(at), self.number, Timer::Act(self.act));
    }

    fn act_in(&mut self, stage: &mut Stage, pause: u64) {
        let at = self.now(stage).after(Duration::from_nanos(pause));
        self.act_at(stage, at);
    }
}

fn count_answer(stage: &mut Stage, event: Event) {
    if let Event::Replied { reply, .. } = event {
        match reply {
            Reply::Stale { .. } => stage.tally.count(Count::StaleProposal),
            Reply::NoLock => stage.tally.count(Count::ProposalWithoutLock),
            _ => {}
        }
    }
}
