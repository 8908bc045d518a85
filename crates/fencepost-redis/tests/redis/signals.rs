//! Who watches the locks is told that one may have changed, and nobody else pays for it.

use std::time::Duration;

use fencepost_core::{Locks, NamePrefix, until};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, wait_until};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use crate::stage::{
    CARELESS, LIMIT, SLACK, TTL, ask, assert_nothing_is_left, at, clock, key, lock, now, pass, proxy_to,
    release, take, wait_for_waiters,
};

const LONG: Duration = Duration::from_secs(30);

fn watch(locks: &Locks) -> BoxStream<'static, ()> {
    let prefix = NamePrefix::new("");
    let signals = block_on(locks.backend().signals(&prefix)).expect("the server answers");
    signals.expect("a Redis tells who watches")
}

/// Whether there is a signal within a time.
fn is_told(signals: &mut BoxStream<'static, ()>, within: Duration) -> bool {
    let told = block_on(until(&clock(), Some(now().after(within)), signals.next()));
    told.is_some_and(|told| told.is_some())
}

fn connections(server: &RedisServer) -> usize {
    server.command(&["CLIENT", "LIST"]).text().lines().filter(|line| line.contains("name=fencepost")).count()
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn watcher_is_told_of_every_change_and_of_no_renewal() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let mut signals = watch(&at(server.port(), CARELESS));
    let quiet = Duration::from_millis(300);
    let held = take(&lock(&locks, "a/1"));
    assert!(is_told(&mut signals, SLACK), "of a grant");
    assert!(!is_told(&mut signals, TTL * 2), "it is renewed, and that is no change");
    let waiter = ask(&lock(&locks, "a/1").ttl(LONG));
    wait_for_waiters(&server, "a/1", 1);
    assert!(is_told(&mut signals, SLACK), "of a waiter");
    assert!(!is_told(&mut signals, Duration::from_secs(3)), "its signs of life are no change");
    release(held);
    let (next, _) = waiter.lease();
    assert!(is_told(&mut signals, SLACK), "of a hand-over");
    while is_told(&mut signals, quiet) {}
    release(next);
    assert!(is_told(&mut signals, SLACK), "of a release");
    while is_told(&mut signals, quiet) {}
    server.command(&["SET", &key("a/2", "l"), "1|", "PX", "100"]);
    assert!(is_told(&mut signals, SLACK), "of a record");
    assert!(is_told(&mut signals, LIMIT), "of a record that has run out");
    server.command(&["SET", "somebody:else", "1", "PX", "100"]);
    server.command(&["SET", &key("a", "x:0"), "1", "PX", "100"]);
    assert!(!is_told(&mut signals, quiet), "of nothing else");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn watcher_that_goes_leaves_no_connection_and_one_that_is_cut_off_is_told_so() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let locks = at(proxy.port(), CARELESS);
    release(take(&lock(&locks, "a")));
    let before = connections(&server);
    let signals = watch(&locks);
    assert_eq!(connections(&server), before + 1, "its own connection");
    drop(signals);
    wait_until("it is closed", || connections(&server) == before);
    let mut signals = watch(&locks);
    proxy.set(Mode::Cut);
    let end = block_on(until(&clock(), Some(now().after(LIMIT)), async {
        while signals.next().await.is_some() {}
    }));
    assert!(end.is_some(), "the stream ends");
    pass(Duration::from_millis(10));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn watcher_that_the_server_does_not_allow_is_told_to_look_by_itself() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "default", "-client|tracking"]);
    let prefix = NamePrefix::new("");
    let signals = block_on(at(server.port(), CARELESS).backend().signals(&prefix)).expect("it answers");
    assert!(signals.is_none());
}
