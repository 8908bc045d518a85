//! Slots: who waits for one waits for all of them, with a session for each.

use std::time::Duration;

use fencepost_core::{ErrorKind, Lock, Locks};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::PostgresServer;

use crate::stage::{
    CARELESS, LONG, SLACK, ask, assert_kind, assert_nothing_is_left, at, lock, pass, release, take,
};

fn slot(locks: &Locks, count: usize) -> Lock {
    lock(locks, "a").ttl(LONG).slots(count)
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiter_for_a_slot_does_with_the_connections_that_are_left() {
    // The superuser, as whom the tests come, may use those that are reserved.
    let server = PostgresServer::start_with(&["max_connections=9", "superuser_reserved_connections=1"]);
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let mut held: Vec<_> = (0..4).map(|_| take(&slot(&ann, 4))).collect();
    // Five connections are left, and one more is for the test to look through.
    let waiting = ask(&slot(&bob, 4));
    pass(SLACK);
    assert!(!waiting.is_over());
    let freed = held.swap_remove(2);
    let (name, token) = (freed.lock().clone(), freed.token());
    release(freed);
    let (next, _) = waiting.lease();
    assert_eq!(*next.lock(), name, "whichever comes free");
    assert!(next.token() > token);
    held.push(next);
    held.into_iter().for_each(release);
    drop((ann, bob));
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiter_for_a_slot_for_whom_no_connection_is_left_is_told_so() {
    let server = PostgresServer::start_with(&["max_connections=4", "superuser_reserved_connections=1"]);
    let ann = at(&server, CARELESS);
    let held: Vec<_> = (0..4).map(|_| take(&slot(&ann, 4))).collect();
    let error = block_on(slot(&at(&server, CARELESS), 4).wait(Duration::from_secs(1)).acquire());
    let error = error.expect_err("there is no connection left");
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.to_string().contains("too many clients"), "{error}");
    assert!(error.advice().is_some_and(|advice| advice.contains("max_connections")), "{error:?}");
    held.into_iter().for_each(release);
}
