//! Locks that several share to read: each ends by itself, and whoever wants it alone gets it in its turn.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{AcquireRequest, Claim, ErrorKind, HolderId, Locks, LossReason, Mode, Status, Wait};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode as Way;
use fencepost_testkit::servers::{RedisServer, wait_until};

use crate::stage::{
    CARELESS, SLACK, StoppedWaiter, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, calls,
    deadline, key, lock, look, loss, now, pass, proxy_to, release, scripts, take, wait_for_waiters,
};

const LONG: Duration = Duration::from_secs(30);

/// How long a lock is reserved for a waiter whose turn it is.
const RESERVATION: Duration = Duration::from_secs(1);

/// One who shares the lock and never renews, as a process that was killed.
fn killed_reader(locks: &Locks) -> Box<dyn Claim> {
    let request = AcquireRequest {
        name: "a".parse().expect("a test names a lock"),
        holder: HolderId::draw(&crate::stage::clock()),
        label: "a reader".to_owned(),
        ttl: TTL,
        at_least: None,
        mode: Mode::Shared,
        beside: Vec::new(),
        wait: Wait::No,
        observer: None,
    };
    block_on(locks.backend().acquire(&request)).expect("the lock can be shared")
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_reader_lets_a_writer_in_after_its_ttl_and_not_before() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let first = killed_reader(&locks);
    let second = take(&lock(&locks, "a").ttl(LONG).shared());
    let begun = now();
    let last = killed_reader(&locks);
    // The one with the longest lease goes first: the lock must not last as long as that.
    release(second);
    assert!(look(&locks, "a").remaining <= Some(TTL), "the lock lasts as long as the last reader");
    let writer = ask(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let (lease, granted) = writer.lease();
    assert!(granted.since(begun) >= TTL, "the last reader had its ttl: {:?}", granted.since(begun));
    assert!(granted.since(begun) < TTL + SLACK, "{:?}", granted.since(begun));
    drop((first, last));
    release(lease);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn reader_whose_time_is_over_is_not_revived_by_others_who_share_the_lock() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let mut killed = killed_reader(&locks);
    let lasting = take(&lock(&locks, "a").ttl(LONG).shared());
    pass(TTL + Duration::from_millis(50));
    assert_eq!(look(&locks, "a").readers.len(), 1, "it is not seen any more");
    assert_kind(&block_on(killed.renew()).expect_err("its time is over"), ErrorKind::Lost);
    assert_kind(&block_on(killed.release()).expect_err("its time is over"), ErrorKind::Lost);
    release(lasting);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn writer_is_not_starved_by_a_stream_of_readers() {
    let server = RedisServer::start();
    let (done, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let shared = lock(&at(server.port(), CARELESS), "a").ttl(LONG).shared();
                while !done.load(Ordering::Relaxed) {
                    let lease = block_on(shared.acquire()).expect("a reader is turns");
                    pass(Duration::from_millis(30));
                    release(lease);
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("all read", || turns.load(Ordering::Relaxed) > 8);
        let writer = lock(&at(server.port(), CARELESS), "a").ttl(LONG);
        let begun = now();
        for _ in 0..5 {
            release(ask(&writer).lease().0);
        }
        let took = now().since(begun);
        done.store(true, Ordering::Relaxed);
        assert!(took < SLACK * 2, "five turns among readers took {took:?}");
    });
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn reader_that_is_cut_off_is_not_believed_past_its_ttl() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let reader = take(&lock(&at(proxy.port(), CARELESS), "a").shared());
    proxy.set(Way::RequestHole);
    let ends = deadline(&reader);
    let (lease, granted) = ask(&lock(&at(server.port(), CARELESS), "a").ttl(LONG)).lease();
    assert!(granted > ends, "the writer came before the reader's deadline");
    assert_kind(&reader.check().expect_err("its time is over"), ErrorKind::Lost);
    // Its renewals arrive, and take nothing from anybody.
    let before = scripts(&server);
    proxy.set(Way::Pass);
    wait_until("late requests were carried out", || scripts(&server) > before);
    assert_held(&lease, &at(server.port(), CARELESS));
    assert!(look(&at(server.port(), CARELESS), "a").readers.is_empty());
    drop(reader);
    release(lease);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn readers_behind_a_writer_come_in_together_and_nobody_polls() {
    let server = RedisServer::start();
    let writer = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let shared = || lock(&at(server.port(), CARELESS), "a").ttl(LONG).shared();
    let readers: Vec<_> = (1..=3)
        .map(|place| {
            let asking = ask(&shared());
            wait_for_waiters(&server, "a", place);
            asking
        })
        .collect();
    let next = ask(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    wait_for_waiters(&server, "a", 4);
    let before = scripts(&server);
    release(writer);
    let readers: Vec<_> = readers.into_iter().map(|asking| asking.lease().0).collect();
    assert!(!next.is_over(), "the writer came in beside readers");
    assert_eq!(look(&at(server.port(), CARELESS), "a").readers.len(), 3);
    // A release, three claims, a look, and signs of life; the writer is told to look once.
    let used = scripts(&server) - before;
    assert!(used <= 5 + 8, "{used} scripts for a hand-over to three");
    readers.into_iter().for_each(release);
    release(next.lease().0);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_writer_in_the_queue_keeps_no_reader_out() {
    let server = RedisServer::start();
    let shared = lock(&at(server.port(), CARELESS), "a").ttl(LONG).shared();
    let reader = take(&shared);
    // Its connection is closed with it, as that of a killed process is.
    drop(StoppedWaiter::joining(&server, "a"));
    wait_until("the server has seen the connection end", || {
        server.command(&["PUBSUB", "CHANNELS", "fencepost:p:*"]).array().len() == 1
    });
    release(take(&shared));
    release(reader);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn stopped_reader_whose_turn_has_come_costs_a_writer_a_second() {
    let server = RedisServer::start();
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let stopped = StoppedWaiter::sharing(&server, "a");
    let writer = ask(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    wait_for_waiters(&server, "a", 2);
    let released = now();
    release(held);
    let (lease, granted) = writer.lease();
    let waited = granted.since(released);
    assert!((RESERVATION..RESERVATION + SLACK).contains(&waited), "{waited:?}");
    drop(stopped);
    release(lease);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn reader_is_told_at_once_that_it_was_revoked_and_the_next_token_is_greater() {
    let server = RedisServer::start();
    let (ours, theirs) = (at(server.port(), CARELESS), at(server.port(), CARELESS));
    let shared = lock(&ours, "a").ttl(LONG).shared();
    let (one, other) = (take(&shared), take(&shared));
    block_on(theirs.revoke("a", other.token(), "by hand")).expect("a reader can be revoked");
    let (error, _) = loss(&other);
    assert_eq!(error.loss_reason(), Some(LossReason::Revoked), "{error}");
    let again = take(&shared);
    assert!(again.token() > other.token());
    assert_held(&one, &theirs);
    drop(block_on(other.release()));
    release(one);
    release(again);
    assert_eq!(look(&theirs, "a").status, Status::Free);
    assert_nothing_is_left(&server);
}

/// As after a loss of data of which nobody knows: who shared the lock before must not be a reader beside the next ones.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn reader_whose_lock_has_gone_is_none_of_the_next_readers() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let mut before = killed_reader(&locks);
    server.command(&["DEL", &key("a", "l")]);
    assert_kind(&block_on(before.renew()).expect_err("the lock is gone"), ErrorKind::Lost);
    let next = take(&lock(&locks, "a").ttl(LONG).shared());
    assert_kind(&block_on(before.renew()).expect_err("it is none of those"), ErrorKind::Lost);
    assert_eq!(look(&locks, "a").readers.len(), 1);
    release(next);
    assert_nothing_is_left(&server);
}

/// What a lock costs that nobody shares is what it cost before there were readers.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lock_that_nobody_shares_asks_for_no_reader() {
    let server = RedisServer::start();
    let alone = lock(&at(server.port(), CARELESS), "a").ttl(LONG);
    for _ in 0..3 {
        release(take(&alone));
    }
    let asked = ["zscore", "zcard", "zrangebyscore", "zrevrange"].map(|command| calls(&server, command));
    assert_eq!(asked, [0; 4]);
}
