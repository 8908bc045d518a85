//! Whether somebody has set the server's clock: its leases end by that clock.
//!
//! Each reply that carries the server's time says between what bounds the difference to our clock lies. Two such statements that
//! contradict each other by more than clocks drift prove a step. <https://redis.io/docs/latest/commands/expire/>

use std::sync::Mutex;
use std::time::Duration;

use fencepost_core::{Moment, lock};

/// What is known of the server's clock.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Seen>>);

/// The bounds of the difference between the clocks, in milliseconds, and when they held.
#[derive(Clone, Copy, Debug)]
struct Seen {
    least: i64,
    most: i64,
    at: Moment,
}

/// How much two good clocks drift apart, as a divisor; a slewed clock drifts as fast.
const DRIFT_DIVISOR: u32 = 1_000;

/// What the rounding of milliseconds can do.
const ROUNDING_MS: i64 = 2;

impl ServerClock {
    /// Takes note of the time in a reply to what was sent at `sent` and has arrived by `received`. The step in milliseconds,
    /// where there has been one: positive when the clock was set forward.
    pub(crate) fn note(&self, server_ms: i64, sent: Moment, received: Moment) -> Option<i64> {
        let seen = Seen {
            least: server_ms - ms(received) - ROUNDING_MS,
            most: server_ms - ms(sent) + ROUNDING_MS,
            at: received,
        };
        let mut known = lock(&self.0);
        let before = known.replace(seen)?;
        let drift = in_ms(received.since(before.at) / DRIFT_DIVISOR) + 1;
        if seen.least > before.most + drift {
            return Some(seen.least - before.most);
        }
        (seen.most < before.least - drift).then(|| seen.most - before.least)
    }

    /// Forgets everything: this is another server now.
    pub(crate) fn forget(&self) {
        *lock(&self.0) = None;
    }
}

fn ms(moment: Moment) -> i64 {
    in_ms(Duration::from_nanos(moment.as_nanos()))
}

fn in_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn steps_are_seen_in_both_directions() {
        let clock = ServerClock::default();
        assert_eq!(clock.note(5_000, at(1_000), at(1_010)), None);
        assert_eq!(clock.note(46_000, at(2_000), at(2_010)), Some(39_986));
        assert_eq!(clock.note(7_000, at(3_000), at(3_010)), Some(-39_986));
    }

    proptest! {
        /// However long the replies take, and however the clocks drift within a thousandth.
        #[test]
        fn slow_replies_and_drift_are_no_steps(replies in prop::collection::vec((0..60_000_u64, 0..9_000_u64, 0..9_000_u64), 2..30), slow in any::<bool>()) {
            let clock = ServerClock::default();
            let mut now = 1_000_000;
            for (pause, there, back) in replies {
                let sent = now + pause;
                let applied = sent + there;
                now = applied + back;
                let drift = (applied / 1_000).cast_signed() * if slow { -1 } else { 1 };
                prop_assert_eq!(clock.note(applied.cast_signed() + drift, at(sent), at(now)), None);
            }
        }
    }
}
