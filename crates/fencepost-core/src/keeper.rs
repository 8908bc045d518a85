//! What keeps a lease: a pure state machine that says when to renew and when the lease counts as lost.
//!
//! It does nothing itself and reads no clock; `lease/` drives it on fencepost's own thread. Invariants: a lease that
//! was lost is never held again, only an acknowledged renewal moves the deadline, and a lease that is overdue is held again
//! only where its holder has asked for it.

use std::time::Duration;

use crate::backend::Renewal;
use crate::clock::Moment;
use crate::deadline::{Cadence, Deadline};
use crate::error::{Error, ErrorKind, LossReason};
use crate::profile::Assured;

/// The state of one lease's keeping.
#[derive(Debug)]
pub(crate) struct Keeper {
    deadline: Deadline,
    grace: Option<Duration>,
    /// How much of a ttl is certain after a renewal.
    assured: Assured,
    cadence: Option<Cadence>,
    /// What sets it apart from other leases that were acquired at the same moment.
    share: Option<u16>,
    phase: Phase,
    failures: u32,
    /// Whether the store keeps the lock beyond the deadline, as long as its session lives.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Held, and nothing to do until then.
    Resting(Option<Moment>),
    /// A renewal is under way, since that moment.
    Renewing(Moment),
    /// Past its deadline, at a store that may keep it all the same.
    Overdue,
    /// Gone.
    Lost,
}

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The moment that was waited for has come, or a renewal has taken too long.
    Woke,
    /// The store has acknowledged a renewal.
    Renewed(Renewal),
    /// A renewal has failed.
    Failed(Error),
    /// The store has acknowledged, after the holder asked, that an overdue lease is still its own.
    Revalidated(Renewal),
    /// The store says that the lease is gone.
    Gone(Error),
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing before that moment; nothing at all with `None`.
    Wait(Option<Moment>),
    /// Renew, and give up at that moment.
    Renew(Moment),
    /// Tell the holder that the lease is overdue: it is not to be believed in unless the holder asks the store.
    Overdue(Error),
    /// Tell the holder that the lease is lost.
    Lose(Error),
}

impl Keeper {
    /// The keeping of a term that was just granted. `grace` is what a stop of the holder's work takes, and `assured` how much of a
    /// ttl is certain after a renewal.
    pub(crate) fn new(now: Moment, term: Renewal, grace: Option<Duration>, assured: Assured) -> Self {
        let mut keeper = Self {
            deadline: Deadline::NEVER,
            grace,
            assured,
            cadence: None,
            share: None,
            phase: Phase::Resting(None),
            failures: 0,
            is_kept: false,
        };
        keeper.enter(now, term);
        keeper
    }

    /// Renews apart from other leases that were acquired at this moment, by a `share` of the lease's own.
    pub(crate) fn spread(mut self, now: Moment, share: u16) -> Self {
        self.share = Some(share);
        self.rest(now);
        self
    }

    /// The store keeps the lock beyond the deadline, as long as its session lives.
    pub(crate) fn kept(mut self, is_kept: bool) -> Self {
        self.is_kept = is_kept;
        self
    }

    /// Until when the holder may believe in its lease.
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// What to do, given what happened.
    pub(crate) fn step(&mut self, now: Moment, event: Event) -> Action {
        if self.phase == Phase::Lost {
            return Action::Wait(None);
        }
        if let Event::Gone(error) = event {
            return self.lose(error);
        }
        if self.phase == Phase::Overdue {
            return self.step_overdue(now, event);
        }
        // An acknowledgement that arrives after the deadline comes too late: the store may have granted anew before it.
        if self.deadline.passed(now) {
            return self.pass_deadline(now, event);
        }
        match event {
            Event::Renewed(term) => self.enter(self.tried_at().unwrap_or(now), term),
            Event::Failed(error) if error.kind() == ErrorKind::Lost => return self.lose(error),
            Event::Failed(_) => self.retry(now),
            Event::Woke if self.tried_at().is_some() => self.retry(now),
            Event::Woke | Event::Gone(_) | Event::Revalidated(_) => {}
        }
        self.next(now)
    }

    fn pass_deadline(&mut self, now: Moment, event: Event) -> Action {
        let error = passed_deadline();
        if !self.is_kept {
            return self.lose(error);
        }
        self.phase = Phase::Overdue;
        match event {
            // The holder has noticed before anybody else, and has asked.
            Event::Revalidated(_) => self.step_overdue(now, event),
            Event::Failed(ref error) if error.kind() == ErrorKind::Lost => self.step_overdue(now, event),
            _ => Action::Overdue(error),
        }
    }

    fn step_overdue(&mut self, now: Moment, event: Event) -> Action {
        match event {
            Event::Failed(error) if error.kind() == ErrorKind::Lost => self.lose(error),
            Event::Revalidated(term) => {
                self.enter(now, term);
                if self.deadline.passed(now) { self.pass_deadline(now, Event::Woke) } else { self.next(now) }
            }
            // A renewal that was under way tells what the holder has not asked.
            _ => Action::Wait(None),
        }
    }

    fn next(&mut self, now: Moment) -> Action {
        match (self.phase, self.cadence) {
            (Phase::Resting(Some(at)), Some(cadence)) if now >= at => {
                self.phase = Phase::Renewing(now);
                Action::Renew(self.within_deadline(cadence.give_up_at(now)))
            }
            (Phase::Resting(Some(at)), _) => Action::Wait(Some(self.within_deadline(at))),
            _ => Action::Wait(self.deadline.moment()),
        }
    }

    /// The next renewal is counted from the last try and not from the term: a store may count that from long ago.
    fn enter(&mut self, tried_at: Moment, term: Renewal) {
        self.failures = 0;
        self.cadence = term.ttl.map(|ttl| {
            let certain = self.assured.of(ttl);
            // A store may grant less than was asked for; half of it is left for the work all the same.
            let grace =
                self.grace.unwrap_or_else(|| crate::deadline::default_grace(certain)).min(certain / 2);
            Cadence::new(certain, grace)
        });
        self.deadline = self.deadline.latest(Deadline::of(term.counted_from, term.ttl));
        self.rest(tried_at);
    }

    fn rest(&mut self, tried_at: Moment) {
        let in_slot = |cadence: Cadence| self.share.map_or(cadence, |share| cadence.in_slot(share));
        self.phase = Phase::Resting(self.cadence.map(|cadence| in_slot(cadence).next(tried_at)));
    }

    fn tried_at(&self) -> Option<Moment> {
        match self.phase {
            Phase::Renewing(since) => Some(since),
            Phase::Resting(_) | Phase::Overdue | Phase::Lost => None,
        }
    }

    fn retry(&mut self, now: Moment) {
        self.failures += 1;
        let at = self.cadence.map(|cadence| cadence.retry_at(now, self.failures, self.deadline));
        self.phase = Phase::Resting(at);
    }

    fn lose(&mut self, error: Error) -> Action {
        self.phase = Phase::Lost;
        Action::Lose(error)
    }

    fn within_deadline(&self, at: Moment) -> Moment {
        self.deadline.moment().map_or(at, |deadline| at.min(deadline))
    }
}

/// The loss by time alone.
pub(crate) fn passed_deadline() -> Error {
    Error::lost(LossReason::Deadline, "it was not renewed before its deadline")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TTL: Duration = Duration::from_secs(8);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn term(ms: u64) -> Renewal {
        Renewal { ttl: Some(TTL), counted_from: at(ms) }
    }

    fn failure() -> Event {
        Event::Failed(Error::new(ErrorKind::Unavailable, "renew the lease", "nobody there"))
    }

    #[test]
    fn healthy_lease_is_renewed_well_before_its_deadline() {
        let mut keeper = Keeper::new(at(0), term(0), None, Assured::Whole);
        let Action::Wait(Some(first)) = keeper.step(at(1), Event::Woke) else { panic!("it waits") };
        assert!(matches!(keeper.step(first, Event::Woke), Action::Renew(_)));
        assert!(first < at(2_000));
    }

    /// Keeps `keepers` until `end`, with a store that answers at once, or with a failure until it is `well_at`; how many renewals it got at
    /// each moment from then on. Nothing is done between `paused` and `resumed`.
    fn keep_until(
        end: Moment,
        keepers: &mut [Keeper],
        pause: [Moment; 2],
        well_at: Moment,
    ) -> BTreeMap<Moment, usize> {
        let [paused, resumed] = pause;
        let mut renewals = BTreeMap::new();
        for keeper in keepers {
            let (mut now, mut event) = (at(0), Event::Woke);
            while now < end {
                event = match keeper.step(now, event) {
                    Action::Wait(Some(next)) => {
                        now = if next > paused && next < resumed { resumed } else { next };
                        Event::Woke
                    }
                    Action::Renew(_) if now < well_at => failure(),
                    Action::Renew(_) => {
                        *renewals.entry(now).or_default() += 1;
                        Event::Renewed(Renewal { ttl: Some(TTL), counted_from: now })
                    }
                    lost => panic!("{lost:?} at {now:?}"),
                };
            }
        }
        renewals
    }

    fn burst_of_keepers() -> Vec<Keeper> {
        let new = |share: u16| Keeper::new(at(0), term(0), None, Assured::Whole).spread(at(0), share * 64);
        (0..1_024_u16).map(new).collect()
    }

    /// Of the periods from `from` on, the most renewals at one moment.
    fn most_from(from: Moment, renewals: &BTreeMap<Moment, usize>) -> usize {
        renewals.range(from..).map(|(_, count)| *count).max().unwrap()
    }

    #[test]
    fn leases_of_one_burst_are_renewed_apart_from_each_other() {
        let renewals = keep_until(at(9_000), &mut burst_of_keepers(), [at(0), at(0)], at(0));
        assert_eq!(most_from(at(0), &renewals), 1_024 / 32);
        let moments: Vec<Moment> = renewals.into_keys().collect();
        assert!(moments.len() >= 32 * 5, "in all slots, again and again");
        let step = TTL * 3 / 16 / 64;
        assert!(moments.windows(2).all(|pair| pair[1].since(pair[0]) >= step), "one wakes up once a slot");
    }

    #[test]
    fn leases_that_were_renewed_in_one_burst_after_a_pause_are_renewed_apart_again() {
        let renewals = keep_until(at(12_000), &mut burst_of_keepers(), [at(3_000), at(5_000)], at(0));
        assert_eq!(renewals[&at(5_000)], 1_024, "after the pause all are overdue");
        assert_eq!(most_from(at(5_001), &renewals), 1_024 / 32);
    }

    #[test]
    fn leases_whose_renewals_have_failed_are_renewed_apart_again() {
        let pause = [at(1_000), at(1_600)];
        let renewals = keep_until(at(12_000), &mut burst_of_keepers(), pause, at(1_650));
        assert!(most_from(at(0), &renewals) > 500, "all those that were due try again at one moment");
        assert_eq!(most_from(at(3_000), &renewals), 1_024 / 32);
    }

    #[test]
    fn late_acknowledgement_is_a_loss() {
        let mut keeper = Keeper::new(at(0), term(0), None, Assured::Whole);
        keeper.step(at(2_000), Event::Woke);
        assert!(matches!(keeper.step(at(8_000), Event::Renewed(term(7_999))), Action::Lose(_)));
        assert!(matches!(keeper.step(at(8_001), Event::Renewed(term(8_000))), Action::Wait(None)));
    }

    #[test]
    fn overdue_lease_is_held_again_only_where_its_holder_has_asked() {
        let mut keeper = Keeper::new(at(0), term(0), None, Assured::Whole).kept(true);
        keeper.step(at(2_000), Event::Woke);
        assert!(matches!(keeper.step(at(8_000), Event::Woke), Action::Overdue(_)));
        assert!(matches!(keeper.step(at(8_001), Event::Renewed(term(8_000))), Action::Wait(None)));
        assert!(keeper.deadline().passed(at(8_001)), "a renewal that nobody asked for brought it back");
        assert!(matches!(keeper.step(at(9_000), Event::Revalidated(term(9_000))), Action::Wait(Some(_))));
        assert!(!keeper.deadline().passed(at(9_001)));
        assert!(matches!(keeper.step(at(17_000), Event::Woke), Action::Overdue(_)));
        let refused = Event::Failed(Error::lost(LossReason::Expired, "somebody else holds it"));
        assert!(matches!(keeper.step(at(17_001), refused), Action::Lose(_)));
        assert!(matches!(keeper.step(at(17_002), Event::Revalidated(term(17_002))), Action::Wait(None)));
        assert!(keeper.deadline().passed(at(17_003)));
    }

    #[test]
    fn holder_that_asks_before_the_keeper_has_noticed_is_heard() {
        let mut keeper = Keeper::new(at(0), term(0), None, Assured::Whole).kept(true);
        assert!(matches!(keeper.step(at(9_000), Event::Revalidated(term(9_000))), Action::Wait(Some(_))));
        assert!(!keeper.deadline().passed(at(9_001)));
        let refused = Event::Failed(Error::lost(LossReason::Expired, "somebody else holds it"));
        assert!(matches!(keeper.step(at(18_000), refused), Action::Lose(_)));
    }

    #[test]
    fn refused_renewal_is_a_loss_at_once() {
        let mut keeper = Keeper::new(at(0), term(0), None, Assured::Whole);
        keeper.step(at(2_000), Event::Woke);
        let refused = Event::Failed(Error::lost(LossReason::Expired, "somebody else holds it"));
        assert!(matches!(keeper.step(at(2_001), refused), Action::Lose(_)));
    }

    #[test]
    fn term_that_is_counted_from_long_ago_is_not_renewed_in_a_storm() {
        let mut keeper = Keeper::new(at(4_000), term(0), None, Assured::Whole);
        let Action::Wait(Some(first)) = keeper.step(at(4_001), Event::Woke) else { panic!("it waits") };
        assert!(first > at(5_000));
        assert!(matches!(keeper.step(first, Event::Woke), Action::Renew(_)));
        let Action::Wait(Some(next)) = keeper.step(at(5_600), Event::Renewed(term(2_000))) else {
            panic!("it waits")
        };
        assert!(next > at(6_000));
    }

    #[test]
    fn grace_beyond_what_was_granted_leaves_half_of_it() {
        let mut keeper = Keeper::new(at(0), term(0), Some(TTL * 2), Assured::Whole);
        let Action::Wait(Some(first)) = keeper.step(at(0), Event::Woke) else { panic!("it waits") };
        assert_eq!(first, at(1_000));
    }

    #[test]
    fn lease_of_which_half_is_certain_is_renewed_as_one_of_half_its_ttl() {
        let first = |ttl: Duration, assured| {
            let term = Renewal { ttl: Some(ttl), counted_from: at(0) };
            let mut keeper = Keeper::new(at(0), term, None, assured);
            let Action::Wait(first) = keeper.step(at(0), Event::Woke) else { panic!("it waits") };
            (first, keeper.deadline())
        };
        let (half, whole) = (first(TTL, Assured::Half), first(TTL, Assured::Whole));
        assert_eq!(half.0, first(TTL / 2, Assured::Whole).0);
        assert_eq!(half.1, whole.1, "until when it is believed in is the same");
    }

    #[test]
    fn lease_without_ttl_is_never_renewed() {
        let mut keeper = Keeper::new(at(0), Renewal { ttl: None, counted_from: at(0) }, None, Assured::Whole);
        assert!(matches!(keeper.step(at(1), Event::Woke), Action::Wait(None)));
    }

    proptest! {
        /// Whatever the store answers, and however late: lost by the deadline of the last acknowledged term, once.
        #[test]
        fn no_history_outlives_its_last_acknowledged_term(steps in prop::collection::vec((0..3_u8, 0..3_000_u64), 1..60)) {
            let mut keeper = Keeper::new(at(0), term(0), None, Assured::Whole);
            let (mut now, mut acknowledged, mut lost) = (0, 0, false);
            for (what, pass) in steps {
                now += pass;
                let event = match what {
                    0 => Event::Woke,
                    1 => failure(),
                    _ => Event::Renewed(term(now)),
                };
                let renewed = matches!(event, Event::Renewed(_));
                match keeper.step(at(now), event) {
                    Action::Lose(_) => { prop_assert!(!lost); lost = true; }
                    Action::Overdue(_) => prop_assert!(false, "the store does not keep it"),
                    _ if lost => {}
                    Action::Wait(until) => prop_assert!(until.unwrap() <= keeper.deadline().moment().unwrap()),
                    Action::Renew(give_up) => prop_assert!(give_up <= keeper.deadline().moment().unwrap()),
                }
                if renewed && !lost { acknowledged = now; }
                prop_assert!(lost || at(now) < at(acknowledged).after(TTL));
            }
        }
    }
}
