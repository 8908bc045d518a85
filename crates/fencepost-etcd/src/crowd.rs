//! Who of this process stands in a queue right behind whom: such a one needs no watch, and is told by the other.
//!
//! Invariant: whoever stands behind a place of this process hears of its end, however it ends; what it hears is either what a
//! majority has seen or a call to look for itself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures_channel::oneshot;

use crate::stand::{Seen, Stand};

/// The places of this process.
#[derive(Clone, Default)]
pub(crate) struct Crowd(Arc<Mutex<HashMap<Id, Vec<Behind>>>>);

/// A key, and the revision that made it.
type Id = (Arc<str>, i64);

/// Somebody who stands right behind a place.
pub(crate) struct Behind {
    pub(crate) stand: Stand,
    told: oneshot::Sender<Option<Seen>>,
}

/// A place is there as long as this is.
pub(crate) struct Presence {
    crowd: Crowd,
    id: Id,
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crowd")
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presence{:?}", self.id)
    }
}

impl Crowd {
    /// Notes a place.
    pub(crate) fn enter(&self, stand: &Stand) -> Presence {
        let id = (Arc::clone(&stand.key), stand.created);
        fencepost_core::lock(&self.0).entry(id.clone()).or_default();
        Presence { crowd: self.clone(), id }
    }

    /// Stands behind a place: what is told is what has been seen of `stand` when the place was left, or nothing where whoever is told
    /// must look. `None` where that place is not of this process.
    pub(crate) fn stand_behind(
        &self,
        key: &str,
        created: i64,
        stand: &Stand,
    ) -> Option<oneshot::Receiver<Option<Seen>>> {
        let mut places = fencepost_core::lock(&self.0);
        let Entry::Occupied(mut place) = places.entry((key.into(), created)) else { return None };
        let (told, hears) = oneshot::channel();
        let behind = place.get_mut();
        behind.retain(|behind| !behind.told.is_canceled());
        behind.push(Behind { stand: stand.clone(), told });
        Some(hears)
    }

    /// Who stands behind a place and still waits: one, or several readers. They must be told.
    pub(crate) fn take_behind(&self, place: &Stand) -> Vec<Behind> {
        let mut places = fencepost_core::lock(&self.0);
        let behind = places.get_mut(&(Arc::clone(&place.key), place.created)).map(std::mem::take);
        behind.unwrap_or_default().into_iter().filter(|behind| !behind.told.is_canceled()).collect()
    }

    /// Calls on whoever stands behind a place to look for itself.
    pub(crate) fn call(&self, place: &Stand) {
        call_all(self.take_behind(place));
    }
}

impl Behind {
    pub(crate) fn tell(self, seen: Option<Seen>) {
        // It may have given up.
        drop(self.told.send(seen));
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let behind = fencepost_core::lock(&self.crowd.0).remove(&self.id);
        call_all(behind.unwrap_or_default());
    }
}

/// Calls on each to look for itself.
pub(crate) fn call_all(behind: Vec<Behind>) {
    for behind in behind {
        behind.tell(None);
    }
}
