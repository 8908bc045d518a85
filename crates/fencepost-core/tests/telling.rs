//! What observers are told of attempts and leases, on the memory backend in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{
    Attempt, ErrorKind, Event, Fence, FencingToken, Lock, LockName, Locks, LossReason, MemoryBackend,
    MemoryFence, Observer, Raced, Stamp, VirtualTime, race,
};

/// Writes down what it hears, in short.
#[derive(Debug, Default)]
struct Notes {
    heard: Mutex<Vec<String>>,
    /// Whether each attempt has notes of its own.
    apart: bool,
    attempts: Mutex<Vec<Arc<Self>>>,
}

impl Notes {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn all(&self) -> Vec<String> {
        self.heard.lock().expect("nobody panics here").clone()
    }

    fn observer(self: &Arc<Self>) -> Arc<dyn Observer> {
        Arc::<Self>::clone(self)
    }
}

impl Observer for Notes {
    fn observe(&self, lock: &LockName, event: &Event) {
        let reason = |error: &fencepost_core::Error| {
            error
                .loss_reason()
                .map_or_else(|| format!("{:?}", error.kind()), |reason| reason.as_str().to_owned())
        };
        let what = match event {
            Event::Asked => "asked".to_owned(),
            Event::Granted { waited, .. } => format!("granted after {waited:?}"),
            Event::NotGranted { error, waited } => {
                format!("not granted after {waited:?}: {:?}", error.kind())
            }
            Event::GivenUp { waited } => format!("given up after {waited:?}"),
            Event::Renewed { .. } => return,
            Event::Stale { .. } => "stale".to_owned(),
            Event::Lost { error } => format!("lost: {}", reason(error)),
            Event::Released { held, error } => {
                format!("released after {held:?}: {:?}", error.as_ref().map(reason))
            }
            other => format!("{other:?}"),
        };
        self.heard.lock().expect("nobody panics here").push(format!("{lock} {what}"));
    }

    fn attempt(&self, attempt: &Attempt<'_>) -> Option<Arc<dyn Observer>> {
        assert_eq!(attempt.backend, "memory");
        if !self.apart {
            return None;
        }
        let own = Self::new();
        self.attempts.lock().expect("nobody panics here").push(Arc::clone(&own));
        Some(own)
    }
}

/// A world, and a lock of it whose observer takes notes.
fn observed() -> (VirtualTime, Locks, Lock, Arc<Notes>) {
    let time = VirtualTime::new(1);
    let locks = Locks::new(MemoryBackend::new(time.clock()));
    let notes = Notes::new();
    let lock = locks.lock("orders").expect("it is a name").observer(notes.observer());
    (time, locks, lock, notes)
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn attempt_and_lease_are_told_from_beginning_to_end() {
    let (time, locks, lock, notes) = observed();
    time.block_on(async {
        let other = locks.lock("orders").unwrap().acquire().await.unwrap();
        let release = async {
            time.clock().sleep(MINUTE).await;
            other.release().await.unwrap();
            std::future::pending::<()>().await;
        };
        let Raced::Second(lease) = race(release, lock.acquire()).await else { panic!("it does not end") };
        let lease = lease.unwrap();
        time.clock().sleep(MINUTE).await;
        lease.release().await.unwrap();
    });
    assert_eq!(notes.all(), ["orders asked", "orders granted after 60s", "orders released after 60s: None"]);
}

#[test]
fn attempt_that_fails_or_is_dropped_is_told_so() {
    let (time, locks, lock, notes) = observed();
    time.block_on(async {
        let held = locks.lock("orders").unwrap().acquire().await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        lock.clone().wait(MINUTE).acquire().await.unwrap_err();
        let dropped = race(time.clock().sleep(MINUTE), lock.acquire()).await;
        assert!(matches!(dropped, Raced::First(())));
        lock.clone().ttl(Duration::ZERO).acquire().await.unwrap_err();
        held.release().await.unwrap();
    });
    let expected = [
        "orders asked",
        "orders not granted after 0ns: Contended",
        "orders asked",
        "orders not granted after 60s: Contended",
        "orders asked",
        "orders given up after 60s",
        "orders asked",
        "orders not granted after 0ns: InvalidArgument",
    ];
    assert_eq!(notes.all(), expected);
}

#[test]
fn dropped_lease_is_told_of_like_a_released_one() {
    let (time, _, lock, notes) = observed();
    time.block_on(async {
        drop(lock.acquire().await.unwrap());
        time.clock().sleep(MINUTE).await;
    });
    assert_eq!(notes.all()[2..], ["orders released after 0ns: None"]);
}

#[test]
fn loss_is_told_once_whoever_notices_it_first() {
    // The keeper notices it.
    let (time, locks, lock, notes) = observed();
    time.block_on(async {
        let lease = lock.acquire().await.unwrap();
        locks.revoke("orders", lease.token(), "a test").await.unwrap();
        lease.lost().await;
        assert_eq!(lease.release().await.unwrap_err().loss_reason(), Some(LossReason::Revoked));
    });
    let expected = ["orders lost: revoked", "orders released after 0ns: Some(\"revoked\")"];
    assert_eq!(notes.all()[2..], expected);

    // The holder does, who was told by a fence.
    let (time, locks, lock, notes) = observed();
    time.block_on(async {
        let fence = MemoryFence::default();
        let late = lock.acquire().await.unwrap();
        let next = Stamp { token: FencingToken::try_from(late.token().get() + 1).unwrap(), ..late.stamp() };
        fence.seal(&next).await.unwrap();
        assert_eq!(late.heed(fence.check(&late.stamp()).await).unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(late.heed(fence.check(&late.stamp()).await).unwrap_err().kind(), ErrorKind::Stale);
        locks.revoke("orders", late.token(), "a test").await.unwrap();
        time.clock().sleep(MINUTE).await;
        late.release().await.unwrap_err();
    });
    let expected = [
        "orders stale",
        "orders lost: refused",
        "orders stale",
        "orders released after 60s: Some(\"refused\")",
    ];
    assert_eq!(notes.all()[2..], expected);
}

#[test]
fn lease_whose_fence_refuses_it_is_told_of_as_stale_and_never_as_granted() {
    let (time, locks, lock, notes) = observed();
    time.block_on(async {
        let before = locks.lock("orders").unwrap().acquire().await.unwrap();
        let fence = Arc::new(MemoryFence::default());
        let token = FencingToken::try_from(before.token().get() + 1_000_000_000).unwrap();
        fence.seal(&Stamp { token, ..before.stamp() }).await.unwrap();
        before.release().await.unwrap();
        let error = lock.clone().fence(fence).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale);
    });
    assert_eq!(notes.all(), ["orders asked", "orders stale", "orders not granted after 0ns: Stale"]);
}

#[test]
fn attempt_for_one_of_several_slots_is_one_attempt() {
    let (time, locks, lock, notes) = observed();
    time.block_on(async {
        let slots = |lock: Lock| lock.slots(3);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(slots(locks.lock("orders").unwrap()).acquire().await.unwrap());
        }
        assert!(slots(lock.clone()).try_acquire().await.unwrap().is_none());
        let free = held.pop().unwrap();
        let name = free.lock().to_string();
        let release = async {
            time.clock().sleep(MINUTE).await;
            free.release().await.unwrap();
            std::future::pending::<()>().await;
        };
        let waiting = slots(lock.clone());
        let Raced::Second(lease) = race(release, waiting.acquire()).await else { panic!("it does not end") };
        lease.unwrap().release().await.unwrap();
        let expected = [
            "orders asked".to_owned(),
            "orders not granted after 0ns: Contended".to_owned(),
            "orders asked".to_owned(),
            format!("{name} granted after 60s"),
            format!("{name} released after 0ns: None"),
        ];
        assert_eq!(notes.all(), expected);
    });
}

#[test]
fn several_observers_are_told_and_one_may_keep_attempts_apart() {
    let (time, _, lock, notes) = observed();
    let apart = Arc::new(Notes { apart: true, ..Notes::default() });
    let lock = lock.observer(apart.observer());
    time.block_on(async {
        let Raced::First(first) = race(lock.acquire(), std::future::pending::<()>()).await else {
            panic!("it is free")
        };
        assert!(lock.try_acquire().await.unwrap().is_none());
        first.unwrap().release().await.unwrap();
    });
    let own: Vec<_> = apart.attempts.lock().unwrap().iter().map(|notes| notes.all()).collect();
    let first = ["orders asked", "orders granted after 0ns", "orders released after 0ns: None"];
    let second = ["orders asked", "orders not granted after 0ns: Contended"];
    assert_eq!(own, [first.to_vec(), second.to_vec()]);
    assert!(apart.all().is_empty());
    assert_eq!(notes.all().len(), 5);
}

#[derive(Debug)]
struct Panics;

impl Observer for Panics {
    fn observe(&self, _: &LockName, event: &Event) {
        panic!("an observer has a bug when it hears of {event:?}");
    }

    fn attempt(&self, _: &Attempt<'_>) -> Option<Arc<dyn Observer>> {
        panic!("an observer has a bug when it hears of an attempt");
    }
}

#[test]
fn panicking_observer_ends_no_attempt_and_no_release() {
    let time = VirtualTime::new(1);
    let locks = Locks::new(MemoryBackend::new(time.clock()));
    let lock = locks.lock("orders").unwrap().observer(Arc::new(Panics));
    time.block_on(async {
        let lease = lock.acquire().await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(matches!(
            race(time.clock().sleep(Duration::from_secs(1)), lock.acquire()).await,
            Raced::First(())
        ));
        lease.release().await.unwrap();
        let next = locks.lock("orders").unwrap().try_acquire().await.unwrap();
        next.expect("it was given back").release().await.unwrap();
    });
}
