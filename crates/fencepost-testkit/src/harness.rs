//! What a backend's tests give to the suite: surroundings for one case, clients of them, and how time passes there.
//!
//! Everything else the suite knows from the backend's profile, so a harness never names the cases that it runs.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{Fence, Locks, MemoryFence, VirtualTime, block_on};
use futures_util::future::BoxFuture;

/// The surroundings of one case: a directory, a server, a piece of memory.
///
/// Whatever it has started ends when it is dropped, also when the case has failed.
pub trait Harness: Send + Sync + 'static {
    /// New surroundings, in which no lock has ever been acquired.
    fn start() -> Self
    where
        Self: Sized;

    /// A client of these surroundings; each call gives another one, as another process would be.
    fn locks(&self) -> Locks;

    /// The length of lease that cases about time ask for. Every bound of theirs is counted in it.
    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// How late anything may be on a busy machine. A ttl above it would hide what comes late.
    fn slack(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Drives a future to its end, inside whatever runtime the backend needs.
    fn block_on(&self, future: BoxFuture<'_, ()>) {
        match self.virtual_time() {
            Some(time) => time.block_on(future),
            None => block_on(future),
        }
    }

    /// The virtual time that the backend runs in, if it does. The suite then runs everything on one thread, and stops
    /// the process by [`VirtualTime::freeze`].
    fn virtual_time(&self) -> Option<&VirtualTime> {
        None
    }

    /// A fence that has sealed nothing yet.
    fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(MemoryFence::default())
    }

    /// Where another process finds these surroundings, in one line; needed where the profile reaches beyond a process.
    fn address(&self) -> Option<String> {
        None
    }

    /// A client, in another process, of the surroundings at `address`.
    ///
    /// # Panics
    /// Unless the harness gives addresses.
    fn from_address(address: &str) -> Locks
    where
        Self: Sized,
    {
        panic!("this harness gives no address, so nobody can be at {address:?}")
    }

    /// Why the profile claims what `case` is about and this harness still cannot exercise it.
    fn waived(case: &str) -> Option<&'static str>
    where
        Self: Sized,
    {
        let _ = case;
        None
    }
}
