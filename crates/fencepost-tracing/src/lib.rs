#![doc = include_str!("../README.md")]

#[cfg(feature = "otlp")]
pub mod otlp;
mod traced;

use std::sync::Arc;

use fencepost_core::{Attempt, Event, LockName, Observer};

use traced::Traced;

/// What all spans and events have as their target.
pub const TARGET: &str = "fencepost";

/// An observer that makes a span of each attempt, and one of each lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spans;

impl Observer for Spans {
    /// What comes by way of an observer that does not pass attempts on belongs to no span.
    fn observe(&self, _: &LockName, _: &Event) {}

    fn attempt(&self, attempt: &Attempt<'_>) -> Option<Arc<dyn Observer>> {
        Some(Arc::new(Traced::begin(attempt)))
    }
}
