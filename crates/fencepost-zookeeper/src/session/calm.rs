//! Locks of which a session would hear if their record changed, so that it need not be asked for.
//!
//! A server tells a connection of a change before it answers there what was done after the change. So what was read together with a
//! watch is so still when a place is made, unless the change was told of before the answer. A server counts all nodes that are ever
//! made below a lock, so a place whose number follows that of the last one, before which all have gone, has nobody before it.
//! Invariant: what is known here was read behind the watch that guards it, on the present connection.

use super::{Session, State};
use crate::connection::Connection;
use crate::seen::Known;

/// How many locks are watched over.
const MOST: usize = 1_000;

/// A lock that is watched over.
#[derive(Debug)]
pub(super) struct Calm {
    /// Who reads the record, behind the watch.
    vigil: u64,
    known: Option<Known>,
    /// The last place that was ours: it, and all before it, have gone.
    passed: Option<i32>,
    /// Whether our last place followed upon the one before, so that the next one may, too.
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
        let calm = Calm { vigil, known: None, passed: None, is_quiet: false };
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

    /// Whether a place that is made now is likely to be the only one.
    pub(crate) fn is_quiet(&self, connection: &Connection, lock: &str) -> bool {
        let mut state = self.state();
        state.calm_on(connection, lock).is_some_and(|calm| calm.is_quiet && calm.known.is_some())
    }

    /// The record of a lock at the time when the place with this number was made, if nobody was before it.
    pub(crate) fn alone(&self, connection: &Connection, lock: &str, number: i32) -> Option<Known> {
        let mut state = self.state();
        let calm = state.calm_on(connection, lock)?;
        calm.is_quiet = calm.passed.is_some_and(|passed| passed.checked_add(1) == Some(number));
        calm.known.clone().filter(|_| calm.is_quiet)
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
