//! How long a lock stays taken after its release, and how another process is told.

use std::time::Duration;

use fencepost_core::{Clock, Moment};

use crate::record::micros;

/// Until when a lock stays taken, also if it is released before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    until: Moment,
    /// How long it was to be from the grant on.
    at_least: Duration,
}

impl Rest {
    /// A rest that is counted from now.
    pub(crate) fn from_now(at_least: Duration, clock: &Clock) -> Self {
        Self { until: clock.now().after(at_least), at_least }
    }

    /// What is left of it; nothing where it is over.
    pub(crate) fn left(&self, clock: &Clock) -> Duration {
        self.until.since(clock.now())
    }

    /// The rest as another process reads it, perhaps on another host: by the wall clock, since no two hosts share another one.
    pub(crate) fn text(&self, clock: &Clock) -> String {
        let until = clock.wall_micros().saturating_add(micros(self.left(clock)));
        format!("{until}+{}", micros(self.at_least))
    }

    /// The same read back. A wall clock that is behind makes it no longer than it was to be from the grant on.
    pub(crate) fn read(text: &str, clock: &Clock) -> Option<Self> {
        let (until, at_least) = text.split_once('+')?;
        let (until, at_least): (u64, u64) = (until.parse().ok()?, at_least.parse().ok()?);
        let left = until.saturating_sub(clock.wall_micros()).min(at_least);
        let until = clock.now().after(Duration::from_micros(left));
        Some(Self { until, at_least: Duration::from_micros(at_least) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::VirtualTime;

    const REST: Duration = Duration::from_mins(1);
    const PASSED: Duration = Duration::from_secs(20);

    /// Another host has been up for another time; its wall clock may be wrong.
    fn left_on_another_host(skew_micros: i64) -> Duration {
        let (here, there) = (VirtualTime::new(1), VirtualTime::new(2));
        there.pass(Duration::from_hours(500));
        let rest = Rest::from_now(REST, &here.clock());
        here.pass(PASSED);
        let apart = i128::from(here.clock().wall_micros()) - i128::from(there.clock().wall_micros());
        there.step_wall(i64::try_from(apart).unwrap() + skew_micros);
        Rest::read(&rest.text(&here.clock()), &there.clock()).unwrap().left(&there.clock())
    }

    #[test]
    fn rest_goes_on_on_another_host() {
        assert_eq!(left_on_another_host(0) + PASSED, REST);
    }

    #[test]
    fn wall_clock_that_is_wrong_makes_no_rest_longer_than_it_was_to_be() {
        let hour = 3_600_000_000;
        assert_eq!(left_on_another_host(-hour), REST);
        assert_eq!(left_on_another_host(hour), Duration::ZERO);
    }

    #[test]
    fn what_is_no_rest_is_none() {
        let clock = VirtualTime::new(1).clock();
        for text in ["", "1", "1+", "+1", "-1+1", "1+x", "99999999999999999999+1"] {
            assert!(Rest::read(text, &clock).is_none(), "{text}");
        }
    }
}
