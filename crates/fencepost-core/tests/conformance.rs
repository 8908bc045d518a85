//! The suites on the memory backend and the fence in memory: in virtual time, where they are the reference for all
//! others, and on the machine's clock.

use std::sync::Arc;

use fencepost_core::{Clock, Fence, Locks, MemoryBackend, MemoryFence};
use fencepost_testkit::{FenceHarness, Harness, VirtualMemory};

struct Memory(MemoryBackend);

impl Harness for Memory {
    fn start() -> Self {
        Self(MemoryBackend::new(Clock::system()))
    }

    fn locks(&self) -> Locks {
        Locks::new(self.0.clone())
    }

    fn waived(case: &str) -> Option<&'static str> {
        (case == "paused_holder_loses_the_lock_and_is_fenced_off")
            .then_some("a process that is stopped cannot look on; in virtual time it can")
    }
}

struct FenceInMemory(Arc<MemoryFence>);

impl FenceHarness for FenceInMemory {
    fn start() -> Self {
        Self(Arc::default())
    }

    fn fence(&self) -> Arc<dyn Fence> {
        Arc::clone(&self.0) as _
    }
}

fencepost_testkit::conformance!(in_virtual_time: VirtualMemory);
fencepost_testkit::conformance!(on_the_clock: Memory);
fencepost_testkit::fence_conformance!(fence: FenceInMemory);
