//! What was heard of locks and leases, for tests that count it: an observer that keeps everything.

use std::sync::{Arc, Mutex, PoisonError};

use fencepost_core::{Event, LockName, Observer};

/// An observer that keeps everything.
#[derive(Debug, Default)]
pub struct Listener(Mutex<Vec<Event>>);

impl Listener {
    /// One that has heard nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Whom a lock tells.
    pub fn observer(self: &Arc<Self>) -> Arc<dyn Observer> {
        Arc::<Self>::clone(self)
    }

    /// How many events of a kind it has heard.
    pub fn count(&self, kind: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|event| kind(event)).count()
    }
}

impl Observer for Listener {
    fn observe(&self, _: &LockName, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}
