//! When a node that may have lost its data may grant again, and from which token on.
//!
//! A quarantine of the longest ttl repairs the locks of such a node, but its counters are gone for good, and R1 and R2
//! rest on them. Invariant: a node is seeded with a floor that is not below any token that it has acknowledged before,
//! as long as the data of no more than q - 1 nodes was lost at a time.

use std::time::Duration;

use fencepost_core::FencingToken;

use super::nodes::Quorum;

/// What a node says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// It grants.
    Ready {
        /// The greatest token that it knows of, over all locks: what was proposed here **or** its own floor, whichever
        /// is greater. Without the floor, a node seeded earlier would pass on less than it was given.
        max: Option<FencingToken>,
    },
    /// It may have lost data, and others may still hold what it has forgotten.
    Quarantined {
        /// For how long.
        ready_in: Duration,
    },
    /// It has sat out its quarantine and waits for its floor.
    Unseeded {
        /// The greatest token that it still knows of.
        max: Option<FencingToken>,
    },
    /// It says nothing.
    Unreachable,
}

/// What to do about a node that waits for its floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Give it this floor.
    Seed(Seed),
    /// Read the nodes again later.
    Wait,
}

/// A floor for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    /// Every token of the node will be above it; `None` if nobody knows of any token.
    pub floor: Option<FencingToken>,
    /// What says that it is high enough.
    pub basis: Basis,
}

/// What says that a floor is high enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The memory of the other nodes; see [`decide`].
    Witnesses,
    /// The wall clocks of those who ask for locks, and nothing else: a majority has lost its data.
    WallClock,
}

/// Whether `node`, which waits for its floor, can be given one, from what all nodes say of themselves.
///
/// The others must be read **after** the node said that it waits, and the floor must be given to the incarnation that
/// said so: otherwise a lease may be granted between the reading and the loss of data that it is to repair.
///
/// With N - q + 1 others ready it is their greatest token. Proof: let the node have acknowledged a lease before it lost
/// its data. That attempt returned within its ttl, so before the end of the quarantine and before the reading, and
/// another q - 1 of the N - 1 others have acknowledged it. N - q + 1 of them cannot miss all of those. With f nodes lost
/// at a time, f below q, the same holds with q - f of N - f.
///
/// Can so many never be ready, because the data of a majority was lost, or because there never was any (the first
/// installation), then the greatest token that anybody knows of has to do, once a majority answers and none of them may
/// yet be owed a quarantine. It proves nothing: that tokens still grow rests on the floor from the wall clock alone
/// (the clocks must agree to within the quarantine). A node that cannot be reached may be the one that remembers, so
/// one that could complete the witnesses is waited for; a node that is gone for good is replaced by an empty one.
pub fn decide(quorum: Quorum, node: usize, readings: &[Reading]) -> Decision {
    let Some(Reading::Unseeded { .. }) = readings.get(node) else { return Decision::Wait };
    let others =
        || readings.iter().enumerate().filter(|(other, _)| *other != node).map(|(_, reading)| reading);
    let count = |is: fn(&Reading) -> bool| others().filter(|reading| is(reading)).count();
    let floor = readings.iter().filter_map(Reading::max).max();
    let ready = count(Reading::is_ready);
    if ready >= quorum.witnesses() {
        return Decision::Seed(Seed { floor, basis: Basis::Witnesses });
    }
    let unreachable = count(Reading::is_unreachable);
    let may_remember = ready + unreachable >= quorum.witnesses();
    let answering = quorum.nodes() - unreachable;
    if may_remember || answering < quorum.majority() || count(Reading::is_quarantined) > 0 {
        return Decision::Wait;
    }
    Decision::Seed(Seed { floor, basis: Basis::WallClock })
}

impl Reading {
    fn max(&self) -> Option<FencingToken> {
        match self {
            Self::Ready { max } | Self::Unseeded { max } => *max,
            Self::Quarantined { .. } | Self::Unreachable => None,
        }
    }

    fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }

    fn is_quarantined(&self) -> bool {
        matches!(self, Self::Quarantined { .. })
    }

    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARANTINED: Reading = Reading::Quarantined { ready_in: Duration::from_secs(1) };

    fn token(number: u64) -> Option<FencingToken> {
        FencingToken::try_from(number).ok()
    }

    fn ready(max: u64) -> Reading {
        Reading::Ready { max: token(max) }
    }

    fn unseeded(max: u64) -> Reading {
        Reading::Unseeded { max: token(max) }
    }

    fn decided(readings: &[Reading]) -> Decision {
        decide(Quorum::of(readings.len()).unwrap(), 0, readings)
    }

    fn seed(floor: u64, basis: Basis) -> Decision {
        Decision::Seed(Seed { floor: token(floor), basis })
    }

    #[test]
    fn node_takes_the_greatest_token_of_its_witnesses() {
        assert_eq!(decided(&[unseeded(0), ready(7), ready(9)]), seed(9, Basis::Witnesses));
        let five = [unseeded(0), ready(7), ready(9), QUARANTINED, ready(3)];
        assert_eq!(decided(&five), seed(9, Basis::Witnesses));
    }

    #[test]
    fn node_that_may_remember_is_waited_for() {
        assert_eq!(decided(&[unseeded(0), ready(7), Reading::Unreachable]), Decision::Wait);
        assert_eq!(decided(&[unseeded(0), Reading::Unreachable, Reading::Unreachable]), Decision::Wait);
    }

    #[test]
    fn majority_without_data_waits_for_every_quarantine() {
        assert_eq!(decided(&[unseeded(0), ready(7), QUARANTINED]), Decision::Wait);
        assert_eq!(decided(&[unseeded(0), ready(7), unseeded(4)]), seed(7, Basis::WallClock));
        assert_eq!(decided(&[unseeded(0), Reading::Unreachable, unseeded(4)]), seed(4, Basis::WallClock));
    }

    #[test]
    fn first_installation_does_not_wait_for_itself() {
        assert_eq!(decided(&[unseeded(0); 3]), seed(0, Basis::WallClock));
        assert_eq!(decided(&[unseeded(0), ready(0), unseeded(0)]), seed(0, Basis::WallClock));
        assert_eq!(decided(&[unseeded(0), ready(0), ready(0)]), seed(0, Basis::Witnesses));
    }

    #[test]
    fn node_that_does_not_wait_gets_no_floor() {
        assert_eq!(decided(&[ready(3), ready(7), ready(9)]), Decision::Wait);
    }
}
