//! What a directory of locks does beyond the suite, mostly with several processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod child;
mod logbook;
mod revoke;
mod shared;
mod signals;

use std::path::Path;
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Clock, HolderId, Locks, LossReason, Mode, Revoked, Status, Wait, block_on,
};
use fencepost_file::FileBackend;

/// No step of a test takes longer.
const LIMIT: Duration = Duration::from_secs(20);

fn locks(directory: &Path) -> Locks {
    let url = format!("file:{}", directory.display()).parse().unwrap();
    Locks::new(FileBackend::from_url(&url, Clock::system()).unwrap())
}

/// A request below the level of leases.
fn request(name: &str) -> AcquireRequest {
    AcquireRequest {
        name: name.parse().unwrap(),
        holder: HolderId::draw(&Clock::system()),
        label: "a test".to_owned(),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(1),
        at_least: None,
        wait: Wait::Until(Clock::system().now().after(LIMIT)),
        beside: Vec::new(),
        observer: None,
    }
}

/// Looks until it is so.
#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::system();
    let give_up_at = clock.now().after(LIMIT);
    while !is_so() {
        assert!(clock.now() < give_up_at, "{what}: not so after {LIMIT:?}");
        pass(Duration::from_millis(2));
    }
}

fn pass(duration: Duration) {
    block_on(Clock::system().sleep(duration));
}

#[test]
fn waiter_at_a_record_that_was_moved_away_gets_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let lock = locks(directory.path()).lock("orders").unwrap().wait(LIMIT);
    let first = block_on(lock.acquire()).unwrap();
    let path = |name: &str| directory.path().join(name);
    // Whoever comes now waits at the record.
    std::fs::remove_file(path("orders.lock")).unwrap();
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| block_on(lock.acquire()).unwrap());
        until("a waiter has the new lock file", || path("orders.lock").exists());
        // It is blocked in the kernel by then.
        pass(Duration::from_millis(100));
        std::fs::rename(path("orders.tok"), path("elsewhere")).unwrap();
        block_on(first.release()).unwrap_err();
        next.join().unwrap()
    });
    next.check().unwrap();
    assert!(path("orders.tok").exists(), "it has made a new one");
    block_on(next.release()).unwrap();
}

/// A copy by hard links keeps the old file alive, so that its count of links tells nothing.
#[test]
fn waiter_whose_lock_file_was_moved_away_is_seen_and_can_be_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let locks = locks(directory.path());
    let lock = locks.lock("orders").unwrap().wait(LIMIT);
    let first = block_on(lock.acquire()).unwrap();
    let path = |name: &str| directory.path().join(name);
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| block_on(lock.acquire()).unwrap());
        until("a waiter is seen", || !block_on(locks.inspect("orders")).unwrap().waiters.is_empty());
        std::fs::rename(path("orders.lock"), path("elsewhere")).unwrap();
        block_on(first.release()).unwrap();
        next.join().unwrap()
    });
    let state = block_on(locks.inspect("orders")).unwrap();
    assert_eq!((state.status, state.token), (Status::Held, Some(next.token())));
    let revoked = block_on(locks.revoke("orders", next.token(), "a test")).unwrap();
    assert_eq!(revoked, Revoked::Done);
    assert_eq!(block_on(next.lost()).loss_reason(), Some(LossReason::Revoked));
}

/// The names of the files that end so.
fn files(directory: &Path, end: &str) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.ends_with(end)).collect()
}
