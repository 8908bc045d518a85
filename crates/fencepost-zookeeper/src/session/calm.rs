//! Locks of which a session would hear if their record changed, so that it need not be asked for.
//!
//! A server tells a connection of a change before it answers there what was done after the change. So what was read together with a
//! watch is so still when a place is made, unless the change was told of before the answer. A server counts all nodes that are ever
//! made below a lock, so a place whose number follows that of one of ours has nobody between them, and nobody at all before it where all
//! have gone up to that one. Invariant: what is known here was read behind the watch that guards it, on the present connection.

use super::{Session, State};
use crate::connection::Connection;
use crate::nodes::Place;
use crate::seen::Known;

/// How many locks are watched over.
const MOST: usize = 1_000;

/// A lock that is watched over.
#[derive(Debug)]
pub(super) struct Calm {
    /// Who reads the record, behind the watch.
    vigil: u64,
    known: Option<Known>,
    /// The last place that we have left: it, and all before it, have gone.
    passed: Option<i32>,
    /// The last place that we have made.
    made: Option<Place>,
    /// Whether that one followed upon one of ours, so that the next one may, too.
    is_quiet: bool,
}

impl Session {
    /// The record of a lock is about to be read together with a watch. What to show when it has been.
    pub(crate) fn watch_over(&self, lock: &str) -> u64 {
        let mut state = self.state();
        if state.calm.len() >= MOST {
            state.calm.clear();
        }
        state.vigils += 1;
        let vigil = state.vigils;
        let calm = Calm { vigil, known: None, passed: None, made: None, is_quiet: false };
        state.calm.insert(lock.to_owned(), calm);
        vigil
    }

    /// It has been read, on `connection`. It counts unless something has changed meanwhile.
    pub(crate) fn has_read(&self, connection: &Connection, lock: &str, vigil: u64, known: Known) {
        let mut state = self.state();
        if let Some(calm) = state.calm_on(connection, lock).filter(|calm| calm.vigil == vigil) {
            calm.known = Some(known);
        }
    }

    /// The record of a lock, if it would be heard on `connection` that it has changed.
    pub(crate) fn known(&self, connection: &Connection, lock: &str) -> Option<Known> {
        self.state().calm_on(connection, lock)?.known.clone()
    }

    /// Whether a place that is made now is likely to follow upon one of ours.
    pub(crate) fn is_quiet(&self, connection: &Connection, lock: &str) -> bool {
        let mut state = self.state();
        state.calm_on(connection, lock).is_some_and(|calm| calm.is_quiet && calm.known.is_some())
    }

    /// `place` was made. The record of the lock at that time, and which place of ours is right before it and in its way; `None` where
    /// that cannot be known without a look.
    pub(crate) fn followed(
        &self,
        connection: &Connection,
        lock: &str,
        place: &Place,
    ) -> Option<(Known, Option<Place>)> {
        let mut state = self.state();
        let calm = state.calm_on(connection, lock)?;
        let is_next = |number: i32| number.checked_add(1) == Some(place.number());
        let before = calm.made.replace(place.clone()).filter(|made| is_next(made.number()));
        let is_alone = calm.passed.is_some_and(is_next);
        calm.is_quiet = is_alone || before.is_some();
        let known = calm.known.clone()?;
        if is_alone {
            return Some((known, None));
        }
        // Of those who share the lock each waits for somebody further ahead.
        let before = before.filter(|before| !before.goes_with(place))?;
        state.is_in_crowd(lock, &before).then_some((known, Some(before)))
    }

    /// The place with this number has gone, before which there was nobody, below the node that `known` is of.
    pub(crate) fn pass(&self, lock: &str, lock_made_by: i64, number: i32) {
        let mut state = self.state();
        let Some(calm) = state.calm.get_mut(lock) else { return };
        if calm.known.as_ref().is_some_and(|known| known.made_by() == lock_made_by) {
            calm.passed = calm.passed.max(Some(number));
        }
    }
}

impl State {
    fn calm_on(&mut self, connection: &Connection, lock: &str) -> Option<&mut Calm> {
        self.open_connection().filter(|current| current.is(connection))?;
        self.calm.get_mut(lock)
    }
}
