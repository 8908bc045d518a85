//! Who of one session stands in a queue right behind whom: such a one watches nothing, and is told by the other.
//!
//! Invariant: whoever stands behind a place of its own session hears of its end, however it ends. What it hears is what was seen of its
//! own place on the same connection after that end, or a call to look for itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use fencepost_core::Mode;
use futures_channel::oneshot;

use super::{Session, State};
use crate::connection::Connection;
use crate::nodes::{self, Place};

/// By the path of each place of the session, who stands right behind it.
pub(super) type Crowd = HashMap<Arc<str>, Vec<Behind>>;

/// Somebody who stands right behind a place.
#[derive(Debug)]
pub(crate) struct Behind {
    /// Its own place.
    pub(crate) path: Arc<str>,
    told: oneshot::Sender<i64>,
}

impl Behind {
    /// Nobody is before it any more, and its place was there when the server had seen this transaction.
    pub(crate) fn tell(self, seen: i64) {
        // It may have given up.
        let _ = self.told.send(seen);
    }

    fn waits(&self) -> bool {
        !self.told.is_canceled()
    }

    fn shares(&self) -> bool {
        Place::of(nodes::node_of(&self.path)).is_none_or(|place| place.mode == Mode::Shared)
    }
}

/// A place is there, as far as is known, as long as this is.
pub(crate) struct Presence {
    session: Session,
    path: Arc<str>,
}

impl Presence {
    /// Where the place is.
    pub(crate) fn path(&self) -> &Arc<str> {
        &self.path
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presence({})", self.path)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let behind = self.session.state().crowd.remove(&self.path);
        // Who is not told anything looks.
        drop(behind);
    }
}

impl Session {
    /// Notes a place of the session.
    pub(crate) fn enter(&self, path: &str) -> Presence {
        let path: Arc<str> = path.into();
        self.state().crowd.entry(Arc::clone(&path)).or_default();
        Presence { session: self.clone(), path }
    }

    /// Stands with the place at `own` right behind the one at `path`: hears what was seen when that one was left, or an end without a
    /// word when it is to look for itself. `None` where that place is not of this session, or `connection` is not its present one.
    pub(crate) fn stand_behind(
        &self,
        connection: &Connection,
        path: &str,
        own: Arc<str>,
    ) -> Option<oneshot::Receiver<i64>> {
        let mut state = self.state();
        state.open_connection().filter(|current| current.is(connection))?;
        let behind = state.crowd.get_mut(path)?;
        let (told, hears) = oneshot::channel();
        behind.retain(Behind::waits);
        behind.push(Behind { path: own, told });
        Some(hears)
    }

    /// The only one who stands behind a place, to be told that nobody is before it. Several look for themselves.
    pub(crate) fn next_behind(&self, path: &str) -> Option<Behind> {
        only(self.state().crowd.get_mut(path)?)
    }

    /// A place may be gone that its holder has not let go of: whoever stands behind it looks.
    pub(super) fn call_behind(&self, path: &str) {
        let behind = self.state().crowd.get_mut(path).map(std::mem::take);
        drop(behind);
    }
}

/// The one who is told. Who shares the lock looks: others who share it may stand in between, of other sessions too.
fn only(behind: &mut Vec<Behind>) -> Option<Behind> {
    behind.retain(Behind::waits);
    if behind.len() == 1 && !behind[0].shares() { behind.pop() } else { None }
}

impl State {
    /// Whether a place of the session is there, as far as is known.
    pub(super) fn is_in_crowd(&self, lock: &str, place: &Place) -> bool {
        self.crowd.contains_key(&*format!("{lock}/{}", place.node))
    }

    /// Whatever would have been told may never come: everybody looks.
    pub(super) fn call_all_behind(&mut self) {
        self.crowd.values_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::HolderId;

    use super::*;

    fn behind(mode: Mode) -> (Behind, oneshot::Receiver<i64>) {
        let (told, hears) = oneshot::channel();
        let stem = nodes::stem(HolderId::from_bytes([7; 16]), mode);
        (Behind { path: format!("/fencepost/orders/{stem}0000000009").into(), told }, hears)
    }

    #[test]
    fn only_one_who_still_waits_to_have_the_lock_alone_is_told() {
        let told = |modes: &[Mode], gone: usize| {
            let (mut all, mut hear): (Vec<_>, Vec<_>) = modes.iter().map(|mode| behind(*mode)).unzip();
            hear.drain(..gone);
            only(&mut all).is_some()
        };
        assert!(told(&[Mode::Exclusive], 0));
        assert!(told(&[Mode::Shared, Mode::Exclusive], 1));
        assert!(!told(&[Mode::Exclusive, Mode::Shared], 0));
        assert!(!told(&[Mode::Exclusive], 1));
        // There may be a reader of another process between it and who is before it.
        assert!(!told(&[Mode::Shared], 0));
    }
}
