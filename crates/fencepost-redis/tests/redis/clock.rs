//! A server whose clock is set: its leases end by it.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{ErrorKind, Status};
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, RedisSetup, wait_until};

use crate::stage::{
    CARELESS, Diary, SLACK, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, deadline, lock,
    look, loss, now, proxy_to, release, take, wait_for_waiters,
};

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn clock_set_forward_is_noticed_and_the_leases_that_it_ended_are_lost_at_once() {
    let mut server = RedisSetup::default().own_clock().start();
    let (ann, diary) = (at(server.port(), CARELESS), Arc::new(Diary::default()));
    let soon = take(&lock(&ann, "soon").observer(diary.listener()));
    let late = take(&lock(&ann, "late").ttl(Duration::from_mins(1)).observer(diary.listener()));
    let tokens = [soon.token(), late.token()];
    server.step_clock_forward(Duration::from_hours(1));
    let stepped = now();
    for lease in [&soon, &late] {
        let (error, at) = loss(lease);
        assert_kind(&error, ErrorKind::Lost);
        // A lease of a minute would have heard of it at its own renewal, a quarter of a minute later.
        assert!(at.since(stepped) < TTL + SLACK, "{:?}", at.since(stepped));
    }
    wait_until("both were told", || diary.count("noticed: the clock of the server was set forward") == 2);
    drop((soon, late));
    let next = take(&lock(&at(server.port(), CARELESS), "late"));
    assert!(tokens.iter().all(|token| next.token() > *token), "a fence refuses the holders of before");
    release(next);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn clock_set_back_is_noticed_and_nobody_else_gets_in() {
    let mut server = RedisSetup::default().own_clock().start();
    let (ann, bob, diary) =
        (at(server.port(), CARELESS), at(server.port(), CARELESS), Arc::new(Diary::default()));
    let held = take(&lock(&ann, "a").observer(diary.listener()));
    let waiting = ask(&lock(&bob, "a"));
    wait_for_waiters(&server, "a", 1);
    server.step_clock_back(Duration::from_hours(1));
    wait_until("it is noticed", || diary.count("noticed: the clock of the server was set back") == 1);
    let renewed = deadline(&held);
    wait_until("renewals go on", || deadline(&held) > renewed.after(TTL / 8));
    assert_held(&held, &bob);
    assert!(!waiting.is_over());
    release(held);
    let (next, _) = waiting.lease();
    release(next);
    assert_eq!(look(&bob, "a").status, Status::Free);
    release(take(&lock(&ann, "a")));
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn slow_reply_is_no_step() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let (ann, diary) = (at(proxy.port(), CARELESS), Arc::new(Diary::default()));
    let held = take(&lock(&ann, "a").ttl(Duration::from_secs(2)).observer(diary.listener()));
    for delay in [60, 0, 30, 0] {
        proxy.set(Mode::Delay(Duration::from_millis(delay)));
        let before = deadline(&held);
        wait_until("it is renewed", || deadline(&held) > before);
    }
    assert_eq!(diary.count(""), 0, "{diary}");
    release(held);
}
