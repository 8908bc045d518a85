//! What an attempt comes to, and what is to be learned from one that failed.
//!
//! Invariant: `free_at` is never later than the moment at which a quorum comes free by itself, so that who waits for it
//! does not wait too long.

use fencepost_core::{FencingToken, Moment};

use super::message::{Reply, Round};
use super::nodes::{NodeSet, Quorum};

/// What an attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held.
    Granted(Granted),
    /// It is not. Something may be left on any node, also on a silent one: a [`Cancellation`](super::Cancellation)
    /// follows.
    NotGranted(Refusal),
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Its fencing token.
    pub token: FencingToken,
    /// When the term began: before the round was sent that was acknowledged.
    pub counted_from: Moment,
    /// The nodes that have acknowledged it so far.
    pub members: NodeSet,
    /// How many of them may free the lock early; see [`Quorum::slack`].
    pub slack: usize,
    /// The round that was acknowledged. Answers to it that come later go to the [`Tenure`](super::Tenure).
    pub round: Round,
}

/// Why a lock is not held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub why: Why,
    /// What each node said last.
    pub answers: Vec<Answer>,
    /// The earliest moment at which a majority can be free; unknown if too few nodes said so. Not after the present if
    /// they are free: then the votes were split, and [`back_off`](super::back_off) says how long to stay away.
    pub free_at: Option<Moment>,
    /// What may be a lease on nodes of which some said nothing. Without it `free_at` counts it as an attempt, which makes room
    /// within moments; one that does not is a lease.
    pub suspect: Option<Suspect>,
}

/// Somebody else's token on so many nodes that together with the silent ones they make a majority.
///
/// Who tries again and again meanwhile gets nothing, and takes the free nodes from a holder who has to be filled in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suspect {
    /// The token.
    pub token: FencingToken,
    /// The earliest moment at which a majority can be free if it is a lease; unknown if too few nodes said so.
    pub free_at: Option<Moment>,
}

/// The reason why a lock is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Others have the lock, or parts of it.
    Contended,
    /// Nodes that may have lost their data grant nothing yet.
    Quarantined,
    /// Too few nodes answered.
    Unreachable,
    /// The answers took too long, or the process stood still.
    Late,
    /// The lock was had and lost again, or greater tokens were proposed meanwhile.
    Outvoted,
    /// There is no token above the one that was seen.
    Exhausted,
}

/// What a node said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing.
    Silent,
    /// Nothing, and it cannot be reached.
    Unreachable,
    /// This.
    Said(Reply),
}

impl Answer {
    /// When the node can be free, if this was heard `at` that moment; unknown if it did not say so. `held` is the token that a
    /// majority has: with any other token it is an attempt, which makes room.
    ///
    /// A node that waits for its floor counts as unknown: time alone does not make it ready.
    fn free_at(self, at: Moment, held: Option<FencingToken>) -> Option<Moment> {
        match self {
            Self::Said(Reply::Busy { token: Some(token), .. }) if held != Some(token) => Some(at),
            Self::Said(Reply::Busy { remaining, .. }) => remaining.map(|remaining| at.after(remaining)),
            Self::Said(Reply::Quarantined { ready_in }) => Some(at.after(ready_in)),
            Self::Silent | Self::Unreachable | Self::Said(Reply::Unseeded) => None,
            Self::Said(_) => Some(at),
        }
    }

    fn busy_with(self) -> Option<FencingToken> {
        match self {
            Self::Said(Reply::Busy { token, .. }) => token,
            _ => None,
        }
    }

    fn is_missing(self) -> bool {
        matches!(self, Self::Silent | Self::Unreachable)
    }

    fn waits_for_its_data(self) -> bool {
        matches!(self, Self::Said(Reply::Quarantined { .. } | Reply::Unseeded))
    }
}

/// When a majority can be free, from what was heard and when: the q-th earliest of the nodes' moments.
pub(super) fn free_at(quorum: Quorum, heard: &[(Answer, Moment)]) -> Option<Moment> {
    let held = most_seen(heard).filter(|(_, times)| *times >= quorum.majority()).map(|(token, _)| token);
    free_of(quorum, heard, held)
}

/// What may be a lease on the nodes that said so and on those that said nothing.
pub(super) fn suspect(quorum: Quorum, heard: &[(Answer, Moment)]) -> Option<Suspect> {
    let missing = heard.iter().filter(|(answer, _)| answer.is_missing()).count();
    let (token, times) = most_seen(heard)?;
    let may_be_held = times < quorum.majority() && times + missing >= quorum.majority();
    may_be_held.then(|| Suspect { token, free_at: free_of(quorum, heard, Some(token)) })
}

/// When a majority can be free, where `held` is the token of a lease.
fn free_of(quorum: Quorum, heard: &[(Answer, Moment)], held: Option<FencingToken>) -> Option<Moment> {
    let mut moments: Vec<Moment> =
        heard.iter().filter_map(|(answer, at)| answer.free_at(*at, held)).collect();
    moments.sort_unstable();
    moments.get(quorum.majority() - 1).copied()
}

/// Whether `awaited` more answers can still tell whether somebody holds the lock, or several have split the votes.
pub(super) fn may_tell(quorum: Quorum, heard: &[(Answer, Moment)], awaited: usize) -> bool {
    most_seen(heard)
        .is_some_and(|(_, times)| times < quorum.majority() && times + awaited >= quorum.majority())
}

/// The token that most nodes say somebody else has there, and how many they are.
fn most_seen(heard: &[(Answer, Moment)]) -> Option<(FencingToken, usize)> {
    let seen = || heard.iter().filter_map(|(answer, _)| answer.busy_with());
    let times = |token| (token, seen().filter(|other| *other == token).count());
    seen().map(times).max_by_key(|(_, times)| *times)
}

/// Why a majority did not grant: what would have had to be otherwise first.
pub(super) fn why(quorum: Quorum, answers: &[Answer], contended: Why) -> Why {
    let count = |is: fn(Answer) -> bool| answers.iter().filter(|answer| is(**answer)).count();
    let missing = count(Answer::is_missing);
    if missing > quorum.minority() {
        return Why::Unreachable;
    }
    if missing + count(Answer::waits_for_its_data) > quorum.minority() { Why::Quarantined } else { contended }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn busy(ms: u64) -> Answer {
        Answer::Said(Reply::Busy { remaining: Some(Duration::from_millis(ms)), token: None })
    }

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn majority_is_free_when_its_last_node_is() {
        let quorum = Quorum::of(3).unwrap();
        let granted = Answer::Said(Reply::Granted { counter: None });
        let heard = |answers: [Answer; 3]| answers.map(|answer| (answer, at(5)));
        assert_eq!(free_at(quorum, &heard([busy(30), granted, busy(20)])), Some(at(25)));
        assert_eq!(free_at(quorum, &heard([Answer::Silent, busy(10), busy(20)])), Some(at(25)));
        assert_eq!(free_at(quorum, &heard([Answer::Silent, Answer::Said(Reply::Unseeded), busy(20)])), None);
    }

    #[test]
    fn token_that_the_silent_nodes_may_have_as_well_is_suspected_to_be_a_lease() {
        let quorum = Quorum::of(5).unwrap();
        let token = |number| FencingToken::try_from(number).ok();
        let busy = |ms, number| {
            let remaining = Some(Duration::from_millis(ms));
            Answer::Said(Reply::Busy { remaining, token: token(number) })
        };
        let heard = |answers: [Answer; 5]| answers.map(|answer| (answer, at(5)));
        let free = Answer::Said(Reply::Acked);
        let suspected = heard([busy(30, 7), busy(20, 7), Answer::Silent, free, free]);
        assert_eq!(free_at(quorum, &suspected), Some(at(5)));
        assert_eq!(
            suspect(quorum, &suspected),
            token(7).map(|token| Suspect { token, free_at: Some(at(25)) })
        );
        // No node is missing that could make it a majority.
        assert_eq!(suspect(quorum, &heard([busy(30, 7), busy(20, 7), busy(10, 8), free, free])), None);
        // It is a lease, and `free_at` says so already.
        let held = heard([busy(30, 7), busy(20, 7), busy(10, 7), Answer::Silent, free]);
        assert_eq!((suspect(quorum, &held), free_at(quorum, &held)), (None, Some(at(25))));
    }

    #[test]
    fn quarantine_is_the_reason_only_if_it_decided() {
        let quorum = Quorum::of(3).unwrap();
        let quarantined = Answer::Said(Reply::Quarantined { ready_in: Duration::from_secs(1) });
        assert_eq!(why(quorum, &[busy(1), busy(1), quarantined], Why::Contended), Why::Contended);
        assert_eq!(why(quorum, &[Answer::Silent, busy(1), quarantined], Why::Contended), Why::Quarantined);
        assert_eq!(
            why(quorum, &[Answer::Silent, Answer::Unreachable, busy(1)], Why::Contended),
            Why::Unreachable
        );
    }
}
