//! The difference between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use crate::backend::{LockState, Status};
use crate::name::LockName;
use crate::token::FencingToken;

/// What has become of one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change {
    /// When it was seen, by the onlooker's wall clock; of what had passed before it could be seen, when it was, by its holder's:
    /// microseconds since 1970.
    pub at_micros: u64,
    /// What has changed.
    pub kind: ChangeKind,
    /// The lock after it.
    pub state: LockState,
}

/// What has changed. Of several things at once it is the first of these that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ChangeKind {
    /// Somebody holds it, or somebody else does.
    Held,
    /// Nobody holds it any more.
    Free,
    /// Its holder has released it, and it stays taken a while.
    Resting,
    /// The store may have lost data and grants nothing yet.
    Quarantined,
    /// Others share it.
    Readers,
    /// Others wait for it.
    Waiters,
    /// Its lease goes on for longer. Told [on request](super::Watch::with_renewals) alone.
    Renewed,
}

/// By how much more of a lease than was left must remain, so that it was renewed and not only measured otherwise.
const RENEWED_BY: Duration = Duration::from_millis(100);

/// What is different in `after`, that was looked at `elapsed` later.
pub(super) fn differences(
    before: &BTreeMap<LockName, LockState>,
    after: &BTreeMap<LockName, LockState>,
    elapsed: Duration,
) -> Vec<(ChangeKind, LockState)> {
    let names: BTreeSet<&LockName> = before.keys().chain(after.keys()).collect();
    let change = |name: &LockName| match (before.get(name), after.get(name)) {
        (_, None) => Some((ChangeKind::Free, LockState::free(name.clone()))),
        (None, Some(now)) => Some((kind_of(now.status), now.clone())),
        (Some(before), Some(now)) => difference(before, now, elapsed).map(|kind| (kind, now.clone())),
    };
    names.into_iter().filter_map(change).collect()
}

fn difference(before: &LockState, now: &LockState, elapsed: Duration) -> Option<ChangeKind> {
    let shared = |state: &LockState| !state.readers.is_empty();
    let held = |state: &LockState| (state.holder, state.token);
    if before.status != now.status || shared(before) != shared(now) {
        return Some(kind_of(now.status));
    }
    if shared(now) {
        if readers(before) != readers(now) {
            return Some(ChangeKind::Readers);
        }
    } else if held(before) != held(now) {
        return Some(kind_of(now.status));
    }
    if waiters(before) != waiters(now) {
        return Some(ChangeKind::Waiters);
    }
    let left = |state: &LockState| {
        state.readers.iter().map(|reader| reader.remaining).max().unwrap_or(state.remaining)
    };
    let expected = left(before)?.saturating_sub(elapsed);
    (left(now)? > expected + RENEWED_BY).then_some(ChangeKind::Renewed)
}

fn kind_of(status: Status) -> ChangeKind {
    match status {
        Status::Held => ChangeKind::Held,
        Status::Free => ChangeKind::Free,
        Status::Resting => ChangeKind::Resting,
        Status::Quarantined => ChangeKind::Quarantined,
    }
}

fn readers(state: &LockState) -> BTreeSet<FencingToken> {
    state.readers.iter().map(|reader| reader.token).collect()
}

/// Who waits, in whatever order: some stores know none.
fn waiters(state: &LockState) -> Vec<String> {
    let mut waiters: Vec<String> =
        state.waiters.iter().map(|waiter| format!("{:?} {:?}", waiter.holder, waiter.label)).collect();
    waiters.sort();
    waiters
}

/// The greatest token in it.
pub(super) fn newest(state: &LockState) -> Option<FencingToken> {
    state.readers.iter().map(|reader| reader.token).chain(state.token).max()
}
