//! When which fault strikes, drawn from the seed before anything is started.
//!
//! Invariant: a schedule follows from the seed, the pattern's kind and the fault alone; the fence changes nothing in it, so the
//! same thing happens without and with it.

use std::fmt;

use fencepost::{Clock, VirtualTime};

use crate::fault::{Fault, Loss, Partition};
use crate::pattern::Pattern;

/// One strike of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) act: Act,
    /// After so many grants it strikes the next holder that comes to the point.
    pub(crate) after: u64,
    pub(crate) point: Point,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Pause,
    Crash,
    Partition(Partition),
    StepClock,
    Restart {
        /// For so many leases the servers are down.
        leases: u32,
    },
    Lose(Loss),
}

impl Act {
    /// What is done, in words.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Pause => "the holder is stopped".to_owned(),
            Self::Crash => "the holder is killed".to_owned(),
            Self::Partition(how) => {
                format!("the holder's link to the servers of the lock {}", how.describe())
            }
            Self::StepClock => "the clocks of the servers of the lock are set forward".to_owned(),
            Self::Restart { leases: 0 } => "the servers of the lock are killed and started again".to_owned(),
            Self::Restart { leases } => {
                format!("the servers of the lock are killed, and started again {leases} leases later")
            }
            Self::Lose(how) => format!("the servers of the lock {}", how.describe()),
        }
    }
}

/// Where in its hold a holder is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// It has read, and has not looked whether it still holds the lock.
    BeforeTheCheck,
    /// It has looked, and has not written.
    BetweenCheckAndWrite,
}

/// The strikes of one cell.
pub(crate) fn strikes(seed: u64, pattern: Pattern, fault: Fault, rounds: u32) -> Vec<Strike> {
    let time = VirtualTime::new(mixed(seed, pattern.kind.name(), fault.name()));
    let clock = time.clock();
    (0..rounds).filter_map(|round| strike(&clock, pattern, fault, round)).collect()
}

fn strike(clock: &Clock, pattern: Pattern, fault: Fault, round: u32) -> Option<Strike> {
    let after = 2 + clock.random() % 4;
    // The first round is the one that a fence is for.
    let is_before = clock.random().is_multiple_of(3) && round > 0 && fault == Fault::Pause;
    let point = if is_before { Point::BeforeTheCheck } else { Point::BetweenCheckAndWrite };
    Some(Strike { act: act(clock, pattern, fault, round)?, after, point })
}

fn act(clock: &Clock, pattern: Pattern, fault: Fault, round: u32) -> Option<Act> {
    Some(match fault {
        Fault::None => return None,
        Fault::Pause => Act::Pause,
        Fault::Crash => Act::Crash,
        Fault::Partition => Act::Partition(one_of(clock, pattern.kind.facts().partitions)),
        Fault::Clock => Act::StepClock,
        Fault::ServerRestart => Act::Restart { leases: if round == 0 { 2 } else { one_of(clock, &[0, 2]) } },
        Fault::DataLoss => Act::Lose(one_of(clock, pattern.kind.facts().losses)),
    })
}

fn one_of<T: Copy>(clock: &Clock, choices: &[T]) -> T {
    let count = u64::try_from(choices.len()).expect("there are a few");
    choices[usize::try_from(clock.random() % count).expect("it is less than their number")]
}

/// FNV-1a (Fowler, Noll and Vo) of the words, over the seed.
fn mixed(seed: u64, kind: &str, fault: &str) -> u64 {
    let words = seed.to_le_bytes().into_iter().chain(kind.bytes()).chain([b'/']).chain(fault.bytes());
    words.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.act.describe())?;
        let point = match self.point {
            Point::BeforeTheCheck => "before its check",
            Point::BetweenCheckAndWrite => "between its check and its write",
        };
        write!(f, ", {point}, after {} grants", self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(seed: u64, pattern: &str) -> Vec<Strike> {
        let pattern = pattern.parse().unwrap();
        Fault::ALL.into_iter().flat_map(|fault| strikes(seed, pattern, fault, 20)).collect()
    }

    #[test]
    fn same_seed_gives_the_same_schedule_without_and_with_the_fence() {
        assert_eq!(schedule(7, "redis"), schedule(7, "redis"));
        assert_eq!(schedule(7, "redis"), schedule(7, "redis+fence"));
    }

    #[test]
    fn another_seed_or_pattern_gives_another_schedule() {
        assert_ne!(schedule(7, "redis"), schedule(8, "redis"));
        // They choose among the same faults.
        assert_ne!(schedule(7, "none"), schedule(7, "file"));
    }

    #[test]
    fn first_strike_is_between_check_and_write() {
        for seed in 0..50 {
            let strikes = strikes(seed, "redis".parse().unwrap(), Fault::Pause, 3);
            assert_eq!(strikes[0].point, Point::BetweenCheckAndWrite);
        }
    }

    #[test]
    fn every_way_to_be_cut_off_is_drawn() {
        let drawn = schedule(1, "redlock");
        for how in [Partition::Blackhole, Partition::Cut, Partition::RepliesLost, Partition::Slow] {
            assert!(drawn.iter().any(|strike| strike.act == Act::Partition(how)), "{how:?}");
        }
    }
}
