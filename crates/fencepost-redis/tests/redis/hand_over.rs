//! A lock that is given back goes to the first waiter that lives, and to no other.

use std::time::Duration;

use fencepost_core::{ErrorKind, Lock, Locks, LossReason};
use fencepost_testkit::block_on;
use fencepost_testkit::history::{Hold, assert_clean};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{RedisServer, wait_until};

use crate::stage::{
    Asking, CARELESS, SLACK, StoppedWaiter, ask, assert_kind, assert_nothing_is_left, at, deadline, key,
    keys, lock, loss, now, pass, proxy_to, release, take, wait_for_waiters,
};

/// How long a lock is reserved for a waiter whose turn it is.
const RESERVATION: Duration = Duration::from_secs(1);

/// Long enough that no lease of these tests ends by itself.
const LONG: Duration = Duration::from_secs(30);

/// Waiters in the order in which they have asked, each one another process.
fn waiters(server: &RedisServer, port: u16, count: i64) -> Vec<Asking> {
    let before = server.command(&["ZCARD", &key("a", "q")]).integer();
    (1..=count)
        .map(|place| {
            let asking = ask(&lock(&at(port, CARELESS), "a").ttl(LONG));
            wait_for_waiters(server, "a", before + place);
            asking
        })
        .collect()
}

/// Each is served, in order, when the one before has given the lock back.
fn assert_served_in_order(waiters: Vec<Asking>) {
    let mut waiters = waiters.into_iter().enumerate().peekable();
    let mut last = None;
    while let Some((place, asking)) = waiters.next() {
        let (lease, _) = asking.lease();
        assert!(last < Some(lease.token()), "tokens grow");
        last = Some(lease.token());
        if let Some((_, next)) = waiters.peek() {
            assert!(!next.is_over(), "the one behind the one at {place} waits on");
        }
        release(lease);
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn processes_are_served_in_the_order_in_which_they_came() {
    let server = RedisServer::start();
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let waiters = waiters(&server, server.port(), 8);
    release(held);
    assert_served_in_order(waiters);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_waiters_cost_nothing() {
    let server = RedisServer::start();
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    for _ in 0..3 {
        // Its connection is closed with it, as that of a killed process is.
        drop(StoppedWaiter::joining(&server, "a"));
    }
    let mut last = waiters(&server, server.port(), 1);
    wait_until("the server has seen the connections end", || {
        server.command(&["PUBSUB", "CHANNELS", "fencepost:p:*"]).array().len() == 2
    });
    let released = now();
    release(held);
    let (lease, granted) = last.remove(0).lease();
    assert!(granted.since(released) < RESERVATION, "{:?}", granted.since(released));
    release(lease);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn stopped_waiter_costs_the_time_of_a_reservation() {
    let server = RedisServer::start();
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let mut stopped = StoppedWaiter::joining(&server, "a");
    let mut next = waiters(&server, server.port(), 1);
    let released = now();
    release(held);
    assert_eq!(stopped.told(), format!("turn {}", stopped.holder));
    let (lease, granted) = next.remove(0).lease();
    let cost = granted.since(released);
    assert!((RESERVATION..RESERVATION + SLACK).contains(&cost), "{cost:?}");
    release(lease);
    assert_nothing_is_left(&server);
}

/// So it looks in time whether the first has come, and not at its next sign of life.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn second_waiter_is_told_that_it_is_the_next() {
    let server = RedisServer::start();
    let ann = at(server.port(), CARELESS);
    let held = take(&lock(&ann, "a").ttl(LONG));
    let mut waiters = [StoppedWaiter::joining(&server, "a"), StoppedWaiter::joining(&server, "a")];
    release(held);
    for (waiter, what) in waiters.iter_mut().zip(["turn", "next"]) {
        assert_eq!(waiter.told(), format!("{what} {}", waiter.holder));
    }
    // The same when a lock rests before its turn comes.
    let resting = take(&lock(&ann, "b").ttl(LONG).at_least(LONG));
    let mut first = StoppedWaiter::joining(&server, "b");
    release(resting);
    assert_eq!(first.told(), format!("next {}", first.holder));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiter_that_comes_too_late_for_its_turn_keeps_its_place() {
    let server = RedisServer::start();
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let mut slow = StoppedWaiter::joining(&server, "a");
    let mut others = waiters(&server, server.port(), 2);
    release(held);
    let (second, _) = others.remove(0).lease();
    assert_eq!(slow.told(), format!("turn {}", slow.holder));
    let refused = slow.claim(&server);
    assert_eq!(refused.array()[0].text(), "BUSY", "its reservation is over");
    assert_eq!((refused.array()[2].text(), refused.array()[3].integer()), (&*slow.place, 0), "{refused:?}");
    release(second);
    assert_eq!(slow.told(), format!("turn {}", slow.holder), "it is before the third");
    let granted = slow.claim(&server);
    assert!(!others[0].is_over());
    // It never renews: its lease ends by itself.
    let (third, _) = others.remove(0).lease();
    assert!(third.token().get() > granted.text().parse().expect("it was granted the lock"));
    release(third);
    assert_nothing_is_left(&server);
}

/// What happens to five waiters, and what becomes of them. The fault says how many processes listen afterwards; the holder does
/// so as well, so that it can be told that its lease was taken away.
fn waiters_outlive(fault: impl FnOnce(&RedisServer, &Proxy) -> usize) {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let waiters = waiters(&server, proxy.port(), 5);
    let listening = fault(&server, &proxy);
    wait_until("all waiters listen again", || {
        server.command(&["PUBSUB", "CHANNELS", "fencepost:p:*"]).array().len() == listening
    });
    release(held);
    assert_served_in_order(waiters);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiters_keep_their_order_over_killed_connections() {
    waiters_outlive(|server, _| {
        let killed = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).integer();
        assert_eq!(killed, 6);
        6
    });
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiters_keep_their_order_over_a_flush_of_the_scripts() {
    waiters_outlive(|server, _| {
        server.command(&["SCRIPT", "FLUSH"]);
        6
    });
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiters_keep_their_order_over_a_cut_of_a_second() {
    waiters_outlive(|_, proxy| {
        proxy.set(Mode::Cut);
        pass(Duration::from_secs(1));
        proxy.set(Mode::Pass);
        6
    });
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lock_that_is_released_while_nobody_listens_is_taken_when_somebody_does_again() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let waiters = waiters(&server, proxy.port(), 3);
    proxy.set(Mode::Cut);
    wait_until("nobody listens", || {
        server.command(&["PUBSUB", "CHANNELS", "fencepost:p:*"]).array().len() == 1
    });
    release(held);
    proxy.set(Mode::Pass);
    // Whoever comes first now may be any of them.
    let threads: Vec<_> =
        waiters.into_iter().map(|asking| std::thread::spawn(|| release(asking.lease().0))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn first_waiter_gets_the_lock_when_the_lease_of_a_dead_holder_ends() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let dead = at(proxy.port(), CARELESS);
    let names = ["a", "b", "c", "d", "e"];
    let leases = names.map(|name| take(&lock(&dead, name)));
    let asking = names.map(|name| ask(&lock(&at(server.port(), CARELESS), name)));
    for name in names {
        wait_for_waiters(&server, name, 1);
    }
    proxy.set(Mode::Blackhole);
    let mut late: Vec<Duration> = leases
        .iter()
        .zip(asking)
        .map(|(lease, asking)| {
            loss(lease);
            let (next, granted) = asking.lease();
            assert!(granted >= deadline(lease), "not while it may be believed in");
            release(next);
            granted.since(deadline(lease))
        })
        .collect();
    late.sort();
    // Signs of life, which notice it as well, come every second or two.
    assert!(late[2] < SLACK / 4 && late[4] < SLACK, "{late:?}");
}

fn hold_often(locks: &Locks, times: usize) -> Vec<Hold> {
    let lock = lock(locks, "a");
    (0..times).map(|_| hold(&lock)).collect()
}

/// A connection that is killed while it is made is an error of whoever has asked for the first time.
fn hold(lock: &Lock) -> Hold {
    let (asked, lease) = loop {
        let asked = now();
        match block_on(lock.acquire()) {
            Ok(lease) => break (asked, lease),
            Err(error) => assert_kind(&error, ErrorKind::Unavailable),
        }
    };
    let granted = now();
    pass(Duration::from_micros(200));
    lease.check().expect("a short hold is not lost");
    let (ended, token, holder) = (now(), lease.token(), lease.holder());
    release(lease);
    Hold { asked, granted, ended, token, holder }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holds_of_many_are_clean_while_connections_and_scripts_are_lost() {
    let server = RedisServer::start();
    let workers: Vec<_> = (0..6)
        .map(|_| at(server.port(), CARELESS))
        .map(|locks| std::thread::spawn(move || hold_often(&locks, 60)))
        .collect();
    while workers.iter().any(|worker| !worker.is_finished()) {
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        server.command(&["SCRIPT", "FLUSH"]);
        pass(Duration::from_millis(70));
    }
    let holds: Vec<Hold> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(holds.len(), 360);
    assert_clean(&holds);
    assert_nothing_is_left(&server);
}

/// The scripts spell the other keys of a lock by that of its record.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lock_of_any_name_has_keys_of_its_own() {
    let server = RedisServer::start();
    let (ann, bob) = (at(server.port(), CARELESS), at(server.port(), CARELESS));
    let long = "l".repeat(300);
    let names = ["l", "a:l", "a{b}l", "}{", "a b", "100%", "%l", "1|0|held|", "~l", "\u{e9}", &long];
    let all: Vec<_> = names.map(|name| (name, take(&lock(&ann, name).ttl(LONG)))).into();
    let waiters = names.map(|name| ask(&lock(&bob, name).ttl(LONG)));
    for name in names {
        wait_for_waiters(&server, name, 1);
    }
    let mut seen = keys(&server);
    seen.retain(|key| !["fencepost:inc", "fencepost:cfg"].contains(&&**key));
    let mut known: Vec<_> =
        names.iter().flat_map(|name| ["l", "s", "q", "w", "n"].map(|what| key(name, what))).collect();
    seen.sort();
    known.sort();
    assert_eq!(seen, known);
    for ((name, lease), waiter) in all.into_iter().zip(waiters) {
        let token = lease.token();
        release(lease);
        let (next, _) = waiter.lease();
        assert!(next.token() > token, "{name}");
        block_on(ann.revoke(name, next.token(), "a test")).expect("it is held");
        assert_eq!(loss(&next).0.loss_reason(), Some(LossReason::Revoked), "{name}");
        drop(next);
        release(take(&lock(&ann, name)));
    }
    assert_nothing_is_left(&server);
}
