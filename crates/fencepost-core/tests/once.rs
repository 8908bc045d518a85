//! What is to be done once in a period, while somebody else is about to do it: nobody waits for work that is not theirs any more.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Backend, ErrorKind, HolderId, Lock, Locks, MarkOn, MemoryBackend, Mode, VirtualTime, Wait,
};
use futures_util::future::join;

const MARKED: &[u8] = br#"{"last_period":"tick-9"}"#;

fn request(wait: Wait) -> AcquireRequest {
    AcquireRequest {
        name: "nightly".parse().unwrap(),
        holder: HolderId::from_bytes([7; 16]),
        label: "another host".to_owned(),
        mode: Mode::Exclusive,
        ttl: Duration::from_mins(1),
        at_least: None,
        wait,
        beside: Vec::new(),
        observer: None,
    }
}

fn once(backend: &MemoryBackend, mark_on: MarkOn) -> Lock {
    Locks::new(backend.clone()).lock("nightly").unwrap().once_per("tick-9".parse().unwrap(), mark_on)
}

#[test]
fn waiter_does_not_wait_for_the_end_of_work_that_has_begun_for_its_own_period() {
    let time = VirtualTime::new(1);
    let (clock, backend) = (time.clock(), MemoryBackend::new(time.clock()));
    time.block_on(async {
        let mut held = backend.acquire(&request(Wait::No)).await.unwrap();
        let asked_at = clock.now();
        // It is asked for after the grant, and before the mark.
        let mark = async {
            clock.sleep(Duration::from_millis(50)).await;
            held.write_logbook(MARKED).await.unwrap();
        };
        let lock = once(&backend, MarkOn::Start);
        let (refused, ()) = join(lock.acquire(), mark).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyDone);
        assert!(clock.now().since(asked_at) < Duration::from_secs(1), "{:?}", clock.now().since(asked_at));
        let state = backend.inspect(&"nightly".parse().unwrap()).await.unwrap();
        assert_eq!((state.holder, state.waiters.len()), (Some(held.grant().holder), 0), "it works on, alone");
        held.release().await.unwrap();
    });
}

#[test]
fn one_who_does_not_wait_hears_that_its_period_begins() {
    let time = VirtualTime::new(1);
    let (clock, backend) = (time.clock(), MemoryBackend::new(time.clock()));
    time.block_on(async {
        let mut held = backend.acquire(&request(Wait::No)).await.unwrap();
        let mark = async {
            clock.sleep(Duration::from_millis(50)).await;
            held.write_logbook(MARKED).await.unwrap();
        };
        let lock = once(&backend, MarkOn::Start);
        let (refused, ()) = join(lock.try_acquire(), mark).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyDone);
        held.release().await.unwrap();
    });
}

#[test]
fn one_who_does_not_wait_is_not_kept_by_work_of_another_period() {
    let time = VirtualTime::new(1);
    let backend = MemoryBackend::new(time.clock());
    time.block_on(async {
        let held = backend.acquire(&request(Wait::No)).await.unwrap();
        for mark_on in [MarkOn::Start, MarkOn::Success] {
            assert!(once(&backend, mark_on).try_acquire().await.unwrap().is_none());
        }
        held.release().await.unwrap();
        once(&backend, MarkOn::Start).acquire().await.unwrap().release().await.unwrap();
    });
}
