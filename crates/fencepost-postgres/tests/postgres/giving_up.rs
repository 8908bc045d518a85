//! Waits that are given up at any moment: neither a grant nor a place in the queue stays behind.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{ErrorKind, Lock, Wait, release_all, until};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::PostgresServer;

use crate::stage::{
    CARELESS, LONG, SLACK, TTL, assert_kind, assert_nothing_is_left, at, clock, lock, now, refusal, release,
    take, wait_for_waiters,
};

const BACKENDS: usize = 6;
const TIMES: usize = 400;
const MOMENT: Duration = Duration::from_millis(3);

/// Takes the lock a few hundred times, with the patience of a moment. How often it was given, and how often not.
fn ask_and_give_up(lock: &Lock, inside: &AtomicBool, drops: bool) -> (usize, usize) {
    let mut given = (0, 0);
    for _ in 0..TIMES {
        let lease = if drops {
            block_on(until(&clock(), Some(now().after(MOMENT)), lock.acquire()))
        } else {
            Some(block_on(lock.clone().wait(MOMENT).acquire()))
        };
        match lease {
            Some(Ok(lease)) => {
                assert!(!inside.swap(true, Ordering::SeqCst), "somebody else holds it");
                block_on(clock().sleep(MOMENT / 3));
                inside.store(false, Ordering::SeqCst);
                release(lease);
                given.0 += 1;
            }
            Some(Err(error)) => {
                assert_kind(&error, ErrorKind::Contended);
                given.1 += 1;
            }
            None => given.1 += 1,
        }
    }
    given
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn thousands_of_waits_that_are_given_up_leave_nothing() {
    let server = PostgresServer::start();
    let (inside, granted, refused) = (AtomicBool::default(), AtomicUsize::default(), AtomicUsize::default());
    // They live to the end: what one kept of a session would be gone with it.
    let backends: Vec<_> = (0..BACKENDS).map(|_| at(&server, CARELESS)).collect();
    std::thread::scope(|scope| {
        for (number, locks) in backends.iter().enumerate() {
            let lock = lock(locks, "a").ttl(LONG);
            let (inside, granted, refused) = (&inside, &granted, &refused);
            scope.spawn(move || {
                let (given, not) = ask_and_give_up(&lock, inside, number % 2 == 0);
                granted.fetch_add(given, Ordering::Relaxed);
                refused.fetch_add(not, Ordering::Relaxed);
            });
        }
    });
    let (granted, refused) = (granted.into_inner(), refused.into_inner());
    println!("{granted} granted, {refused} given up");
    assert!(granted > 0 && refused > BACKENDS * TIMES / 4, "{granted} and {refused}");
    assert_nothing_is_left(&server);
    for locks in &backends {
        release(take(&lock(locks, "a")));
    }
}

/// Each statement that waits in vain ends by giving back what it may have got, and no more.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waits_in_vain_for_the_second_lock_of_a_set_leave_it_the_first() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let held = take(&lock(&bob, "b"));
    let set = ["a", "b"].map(|name| lock(&ann, name));
    let asking = std::thread::spawn(move || block_on(Lock::acquire_all(&set, Wait::Forever)).unwrap());
    wait_for_waiters(&server, 1);
    let begun = now();
    while now().since(begun) < TTL * 2 {
        assert_kind(&refusal(&lock(&bob, "a")), ErrorKind::Contended);
    }
    release(held);
    let leases = asking.join().unwrap();
    for lease in &leases {
        lease.check().expect("it is held");
    }
    assert!(block_on(release_all(leases)).is_empty());
    assert_nothing_is_left(&server);
}

/// Two users of one session would be one to the server, and both would get the lock.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn session_of_a_set_that_was_given_up_is_given_to_one_user() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    for _ in 0..10 {
        let held = take(&lock(&bob, "b").ttl(LONG));
        let set = ["a", "b"].map(|name| lock(&ann, name).ttl(LONG));
        let most = Some(now().after(Duration::from_millis(100)));
        let given = block_on(until(&clock(), most, Lock::acquire_all(&set, Wait::Forever)));
        assert!(given.is_none(), "a part of the set is held");
        block_on(until(&clock(), Some(now().after(SLACK)), clock().settled()));
        release(held);
        let first = take(&lock(&ann, "c").ttl(LONG));
        assert_kind(&refusal(&lock(&ann, "c").ttl(LONG)), ErrorKind::Contended);
        release(first);
    }
    assert_nothing_is_left(&server);
}
