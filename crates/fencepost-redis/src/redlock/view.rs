//! One lock, as a majority of the nodes sees it.
//!
//! Invariant: held is what a majority says to be held by one holder with one token; anything less is an attempt.

use std::time::Duration;

use fencepost_core::{LockName, LockState, Status};

use crate::quorum::Quorum;

/// What the nodes' views of one lock come to.
pub(super) fn merged(quorum: Quorum, name: &LockName, seen: &[LockState]) -> LockState {
    let mut state = LockState::free(name.clone());
    for one in seen {
        let taken = matches!(one.status, Status::Held | Status::Resting) && one.token.is_some();
        let same = |other: &&LockState| {
            other.status == one.status && other.holder == one.holder && other.token == one.token
        };
        let alike: Vec<&LockState> = seen.iter().filter(same).collect();
        if taken && alike.len() >= quorum.majority() {
            state = one.clone();
            state.remaining = majority_for(quorum, &alike);
            state.slack = Some(quorum.slack(alike.len()));
        }
    }
    let quarantined: Vec<&LockState> = seen.iter().filter(|one| one.status == Status::Quarantined).collect();
    if state.status == Status::Free && quarantined.len() > quorum.minority() {
        state.status = Status::Quarantined;
        state.remaining = quarantined.iter().filter_map(|one| one.remaining).max();
    }
    let mut waiters: Vec<_> = seen.iter().flat_map(|one| one.waiters.iter().cloned()).collect();
    // The holder may have waited at a node that it could do without.
    waiters.retain(|waiter| waiter.holder.is_none() || waiter.holder != state.holder);
    waiters.sort_by_key(|waiter| (waiter.holder.map(String::from), waiter.since_micros));
    waiters.dedup_by_key(|waiter| waiter.holder);
    waiters.sort_by_key(|waiter| waiter.since_micros);
    state.waiters = waiters;
    state
}

/// How long at least a majority of the nodes keeps what all of `alike` keep.
fn majority_for(quorum: Quorum, alike: &[&LockState]) -> Option<Duration> {
    let mut remaining: Vec<Duration> = alike.iter().filter_map(|one| one.remaining).collect();
    remaining.sort_unstable_by(|one, other| other.cmp(one));
    remaining.get(quorum.majority() - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::{FencingToken, HolderId};

    fn held(token: Option<u64>, seconds: u64) -> LockState {
        let mut state = LockState::free("a".parse().unwrap());
        state.status = Status::Held;
        state.holder = Some(HolderId::from_bytes([1; 16]));
        state.token = token.map(|token| FencingToken::try_from(token).unwrap());
        state.remaining = Some(Duration::from_secs(seconds));
        state
    }

    fn merge(seen: &[LockState]) -> LockState {
        merged(Quorum::of(3).unwrap(), &"a".parse().unwrap(), seen)
    }

    #[test]
    fn lock_is_held_as_long_as_a_majority_keeps_it() {
        let state = merge(&[held(Some(7), 9), held(Some(7), 2), held(Some(7), 5)]);
        assert_eq!(
            (state.status, state.remaining, state.slack),
            (Status::Held, Some(Duration::from_secs(5)), Some(1))
        );
        assert_eq!(merge(&[held(Some(7), 9), held(Some(7), 2)]).slack, Some(0));
    }

    #[test]
    fn less_than_a_majority_holds_nothing() {
        assert_eq!(merge(&[held(Some(7), 9), held(Some(8), 9)]).status, Status::Free);
        assert_eq!(merge(&[held(None, 9), held(None, 9), held(None, 9)]).status, Status::Free);
    }
}
