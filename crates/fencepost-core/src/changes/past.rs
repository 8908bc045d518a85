//! What has passed between two looks, as the logbooks of the locks tell it.
//!
//! Invariant: a grant is told as passed only when it is over: a later one is there, or it has an end, or the lock was seen free after
//! the grant was read without one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Seen;
use super::seen::{Change, ChangeKind, newest};
use crate::backend::{LockState, Status};
use crate::logbook::{Logbook, PastGrant};
use crate::name::{LockName, NamePrefix};
use crate::token::FencingToken;

/// How many locks that are free are looked after at once, in case that they are held for a moment.
const FOLLOWED_MOST: usize = 32;

/// What was told of the past of locks that keep a history.
#[derive(Debug)]
pub(super) struct Past {
    /// The one that came last at the end.
    followed: VecDeque<Followed>,
    /// The lock that is meant if the prefix is its whole name.
    named: Option<LockName>,
}

/// A lock that keeps a history.
#[derive(Debug)]
struct Followed {
    name: LockName,
    /// The greatest token that was told.
    told: Option<FencingToken>,
    /// A grant without an end that was read of a lock that had been seen free: it may have begun after that.
    doubted: Option<FencingToken>,
}

impl Past {
    pub(super) fn new(prefix: &NamePrefix) -> Self {
        Self { followed: VecDeque::new(), named: prefix.as_str().parse().ok() }
    }

    /// The locks whose logbooks may tell more than the look that has shown `after`.
    pub(super) fn to_read(
        &self,
        seen: Option<&Seen>,
        after: &BTreeMap<LockName, LockState>,
    ) -> Vec<LockName> {
        let Some(Seen { states: before, .. }) = seen else { return self.named.iter().cloned().collect() };
        let is_free = |name: &&LockName| !before.contains_key(*name) && !after.contains_key(*name);
        let followed = self.followed.iter().map(|followed| &followed.name).filter(is_free);
        let token = |states: &BTreeMap<_, _>, name: &LockName| states.get(name).and_then(newest);
        let has_changed = |name: &&LockName| token(before, name) != token(after, name);
        let changed = before.keys().chain(after.keys()).filter(has_changed);
        let names: BTreeSet<&LockName> = followed.chain(changed).collect();
        names.into_iter().cloned().collect()
    }

    /// What has passed by a lock since the look `seen`, as its logbook tells it, before it is as the look `now` shows it.
    pub(super) fn passed(
        &mut self,
        name: &LockName,
        book: &Logbook,
        seen: Option<&Seen>,
        now: &Seen,
    ) -> Vec<Change> {
        let index = self.followed.iter().position(|followed| followed.name == *name);
        let known = index.and_then(|index| self.followed.remove(index));
        let before = seen.and_then(|seen| seen.states.get(name)).and_then(newest);
        let last = known.as_ref().and_then(|known| known.told).max(before);
        let since = seen.map_or(u64::MAX, |seen| seen.wall_micros);
        // By its holder's clock where there is nothing else to go by.
        let is_new = |grant: &PastGrant| last.map_or(grant.from_micros >= since, |last| grant.token > last);
        let present = now.states.get(name).and_then(newest);
        let mut past: Vec<&PastGrant> = book.grants.iter().collect();
        past.retain(|grant| present.is_none_or(|present| grant.token < present));
        let open =
            past.last().filter(|grant| present.is_none() && grant.to_micros.is_none() && is_new(grant));
        let doubted =
            open.map(|grant| grant.token).filter(|open| known.and_then(|known| known.doubted) != Some(*open));
        past.retain(|grant| Some(grant.token) != doubted);

        let mut changes = Vec::new();
        for grant in &past {
            changes.extend(is_new(grant).then(|| begun(name, grant)));
            let ended = grant.to_micros.filter(|_| is_new(grant) || Some(grant.token) == before);
            changes.extend(ended.map(|at_micros| freed(name, at_micros)));
        }
        if !now.states.contains_key(name) && changes.last().is_some_and(|last| last.kind == ChangeKind::Held)
        {
            changes.push(freed(name, now.wall_micros));
        }
        if !book.grants.is_empty() || self.named.as_ref() == Some(name) {
            let told = last.max(present).max(past.last().map(|grant| grant.token));
            self.follow(Followed { name: name.clone(), told, doubted });
        }
        changes
    }

    /// Whether a lock is in doubt, which the next look decides.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.followed.iter().any(|followed| followed.doubted.is_some())
    }

    fn follow(&mut self, followed: Followed) {
        self.followed.push_back(followed);
        if self.followed.len() > FOLLOWED_MOST {
            self.followed.pop_front();
        }
    }
}

fn begun(name: &LockName, grant: &PastGrant) -> Change {
    let mut state = LockState::free(name.clone());
    state.status = Status::Held;
    state.holder = Some(grant.holder);
    state.label = Some(grant.label.clone());
    state.token = Some(grant.token);
    state.since_micros = Some(grant.from_micros);
    Change { at_micros: grant.from_micros, kind: ChangeKind::Held, state }
}

fn freed(name: &LockName, at_micros: u64) -> Change {
    Change { at_micros, kind: ChangeKind::Free, state: LockState::free(name.clone()) }
}

/// Leaves out what the look tells of an end that the logbook has told.
pub(super) fn drop_repeated_ends(changes: &mut Vec<Change>) {
    let is_end = |change: &Change| change.kind == ChangeKind::Free;
    changes
        .dedup_by(|second, first| is_end(first) && is_end(second) && first.state.name == second.state.name);
}
