//! Losses that the server tells of: the holder hears within a second, however long its lease is.

use fencepost_core::{ErrorKind, LossReason, Moment};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::PostgresServer;

use crate::stage::{
    CARELESS, LONG, SOON, ask, assert_held, assert_kind, assert_nothing_is_left, at, deadline, holding_pid,
    lock, loss, now, proxy_to, release, take, through, wait_for_waiters,
};

/// A holder with a lease of a minute, whose session is ended by `end`.
fn holder_hears_soon(mut server: PostgresServer, end: impl FnOnce(&mut PostgresServer) -> Moment) {
    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    // Listening all the time: the end may take longer than the news of it.
    let listening = std::thread::spawn(|| (loss(&held), held));
    let ended = end(&mut server);
    let ((error, heard), held) = listening.join().expect("listening does not panic");
    assert_eq!(error.loss_reason(), Some(LossReason::SessionEnded), "{error}");
    assert!(heard.since(ended) < SOON, "{:?}", heard.since(ended));
    assert!(heard < deadline(&held) && held.check().is_err());
    // What was lost stays lost, although the same process can have the lock again.
    let bob = at(&server, CARELESS);
    let next = take(&lock(&bob, "a").ttl(LONG));
    assert!(next.token() > held.token());
    assert!(held.check().is_err());
    assert_kind(&block_on(held.release()).expect_err("it was lost"), ErrorKind::Lost);
    assert_held(&next, &bob);
    release(next);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_whose_session_is_ended_hears_soon() {
    holder_hears_soon(PostgresServer::start(), |server| {
        let pid = holding_pid(server);
        let asked = now();
        server.terminate(pid);
        asked
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_hears_soon_of_an_immediate_restart() {
    holder_hears_soon(PostgresServer::start(), |server| {
        let asked = now();
        server.shut_down_immediately();
        server.restart();
        asked
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_hears_soon_that_the_primary_was_killed_and_another_one_promoted() {
    holder_hears_soon(PostgresServer::start(), |server| {
        let standby = server.standby();
        standby.wait_for_replay(server);
        let mut primary = std::mem::replace(server, standby);
        let killed = now();
        primary.kill();
        server.promote();
        killed
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_hears_soon_that_its_connection_was_reset_and_the_next_one_gets_the_lock() {
    let server = PostgresServer::start();
    let proxy = proxy_to(&server);
    let (ann, bob) = (through(&proxy, CARELESS), at(&server, CARELESS));
    let held = take(&lock(&ann, "a").ttl(LONG));
    let waiting = ask(&lock(&bob, "a").ttl(LONG));
    wait_for_waiters(&server, 1);
    let cut = now();
    proxy.set(Mode::Cut);
    let (error, heard) = loss(&held);
    assert_eq!(error.loss_reason(), Some(LossReason::SessionEnded), "{error}");
    assert!(heard.since(cut) < SOON, "{:?}", heard.since(cut));
    let (next, granted) = waiting.lease();
    assert!(granted.since(cut) < SOON, "{:?}", granted.since(cut));
    assert!(next.token() > held.token());
    // The path is there again, and the client too: it does not take back what it has lost.
    proxy.set(Mode::Pass);
    assert_kind(&block_on(held.release()).expect_err("it was lost"), ErrorKind::Lost);
    assert_held(&next, &bob);
    release(next);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn ended_session_passes_the_lock_to_the_one_who_waits() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let held = take(&lock(&ann, "a").ttl(LONG));
    let waiting = ask(&lock(&bob, "a").ttl(LONG));
    wait_for_waiters(&server, 1);
    let asked = now();
    server.terminate(holding_pid(&server));
    let (next, granted) = waiting.lease();
    assert!(granted.since(asked) < SOON && loss(&held).1.since(asked) < SOON);
    release(next);
    drop(held);
    assert_nothing_is_left(&server);
}
