//! What the tests stand on: clients, requests, and waiting for an event.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Clock, Event, HolderId, Lock, LockName, Locks, Mode, Observer, Status, Wait, until,
};
use fencepost_etcd::EtcdBackend;
pub(crate) use fencepost_testkit::block_on;

/// A client of its own, as another process would be.
pub(crate) fn backend(url: &str) -> EtcdBackend {
    EtcdBackend::from_url(&url.parse().unwrap(), Clock::system()).unwrap()
}

pub(crate) fn locks(url: &str) -> Locks {
    Locks::new(backend(url))
}

pub(crate) fn lock(url: &str, name: &str, ttl: Duration) -> Lock {
    locks(url).lock(name).unwrap().ttl(ttl)
}

pub(crate) fn name(name: &str) -> LockName {
    name.parse().unwrap()
}

/// A request below the level of leases, where nothing renews.
pub(crate) fn request(lock: &str, ttl: Duration, wait: Wait) -> AcquireRequest {
    AcquireRequest {
        name: name(lock),
        holder: HolderId::draw(&Clock::system()),
        label: "a test".to_owned(),
        ttl,
        at_least: None,
        mode: Mode::Exclusive,
        wait,
        beside: Vec::new(),
        observer: None,
    }
}

pub(crate) fn sleep(duration: Duration) {
    block_on(Clock::system().sleep(duration));
}

/// Awaits something that must not take longer.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let clock = Clock::system();
    let outcome = until(&clock, Some(clock.now().after(limit)), future).await;
    outcome.unwrap_or_else(|| panic!("{what} took more than {limit:?}"))
}

/// Waits until so many are seen to wait.
pub(crate) async fn until_waiting(locks: &Locks, lock: &str, count: usize) {
    let all = async {
        while locks.inspect(lock).await.unwrap().waiters.len() != count {
            Clock::system().sleep(Duration::from_millis(5)).await;
        }
    };
    within(Duration::from_secs(20), "joining the queue", all).await;
}

/// Waits until the lock is free and nobody waits for it.
pub(crate) async fn until_free(locks: &Locks, lock: &str) {
    let free = async {
        loop {
            let seen = locks.inspect(lock).await.unwrap();
            if seen.status == Status::Free && seen.waiters.is_empty() {
                return;
            }
            Clock::system().sleep(Duration::from_millis(5)).await;
        }
    };
    within(Duration::from_secs(20), "freeing the lock", free).await;
}

/// Remembers what it is told.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<String>>);

impl Notes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn all(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|note| note.starts_with(what)).count()
    }
}

impl Observer for Notes {
    fn observe(&self, _: &LockName, event: &Event) {
        let note = match event {
            Event::Renewed { .. } => "renewed".to_owned(),
            Event::Noticed { what } => format!("noticed {what}"),
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push(note);
    }
}
