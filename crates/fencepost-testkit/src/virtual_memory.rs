//! The memory backend in virtual time, as a harness: a simulated hour takes no time, and every run is repeatable.
//!
//! What is deliberately broken is broken here, so that a failing case fails at once.

use std::sync::Arc;

use fencepost_core::{Backend, Fence, Locks, MemoryBackend, MemoryFence, VirtualTime};

use crate::harness::Harness;

/// The memory backend in virtual time, or something around it.
#[derive(Debug)]
pub struct VirtualMemory {
    time: VirtualTime,
    backend: Arc<dyn Backend>,
    fence: fn() -> Arc<dyn Fence>,
}

impl VirtualMemory {
    /// The memory backend as `wrap` changes it.
    pub fn inside(wrap: impl FnOnce(MemoryBackend) -> Arc<dyn Backend>) -> Self {
        let time = VirtualTime::new(1);
        let backend = wrap(MemoryBackend::new(time.clock()));
        Self { time, backend, fence: || Arc::new(MemoryFence::default()) }
    }

    /// The same with another kind of fence.
    #[must_use]
    pub fn fenced_by(mut self, fence: fn() -> Arc<dyn Fence>) -> Self {
        self.fence = fence;
        self
    }
}

impl Harness for VirtualMemory {
    fn start() -> Self {
        Self::inside(|backend| Arc::new(backend))
    }

    fn locks(&self) -> Locks {
        Locks::shared(Arc::clone(&self.backend))
    }

    fn virtual_time(&self) -> Option<&VirtualTime> {
        Some(&self.time)
    }

    fn fence(&self) -> Arc<dyn Fence> {
        (self.fence)()
    }
}
