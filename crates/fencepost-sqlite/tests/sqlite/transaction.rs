//! A transaction of the caller's own connection counts only while the lease does.

use std::sync::Arc;

use fencepost_core::{Clock, ErrorKind, Fence, Lease, Locks, MemoryBackend, block_on};
use rusqlite::Connection;

use crate::support::{Ledger, WRITE, name};

/// Locks, a lease of one of them, and the table that it guards.
fn held() -> (Ledger, Locks, Lease) {
    let ledger = Ledger::new();
    ledger.guard("account", "ledger");
    let locks = Locks::new(MemoryBackend::new(Clock::system()));
    let lease = block_on(locks.lock("ledger").unwrap().acquire()).unwrap();
    (ledger, locks, lease)
}

fn next(locks: &Locks, lease: &Lease) -> Lease {
    block_on(locks.revoke("ledger", lease.token(), "it does not answer")).unwrap();
    block_on(locks.lock("ledger").unwrap().acquire()).unwrap()
}

#[test]
fn transaction_under_a_lease_is_committed() {
    let (ledger, _locks, lease) = held();
    let mut connection = ledger.connect();
    for total in 1..=3 {
        let transaction = block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap();
        transaction.execute(WRITE, []).unwrap();
        transaction.commit().unwrap();
        assert_eq!((ledger.total(), ledger.stamps_left()), (total, 0));
    }
    let transaction = block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap();
    transaction.execute(WRITE, []).unwrap();
    drop(transaction);
    assert_eq!((ledger.total(), ledger.stamps_left()), (3, 0), "what is dropped is rolled back");
    let mark = block_on(ledger.fence().mark(&name("ledger"))).unwrap().unwrap();
    assert_eq!(mark.token, lease.token());
}

#[test]
fn transaction_is_not_committed_after_the_lease_is_lost() {
    let (ledger, locks, lease) = held();
    let mut connection = ledger.connect();
    let transaction = block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap();
    transaction.execute(WRITE, []).unwrap();
    let _next = next(&locks, &lease);
    block_on(lease.lost());
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!((ledger.total(), ledger.stamps_left()), (0, 0));
    let begun = block_on(ledger.fence().transaction(&mut connection, &lease));
    assert_eq!(begun.unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn nobody_seals_while_the_transaction_is_open() {
    let (ledger, locks, lease) = held();
    let mut connection = ledger.connect();
    let transaction = block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap();
    let mut other = ledger.connect();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    drop(transaction);
    let newer = next(&locks, &lease);
    block_on(ledger.fence().transaction(&mut other, &newer)).unwrap().commit().unwrap();
}

/// A holder that was paused and believes that it holds the lock: its own clock has not told it yet.
#[test]
fn refusal_of_the_fence_loses_the_lease() {
    let (ledger, _locks, lease) = held();
    let greater = lease.token().get() + 1;
    ledger.seal(greater).unwrap();
    let mut connection = ledger.connect();
    let error = block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.to_string().contains(&greater.to_string()), "the mark is named: {error}");
    assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn transaction_on_another_file_is_refused() {
    let (ledger, _locks, lease) = held();
    let other = Ledger::guarded();
    for mut connection in [other.connect(), Connection::open_in_memory().unwrap()] {
        let error = block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let link = other.path().with_file_name("link.db");
    std::os::unix::fs::symlink(ledger.path(), &link).unwrap();
    let mut connection = Connection::open(link).unwrap();
    block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap().commit().unwrap();
}

#[test]
fn transaction_needs_foreign_keys() {
    let (ledger, _locks, lease) = held();
    let mut connection = ledger.connect();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    let error = block_on(ledger.fence().transaction(&mut connection, &lease)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.advice().unwrap().contains("PRAGMA foreign_keys = ON"));
    lease.check().unwrap();
}

/// It can be spawned wherever futures have to be sent.
#[test]
fn begin_can_be_sent_to_another_thread() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let (ledger, _locks, lease) = held();
    let (mut connection, fence) = (ledger.connect(), Arc::new(ledger.fence()));
    let begun = sent(async { fence.transaction(&mut connection, &lease).await?.commit() });
    block_on(begun).unwrap();
}
