//! Clocks that run a little wrong. True time is in nanoseconds from the start of a run.

use fencepost_core::Moment;

use crate::random::Random;

pub(crate) const MS: u64 = 1_000_000;

/// What a clock shows: its own start, and so many parts in a million too fast.
#[derive(Clone, Copy)]
pub(crate) struct LocalClock {
    pub(crate) start: u64,
    pub(crate) rate: i64,
}

impl LocalClock {
    /// Within half a thousandth of true time, so that two of them are within the thousandth that deadlines allow for.
    pub(crate) fn draw(random: &mut Random) -> Self {
        Self { start: random.between(1_000 * MS, 1_000_000 * MS), rate: random.rate(500) }
    }

    pub(crate) fn read(self, now: u64) -> u64 {
        (self.start + now).saturating_add_signed(self.drift(now))
    }

    pub(crate) fn moment(self, now: u64) -> Moment {
        Moment::from_nanos(self.read(now))
    }

    /// The first true moment at which it shows at least `moment`.
    pub(crate) fn when(self, moment: Moment) -> u64 {
        let shown = moment.as_nanos();
        let mut now = shown.saturating_sub(self.start);
        for _ in 0..3 {
            now = (now + shown).saturating_sub(self.read(now));
        }
        while self.read(now) < shown {
            now += 1;
        }
        now
    }

    fn drift(self, now: u64) -> i64 {
        i64::try_from(now).expect("a short run") / 1_000 * self.rate / 1_000
    }
}
