//! How long a holder may believe in its lease, and how often the lease is renewed. Pure arithmetic.
//!
//! Invariant: a deadline is counted from before the request that earned it was sent, so it ends before the store can
//! have given the lock to anybody else.

use std::time::Duration;

use crate::clock::Moment;

/// What is subtracted for the resolution of the clocks and for being woken late.
const DELTA: Duration = Duration::from_millis(2);

/// Relative rate error between the holder's clock and the store's that is allowed for, as a divisor: one in a thousand
/// (NTP slews at most half of that on either side).
const RATE_DIVISOR: u32 = 1_000;

/// The longest default time between SIGTERM and SIGKILL.
const GRACE_MOST: Duration = Duration::from_secs(5);

/// The moment by which a holder must have finished acting; never for a lease that cannot run out.
///
/// With a request sent at `s` and a term of `T` promised by the store, it is `s + T(1 - 1/1000) - 2 ms`: at any earlier
/// moment the store has not freed the lock, because it applied the request after `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Moment>);

impl Deadline {
    /// The lease does not run out.
    pub const NEVER: Self = Self(None);

    /// The deadline of a term of `ttl` whose request was sent at `counted_from`.
    pub fn of(counted_from: Moment, ttl: Option<Duration>) -> Self {
        Self(ttl.map(|ttl| counted_from.after(ttl.saturating_sub(ttl / RATE_DIVISOR + DELTA))))
    }

    /// The deadline at `moment`.
    pub fn at(moment: Moment) -> Self {
        Self(Some(moment))
    }

    /// The moment itself.
    pub fn moment(self) -> Option<Moment> {
        self.0
    }

    /// Whether it has come.
    pub fn passed(self, now: Moment) -> bool {
        self.0.is_some_and(|deadline| now >= deadline)
    }

    /// The time left; `None` if it never comes.
    pub fn remaining(self, now: Moment) -> Option<Duration> {
        self.0.map(|deadline| deadline.since(now))
    }

    /// The later of two. A lease that runs out goes on doing so, whatever a renewal says.
    pub fn latest(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(ours), Some(theirs)) => Self(Some(ours.max(theirs))),
            (ours, theirs) => Self(ours.or(theirs)),
        }
    }
}

/// The time between SIGTERM and SIGKILL where none was asked for: five seconds or a quarter of the lease, whichever is
/// less.
pub fn default_grace(ttl: Duration) -> Duration {
    GRACE_MOST.min(ttl / 4)
}

/// In how many steps of a period leases are renewed, and how many slots for leases there are in half a period.
const STEPS: u32 = 64;
const SLOTS: u32 = STEPS / 2;

/// When to renew: so often that a lost try or two never bring a healthy holder near its deadline less the grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    period: Duration,
    slot: Option<u32>,
}

impl Cadence {
    /// The cadence for a term of `ttl` with a stop that takes up to `grace`.
    pub fn new(ttl: Duration, grace: Duration) -> Self {
        Self { period: ttl.saturating_sub(grace) / 4, slot: None }
    }

    /// Renews only in the slot that a `share` of the lease's own falls into. Those in one slot are renewed at one moment, so that a process
    /// which keeps thousands wakes up a few times a second, and not for each of them. Those of one burst are renewed apart: after
    /// they were acquired, and after a pause or a failure that has hit all of them.
    pub fn in_slot(self, share: u16) -> Self {
        Self { slot: Some(u32::from(share) * SLOTS / (u32::from(u16::MAX) + 1)), ..self }
    }

    /// When to renew next, after the term that was asked for at `tried_at`: a period later, or less than half a period before that, when
    /// the slot comes.
    pub fn next(self, tried_at: Moment) -> Moment {
        let latest = tried_at.after(self.period);
        let Some(slot) = self.slot else { return latest };
        let step = u64::try_from((self.period / STEPS).as_nanos()).unwrap_or(u64::MAX).max(1);
        let steps = latest.as_nanos() / step;
        let beyond = (steps + u64::from(SLOTS - slot)) % u64::from(SLOTS);
        Moment::from_nanos(steps.saturating_sub(beyond).saturating_mul(step))
    }

    /// When a try that begins at `now` is given up.
    pub fn give_up_at(self, now: Moment) -> Moment {
        now.after(self.period / 2)
    }

    /// When to try again after `failures` failures in a row: soon, then less often, and always well before `deadline`.
    pub fn retry_at(self, now: Moment, failures: u32, deadline: Deadline) -> Moment {
        let pause = (self.period / 16) * 2_u32.saturating_pow(failures.saturating_sub(1).min(4));
        let pause = deadline.remaining(now).map_or(pause, |left| pause.min(left / 4));
        now.after(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn deadline_ends_before_the_term() {
        let sent = Moment::from_nanos(1_000);
        let deadline = Deadline::of(sent, Some(Duration::from_secs(10))).moment().unwrap();
        assert_eq!(deadline.since(sent), Duration::from_millis(9_988));
    }

    #[test]
    fn lease_without_ttl_never_ends() {
        let deadline = Deadline::of(Moment::from_nanos(5), None);
        assert!(!deadline.passed(Moment::from_nanos(u64::MAX)));
        assert_eq!(deadline.remaining(Moment::from_nanos(0)), None);
    }

    proptest! {
        #[test]
        fn any_term_ends_within_itself(sent in 0..u64::MAX / 4, ttl_ms in 0..1_000_000_000_u64) {
            let (sent, ttl) = (Moment::from_nanos(sent), Duration::from_millis(ttl_ms));
            let deadline = Deadline::of(sent, Some(ttl)).moment().unwrap();
            prop_assert!(deadline >= sent && deadline <= sent.after(ttl));
            prop_assert!(ttl < Duration::from_millis(3) || deadline < sent.after(ttl));
        }

        /// Nobody is renewed late, nor much too early.
        #[test]
        fn slot_comes_in_the_last_half_of_a_period(ttl_ms in 100..3_600_000_u64, tried in 0..u64::MAX / 4, share in any::<u16>()) {
            let ttl = Duration::from_millis(ttl_ms);
            let cadence = Cadence::new(ttl, default_grace(ttl)).in_slot(share);
            let (tried, latest) = (Moment::from_nanos(tried), Moment::from_nanos(tried).after(cadence.period));
            let next = cadence.next(tried);
            prop_assert!(next <= latest && latest.since(next) < cadence.period / 2);
        }

        /// Also where it is renewed late, and then those of one slot are still renewed at one moment.
        #[test]
        fn lease_stays_in_its_slot(ttl_ms in 100..3_600_000_u64, tried in 0..u64::MAX / 4, share in any::<u16>(), late in 0..63_u32) {
            let ttl = Duration::from_millis(ttl_ms);
            let cadence = Cadence::new(ttl, default_grace(ttl)).in_slot(share);
            let first = cadence.next(Moment::from_nanos(tried));
            let second = cadence.next(first.after(cadence.period / 128 * late));
            prop_assert_eq!(second.since(first), cadence.period / STEPS * STEPS);
        }

        #[test]
        fn two_lost_tries_leave_the_grace(ttl_ms in 1_000..3_600_000_u64) {
            let ttl = Duration::from_millis(ttl_ms);
            let (sent, grace) = (Moment::from_nanos(0), default_grace(ttl));
            let cadence = Cadence::new(ttl, grace);
            let deadline = Deadline::of(sent, Some(ttl));
            let mut now = cadence.next(sent);
            for failures in 1..=2 {
                now = cadence.retry_at(cadence.give_up_at(now), failures, deadline);
            }
            prop_assert!(cadence.give_up_at(now) < deadline.moment().unwrap().before(grace));
        }
    }
}
