//! Processes that are stopped: a waiter must not keep what it is granted, and a holder does as `on_pause` says.

use std::time::Duration;

use fencepost_core::ErrorKind;
use fencepost_testkit::servers::{PostgresServer, PostgresSetup};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::Client;
use crate::stage::{
    SLACK, ask, assert_held, assert_kind, assert_nothing_is_left, at, holding_pid, lock, now, pass,
    pid_if_held, refusal, release, take, wait_for_waiters,
};

/// The lease of a stopped waiter: a statement that waits has time to be granted the lock after its client was stopped.
const TTL: Duration = Duration::from_secs(3);

/// A client that was stopped while it waited and has been granted the lock since.
fn stopped_with_a_grant(server: &PostgresServer, options: &str) -> Client {
    for _ in 0..20 {
        let held = take(&lock(&at(server, options), "a").ttl(TTL));
        let client = Client::start(&format!("{}?{options}", server.url()), TTL);
        wait_for_waiters(server, 1);
        client.stop();
        release(held);
        // It has been granted it, or its statement is over and nothing waits.
        if pid_if_held(server).is_some() {
            return client;
        }
    }
    panic!("no waiter was stopped while its statement waited");
}

fn stopped_waiter_loses_what_it_is_granted(options: &str) {
    let server = PostgresServer::start();
    let bob = at(&server, options);
    let client = stopped_with_a_grant(&server, options);
    let granted_to_it = now();
    let (next, granted) = ask(&lock(&bob, "a").ttl(TTL)).lease();
    let after = granted.since(granted_to_it);
    assert!(after > TTL / 2 && after < TTL + SLACK, "{after:?}");
    client.go_on();
    pass(TTL / 2);
    assert!(!client.says_that_it_holds(), "what it was granted is gone");
    assert_held(&next, &bob);
    wait_for_waiters(&server, 1);
    release(next);
    client.await_hold();
    drop(client);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_waiter_loses_what_it_is_granted_also_where_a_holder_does_not() {
    stopped_waiter_loses_what_it_is_granted("on_pause=hold&quarantine=off");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_waiter_loses_what_it_is_granted_where_a_holder_does_too() {
    stopped_waiter_loses_what_it_is_granted("on_pause=expire&quarantine=off");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_holder_keeps_the_lock_for_as_long_as_it_is_stopped() {
    let server = PostgresServer::start();
    let options = "on_pause=hold&quarantine=off";
    let short = Duration::from_secs(1);
    let held = take(&lock(&at(&server, options), "a").ttl(short));
    let client = Client::start(&format!("{}?{options}", server.url()), short);
    wait_for_waiters(&server, 1);
    release(held);
    client.await_hold();
    // Its first renewal has ended what limits a waiter.
    pass(short);
    client.stop();
    pass(short * 3);
    assert_kind(&refusal(&lock(&at(&server, options), "a")), ErrorKind::Contended);
    drop(client);
    assert_nothing_is_left(&server);
}

/// A session that may be idle for a while has been so when the clock is set forward. The server notices at its next alarm, of which one
/// is often left over from a wait, and is sent here.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_that_has_waited_keeps_the_lock_when_the_clock_is_set_forward() {
    let mut server = PostgresSetup::default().own_clock().start();
    let locks = at(&server, "on_pause=hold&quarantine=off");
    let wanted = lock(&locks, "a").ttl(Duration::from_mins(1));
    let before = take(&wanted);
    let next = ask(&wanted);
    wait_for_waiters(&server, 1);
    release(before);
    let (held, _) = next.lease();
    // Long before its first renewal.
    pass(Duration::from_millis(200));
    server.step_clock_forward(Duration::from_hours(1));
    let session = Pid::from_raw(holding_pid(&server).cast_signed()).expect("it is not 0");
    kill_process(session, Signal::ALARM).expect("it is there");
    pass(SLACK);
    assert_held(&held, &locks);
    assert_kind(&refusal(&wanted), ErrorKind::Contended);
    release(held);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_holder_loses_the_lock_after_its_ttl() {
    let server = PostgresServer::start();
    let options = "on_pause=expire&quarantine=off";
    let client = Client::start(&format!("{}?{options}", server.url()), TTL);
    client.await_hold();
    client.stop();
    let stopped = now();
    let (next, granted) = ask(&lock(&at(&server, options), "a").ttl(TTL)).lease();
    let after = granted.since(stopped);
    assert!(after > TTL / 3 && after < TTL + SLACK, "{after:?}");
    release(next);
    assert_nothing_is_left(&server);
}
