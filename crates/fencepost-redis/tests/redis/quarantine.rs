//! After anything that may have lost data nothing is granted until every lease that may have been forgotten is over.
//!
//! Each scenario has its control: the same without a quarantine, where the lock is given at once.

use std::time::Duration;

use fencepost_core::{ErrorKind, Event, Status};
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, RedisSetup, Reply, wait_until};
use fencepost_testkit::{Listener, block_on};

use crate::stage::{
    ACQUIRE, CAREFUL, CARELESS, SLACK, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, clock,
    deadline, key, lock, look, loss, now, old_server, pass, proxy_to, refusal, release, server_time, take,
};

/// When the server grants again, in milliseconds of its clock.
fn ready_at(server: &RedisServer) -> i64 {
    let record = server.command(&["GET", "fencepost:inc"]);
    record.text().split('|').nth(1).and_then(|text| text.parse().ok()).expect("the record has a time")
}

fn in_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("a ttl is short")
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_is_as_it_was_grants_at_once() {
    let server = RedisServer::start();
    let first = at(server.port(), CAREFUL);
    release(ask(&lock(&first, "a")).lease().0);
    let asked = now();
    release(take(&lock(&at(server.port(), CAREFUL), "a")));
    assert!(now().since(asked) < TTL, "a second client finds the record, and the quarantine over");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn restart_with_its_data_begins_a_quarantine_and_leaves_the_holder_its_lease() {
    let mut server =
        old_server(RedisSetup::default().arguments(&["--appendonly", "yes", "--appendfsync", "always"]));
    let (ann, bob) = (at(server.port(), "max_ttl=2s"), at(server.port(), "max_ttl=2s"));
    let held = take(&lock(&ann, "held").ttl(Duration::from_secs(2)));
    release(take(&lock(&bob, "other")));
    let killed_at = server_time(&server);
    server.restart();
    let heard = Listener::new();
    let error = refusal(&lock(&bob, "other").observer(heard.observer()));
    assert_eq!(heard.count(|event| matches!(event, Event::Quarantined)), 1, "{heard:?}");
    assert_kind(&error, ErrorKind::Contended);
    let text = error.to_string();
    assert!(text.contains("it was restarted") && text.contains(" s, because"), "{text}");
    assert!(error.advice().is_some_and(|advice| advice.contains("quarantine=off")), "{error:?}");
    assert!(ready_at(&server) >= killed_at + 2_000, "it lasts the whole max_ttl");
    let state = look(&bob, "other");
    assert_eq!(state.status, Status::Quarantined, "whoever looks sees it");
    assert!(state.remaining.is_some_and(|left| left <= Duration::from_millis(2_052)), "{state:?}");

    let (other, _) = ask(&lock(&bob, "other")).lease();
    let granted_at = server_time(&server);
    assert!(granted_at >= ready_at(&server), "waiting sits it out");
    assert!(granted_at < ready_at(&server) + in_ms(SLACK), "and no longer");
    assert_held(&held, &bob);
    release(held);
    release(other);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn restart_without_a_quarantine_grants_at_once() {
    let mut server = old_server(RedisSetup::default().arguments(&["--appendonly", "yes"]));
    let bob = at(server.port(), CARELESS);
    release(take(&lock(&bob, "other")));
    server.restart();
    release(take(&lock(&bob, "other")));
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn empty_server_is_trusted_when_it_is_up_longer_than_any_lease() {
    let server = RedisServer::start();
    let error = refusal(&lock(&at(server.port(), CAREFUL), "a"));
    assert!(error.to_string().contains("it was started and knows of no lock"), "{error}");
    let server = old_server(RedisSetup::default());
    let asked = now();
    release(take(&lock(&at(server.port(), CAREFUL), "a")));
    assert!(now().since(asked) < TTL);
}

/// The server counts the beginnings of seconds and not how long it is up.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_was_restarted_empty_late_in_a_second_is_not_taken_for_an_old_one() {
    let mut server = RedisServer::start();
    let proxy = proxy_to(&server);
    let ann = at(proxy.port(), CARELESS);
    let held = take(&lock(&ann, "a"));
    wait_until("a second is nearly over", || clock().wall_micros() % 1_000_000 > 850_000);
    // Nobody else tells the server to be careful.
    proxy.set(Mode::Blackhole);
    let deadline = deadline(&held);
    server.restart_empty();
    wait_until("the next second has begun", || clock().wall_micros() % 1_000_000 < 500_000);
    let stranger = at(server.port(), CAREFUL);
    while now() < deadline {
        let given = block_on(lock(&stranger, "a").try_acquire()).unwrap();
        assert!(given.is_none() || now() >= deadline, "the holder may still believe in the lease");
        pass(Duration::from_millis(5));
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn empty_server_that_has_flushed_is_not_trusted_however_long_it_is_up() {
    let server = old_server(RedisSetup::default());
    server.command(&["FLUSHDB"]);
    let error = refusal(&lock(&at(server.port(), CAREFUL), "a"));
    assert!(error.to_string().contains("its data was removed"), "{error}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn longest_max_ttl_that_anybody_has_used_counts() {
    let mut server =
        old_server(RedisSetup::default().arguments(&["--appendonly", "yes", "--appendfsync", "always"]));
    release(take(&lock(&at(server.port(), "max_ttl=3s"), "a")));
    let before = server_time(&server);
    server.restart();
    refusal(&lock(&at(server.port(), CAREFUL), "a"));
    assert!(ready_at(&server) >= before + 3_000);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn quarantine_of_an_emptied_server_grows_when_a_client_of_longer_leases_comes() {
    let server = RedisServer::start();
    refusal(&lock(&at(server.port(), CAREFUL), "a"));
    let before = server_time(&server);
    refusal(&lock(&at(server.port(), "max_ttl=3s"), "a"));
    assert!(ready_at(&server) >= before + 3_000, "its leases may have been forgotten, and last longer");
    refusal(&lock(&at(server.port(), CAREFUL), "a"));
    assert!(ready_at(&server) >= before + 3_000, "and nobody shortens it");
}

/// A holder whose path is gone believes in its lease to the end. Nobody else may have it before.
fn nothing_is_granted_behind(server: &RedisServer, ttl: Duration, forget: impl FnOnce(&RedisServer)) {
    let proxy = proxy_to(server);
    let careful = format!("max_ttl={}ms", ttl.as_millis());
    let (ann, bob) = (at(proxy.port(), &careful), at(server.port(), &careful));
    let control = at(server.port(), &format!("{careful}&{CARELESS}"));
    release(take(&lock(&bob, "a")));
    release(take(&lock(&control, "a")));
    let believed = take(&lock(&ann, "a").ttl(ttl));
    proxy.set(Mode::Blackhole);
    let deadline = deadline(&believed);
    forget(server);
    let careless = block_on(lock(&control, "a").try_acquire()).expect("the lock can be asked for");
    let careless = careless.expect("without a quarantine the lock is given");
    believed.check().expect("the control overlaps");
    release(careless);
    let error = refusal(&lock(&bob, "a"));
    assert!(error.to_string().contains("its data was removed"), "{error}");
    let (next, granted) = ask(&lock(&bob, "a")).lease();
    let (_, lost) = loss(&believed);
    assert!(granted >= deadline.min(lost), "the holds do not overlap");
    assert!(next.token() > believed.token(), "tokens grow");
    release(next);
    proxy.set(Mode::Pass);
    drop(believed);
    assert_nothing_is_left(server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn flush_behind_an_open_connection_is_noticed() {
    let server = old_server(RedisSetup::default());
    nothing_is_granted_behind(&server, Duration::from_secs(1), |server| drop(server.command(&["FLUSHALL"])));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn turn_as_a_replica_behind_an_open_connection_is_noticed() {
    let (server, empty) = (old_server(RedisSetup::default()), RedisServer::start());
    let turn = |server: &RedisServer| {
        server.replica_of(&empty);
        server.promote();
    };
    nothing_is_granted_behind(&server, Duration::from_secs(3), turn);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_hears_of_a_flush_at_its_next_renewal() {
    let server = old_server(RedisSetup::default());
    let held = take(&lock(&at(server.port(), CAREFUL), "a"));
    let flushed = now();
    server.command(&["FLUSHALL"]);
    let (error, at) = loss(&held);
    assert_kind(&error, ErrorKind::Lost);
    assert!(at.since(flushed) < TTL / 2, "{:?}", at.since(flushed));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn removed_record_of_the_incarnation_begins_a_quarantine_and_leaves_the_holder_its_lease() {
    let server = old_server(RedisSetup::default());
    let (ann, bob) = (at(server.port(), CAREFUL), at(server.port(), CAREFUL));
    let held = take(&lock(&ann, "held"));
    release(take(&lock(&bob, "other")));
    server.command(&["DEL", "fencepost:inc"]);
    let error = refusal(&lock(&bob, "other"));
    assert!(error.to_string().contains("its data was removed"), "{error}");
    pass(TTL / 2);
    let (other, _) = ask(&lock(&ann, "other")).lease();
    assert!(server_time(&server) >= ready_at(&server));
    assert_held(&held, &bob);
    release(held);
    release(other);
    assert_nothing_is_left(&server);
}

/// Nobody waits until the clock is where it was when the server began to grant.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn clock_that_was_set_back_costs_one_quarantine_at_most() {
    let mut server = old_server(RedisSetup::default());
    let bob = at(server.port(), CAREFUL);
    let first = take(&lock(&bob, "a"));
    let before = first.token();
    release(first);
    server.step_clock_back(Duration::from_hours(2));
    let asked = now();
    let (next, granted) = ask(&lock(&bob, "a")).lease();
    assert!(granted.since(asked) < TTL + SLACK);
    assert!(next.token() > before, "tokens grow");
    release(next);
}

/// A clock that has lost its date counts few digits: as text, an hour of 1970 comes after a year.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn free_lock_is_not_granted_before_its_time_however_many_digits_that_has() {
    let server = RedisServer::start();
    release(take(&lock(&at(server.port(), CARELESS), "a")));
    let incarnation = server.command(&["GET", "fencepost:inc"]);
    let (lock, later) = (key("a", "l"), 10_000_000_000_000_i64);
    assert!(server_time(&server) < later);
    let ask = |from: i64| {
        let (from, holder) = (from.to_string(), "0".repeat(32));
        let arguments = [incarnation.text(), &from, &holder, "800", "0|{}", "0", ""];
        let command = ["EVAL", ACQUIRE, "2", "fencepost:inc", &lock];
        server.command(&[&command[..], &arguments].concat())
    };
    let refused = ask(later);
    assert_eq!(refused.array()[0].text(), "QUARANTINE", "{refused:?}");
    assert_eq!(server.command(&["GET", &lock]), Reply::Nil);
    assert!(ask(0).text().parse::<u64>().is_ok());
}
