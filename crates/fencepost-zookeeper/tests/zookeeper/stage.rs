//! What the tests stand on: clients of a server, requests below the level of leases, and a history of who held when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, BackendUrl, Clock, Error, ErrorKind, HolderId, Lease, Locks, Mode, Moment, Wait, block_on,
};
use fencepost_zookeeper::ZooKeeperBackend;

/// A client of its own, as another process would be.
pub(crate) fn locks(url: &str) -> Locks {
    Locks::new(backend(url))
}

pub(crate) fn backend(url: &str) -> ZooKeeperBackend {
    let url: BackendUrl = url.parse().unwrap();
    ZooKeeperBackend::from_url(&url, Clock::system()).unwrap()
}

pub(crate) fn request(name: &str, ttl: Duration, wait: Wait) -> AcquireRequest {
    AcquireRequest {
        name: name.parse().unwrap(),
        holder: HolderId::draw(&Clock::system()),
        label: "a test".to_owned(),
        ttl,
        at_least: None,
        mode: Mode::Exclusive,
        beside: Vec::new(),
        wait,
        observer: None,
    }
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}

pub(crate) fn sleep(duration: Duration) {
    block_on(Clock::system().sleep(duration));
}

/// Looks until `condition` holds, for as long as anything may take on a busy machine.
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    fencepost_testkit::servers::wait_until(what, condition);
}

/// One hold: its token, and when its holder believed in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
}

/// What several holders did.
#[derive(Default)]
pub(crate) struct History {
    holds: Mutex<Vec<Hold>>,
    is_over: AtomicBool,
}

impl History {
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Believes in a lease for a while, and gives it back.
    pub(crate) fn hold(&self, lease: Lease, most: Duration) {
        let (token, from) = (lease.token().get(), now());
        // Each look is an act: the hold lasts as long as it is believed in.
        let mut to = from;
        while to.since(from) < most && lease.check().is_ok() {
            to = now();
            sleep(Duration::from_millis(1));
        }
        self.note(Hold { token, from, to });
        drop(block_on(lease.release()));
    }

    /// Somebody is about to give a lease back.
    pub(crate) fn note(&self, hold: Hold) {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).push(hold);
    }

    /// Takes the lock again and again, whatever happens to the servers, until the history is over.
    pub(crate) fn take_turns(&self, url: &str, ttl: Duration, most: Duration) {
        let locks = locks(url);
        while !self.is_over() {
            let lock = locks.lock("orders").unwrap().ttl(ttl).wait(ttl * 4);
            match block_on(lock.acquire()) {
                Ok(lease) => self.hold(lease, most),
                Err(error) => assert_may_be(&error),
            }
        }
    }

    /// Asserts that nobody held beside another one, and that tokens grew with the time.
    #[track_caller]
    pub(crate) fn assert_clean(self) -> usize {
        let mut holds = self.holds.into_inner().unwrap_or_else(PoisonError::into_inner);
        holds.sort_by_key(|hold| hold.from);
        for pair in holds.windows(2) {
            assert!(pair[0].to < pair[1].from, "two at once: {pair:?}");
            assert!(pair[0].token < pair[1].token, "tokens fell: {pair:?}");
        }
        holds.len()
    }
}

/// What somebody who asks may be told while servers fail.
#[track_caller]
fn assert_may_be(error: &Error) {
    let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Contended, ErrorKind::Lost];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}
