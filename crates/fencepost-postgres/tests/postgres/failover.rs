//! Several hosts: the primary is found wherever it stands in the URL, and the next one after it is gone.

use fencepost_core::{ErrorKind, Locks, LossReason};
use fencepost_testkit::servers::{PostgresServer, wait_until};

use crate::stage::{
    CARELESS, LIMIT, LONG, SLACK, SOON, ask, assert_held, assert_kind, at, entries, lock, locks, loss, now,
    refusal, release, take,
};

fn of_all(servers: [&PostgresServer; 2]) -> Locks {
    let [first, second] = servers.map(PostgresServer::port);
    locks(&format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres?{CARELESS}"))
}

fn pair() -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start();
    release(take(&lock(&at(&primary, CARELESS), "a")));
    let standby = primary.standby();
    standby.wait_for_replay(&primary);
    (primary, standby)
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn standby_is_refused_with_a_hint_although_it_would_grant() {
    let (primary, standby) = pair();
    let error = refusal(&lock(&at(&standby, CARELESS), "a"));
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.to_string().contains("is a standby"), "{error}");
    assert!(error.advice().is_some_and(|advice| advice.contains("primary")), "{error:?}");
    let control = standby.query("select pg_try_advisory_lock(1717923427, 1)");
    assert_eq!(control, "t", "the server itself does not mind");
    drop(primary);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn primary_is_found_in_either_order() {
    let (primary, standby) = pair();
    for servers in [[&primary, &standby], [&standby, &primary]] {
        let held = take(&lock(&of_all(servers), "a"));
        assert_eq!((entries(&primary, true), entries(&standby, true)), (1, 0));
        assert_kind(&refusal(&lock(&at(&primary, CARELESS), "a")), ErrorKind::Contended);
        release(held);
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn next_acquisition_after_a_failover_goes_to_the_new_primary() {
    let (mut primary, standby) = pair();
    let (ann, bob) = (of_all([&primary, &standby]), of_all([&standby, &primary]));
    let held = take(&lock(&ann, "a").ttl(LONG));
    release(take(&lock(&bob, "b")));
    primary.kill();
    let killed = now();
    assert_eq!(loss(&held).0.loss_reason(), Some(LossReason::SessionEnded));
    for locks in [&ann, &bob] {
        assert_kind(&refusal(&lock(locks, "a")), ErrorKind::Unavailable);
    }
    assert!(now().since(killed) < SLACK * 2, "it is said soon");
    standby.promote();
    let next = take(&lock(&ann, "a"));
    assert!(next.token() > held.token());
    assert_held(&next, &bob);
    release(next);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiter_goes_on_with_the_new_primary() {
    let (mut primary, standby) = pair();
    let (ann, bob) = (of_all([&primary, &standby]), of_all([&primary, &standby]));
    let held = take(&lock(&ann, "a").ttl(LONG));
    let waiting = ask(&lock(&bob, "a").ttl(LONG));
    wait_until("it waits", || entries(&primary, false) == 1);
    primary.kill();
    let killed = now();
    standby.promote();
    let (next, granted) = waiting.lease();
    assert!(granted.since(killed) < LIMIT);
    assert!(next.token() > held.token() && loss(&held).1.since(killed) < SOON + granted.since(killed));
    assert_held(&next, &bob);
    release(next);
}
