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

mod keepers {
    //! What a panic in one keeper does to the others: nothing.

    use std::sync::Arc;
    use std::time::Duration;

    use fencepost_core::{
        Clock, Event, LockName, Locks, LossReason, MemoryBackend, Observer, Raced, VirtualTime, race,
    };
    use fencepost_testkit::block_on;

    #[derive(Debug)]
    struct Panics;

    impl Observer for Panics {
        fn observe(&self, _: &LockName, event: &Event) {
            panic!("an observer has a bug when it hears of {event:?}");
        }
    }

    #[test]
    fn panicking_observer_loses_its_own_lease_alone() {
        let locks = Locks::new(MemoryBackend::new(Clock::system()));
        // Longer than it takes to print a panic with its backtrace, which holds up everything else.
        let ttl = Duration::from_secs(6);
        block_on(async {
            let healthy = locks.lock("healthy").unwrap().ttl(ttl).acquire().await.unwrap();
            let broken = locks.lock("broken").unwrap().ttl(ttl).observer(Arc::new(Panics));
            let broken = broken.acquire().await.unwrap();
            assert_eq!(broken.lost().await.loss_reason(), Some(LossReason::KeeperDied));
            let deadline = healthy.deadline();
            while healthy.deadline() == deadline {
                healthy.check().unwrap();
                Clock::system().sleep(Duration::from_millis(20)).await;
            }
            healthy.release().await.unwrap();
        });
    }

    #[test]
    fn waiter_in_virtual_time_waits_for_the_next_timer() {
        let time = VirtualTime::new(1);
        let locks = Locks::new(MemoryBackend::new(time.clock()));
        time.block_on(async {
            let _held = locks.lock("demo").unwrap().acquire().await.unwrap();
            let waiter = locks.lock("demo").unwrap().wait(Duration::from_hours(1));
            let first = race(waiter.acquire(), time.clock().sleep(Duration::from_mins(1))).await;
            assert!(matches!(first, Raced::Second(())));
        });
    }

    #[test]
    fn panic_in_a_simulation_leaves_the_other_leases_alone() {
        let time = VirtualTime::new(1);
        let locks = Locks::new(MemoryBackend::new(time.clock()));
        let held = time.block_on(locks.lock("demo").unwrap().acquire()).unwrap();
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            time.block_on(async { panic!("a bug") })
        }));
        assert!(failed.is_err());
        time.pass(Duration::from_mins(5));
        held.check().unwrap();
    }

    #[test]
    fn set_waits_no_longer_than_the_shortest_of_its_waits() {
        let time = VirtualTime::new(1);
        let locks = Locks::new(MemoryBackend::new(time.clock()));
        time.block_on(async {
            let _held = locks.lock("a").unwrap().acquire().await.unwrap();
            let wait = |name, seconds| locks.lock(name).unwrap().wait(Duration::from_secs(seconds));
            let before = time.clock().now();
            let set = [wait("a", 50), wait("b", 7)];
            fencepost_core::Lock::acquire_all(&set, fencepost_core::Wait::Forever).await.unwrap_err();
            assert_eq!(time.clock().now().since(before), Duration::from_secs(7));
        });
    }
}
