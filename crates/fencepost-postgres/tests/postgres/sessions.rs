//! How many sessions the locks of one process take, and what becomes of them.

use std::sync::Mutex;

use fencepost_core::{ErrorKind, Lease, Lock, Wait, release_all};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresServer, wait_until};

use crate::stage::{
    CARELESS, LONG, SLACK, SOON, as_role, ask, assert_kind, assert_nothing_is_left, at, holding_pid, lock,
    now, number, pass, refusal, release, sessions, take, wait_for_waiters,
};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn hundred_leases_one_after_the_other_take_one_session() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    release(take(&lock(&ann, "a")));
    let pid = server.query("select pid from pg_stat_activity where application_name = 'fencepost'");
    let begun = now();
    for round in 0..100 {
        let held = take(&lock(&ann, ["a", "b", "c"][round % 3]));
        assert_eq!(holding_pid(&server).to_string(), pid);
        release(held);
    }
    println!("{:?} each, with a look at the server", now().since(begun) / 100);
    assert_eq!(sessions(&server), 1);
}

/// What a server compiles and reads for a session that acquires one lock is most of what such a run costs.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn first_lock_of_a_session_is_four_statements_and_calls_no_function_of_the_schema() {
    let server = PostgresServer::start_with(&["log_statement=all"]);
    release(take(&lock(&at(&server, CARELESS), "a")));
    let asked = |asking: &dyn Fn()| {
        let before = server.log().len();
        asking();
        let log = server.log().split_off(before);
        let statements =
            log.lines().filter(|line| line.contains(" statement: ") || line.contains(" execute "));
        println!("{log}");
        (statements.count(), log.contains("fencepost.acquire($1"), log.contains("select fencepost."))
    };
    let ann = at(&server, CARELESS);
    assert_eq!(asked(&|| release(take(&lock(&ann, "a")))), (4, false, false));
    // From then on it goes by what is compiled once.
    assert_eq!(asked(&|| release(take(&lock(&ann, "a")))), (2, true, true));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn set_takes_one_session() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    let set = ["a", "b", "c", "d", "e"].map(|name| lock(&ann, name));
    for _ in 0..3 {
        let leases = block_on(Lock::acquire_all(&set, Wait::No)).unwrap();
        assert_eq!(sessions(&server), 1);
        assert!(block_on(release_all(leases)).is_empty());
    }
    assert_eq!(sessions(&server), 1, "and it is used again");
    // What is given back out of its turn leaves the others as they are.
    let mut leases = block_on(Lock::acquire_all(&set, Wait::No)).unwrap();
    let (dropped, released) = (leases.remove(2), leases.remove(0));
    drop(dropped);
    release(released);
    wait_until("two are free", || {
        number(&server, "select count(*) from pg_locks where locktype = 'advisory'") == 3
    });
    for lease in &leases {
        lease.check().expect("the rest is held");
    }
    assert!(block_on(release_all(leases)).is_empty());
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiters_of_one_process_take_two_sessions_beside_the_holder_at_most() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let held = take(&lock(&bob, "a").ttl(LONG));
    let wanted = lock(&ann, "a").ttl(LONG);
    // One after the other, each to its end: the server may have given the lock on to the third before the first has heard that it is
    // rid of it, and its session is not free until then.
    let releasing = Mutex::new(());
    let take_turns = || {
        let lease = block_on(wanted.acquire()).expect("the lock is given in the end");
        let _one = releasing.lock().expect("nobody panics");
        release(lease);
    };
    let most = std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(take_turns)).collect();
        wait_for_waiters(&server, 1);
        pass(SOON / 4);
        assert_eq!(sessions(&server), 2, "one waits for all of them");
        release(held);
        let mut most = 0;
        while waiting.iter().any(|waiter| !waiter.is_finished()) {
            most = most.max(sessions(&server));
        }
        most
    });
    assert!(most <= 4, "{most}: one of the first holder, one that holds, one that waits and one on its way");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_without_a_free_connection_is_unavailable_at_once_and_used_when_it_has_one() {
    let server = PostgresServer::start_with(&["max_connections=8", "superuser_reserved_connections=3"]);
    server.execute("create role ann login");
    server.execute("grant create on database postgres to ann");
    let ann = as_role(&server, "ann", CARELESS);
    let mut leases: Vec<Lease> = Vec::new();
    let error = loop {
        assert!(leases.len() < 8, "there is an end to it");
        let begun = now();
        let outcome =
            block_on(lock(&ann, &format!("a/{}", leases.len())).ttl(LONG).wait(SLACK * 2).acquire());
        match outcome {
            Ok(lease) => leases.push(lease),
            Err(error) => {
                assert!(now().since(begun) < SLACK * 4, "it does not hang");
                break error;
            }
        }
    };
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.advice().is_some_and(|advice| advice.contains("max_connections")), "{error:?}");
    let more = lock(&as_role(&server, "ann", CARELESS), "more");
    assert_kind(&refusal(&more), ErrorKind::Unavailable);
    for lease in &leases {
        lease.check().expect("those that are held are not disturbed");
    }
    drop(leases);
    assert_nothing_is_left(&server);
    release(take(&lock(&ann, "more")));
    // What a process keeps for its next lock is free for others at the latest when it ends.
    drop(ann);
    wait_until("its sessions are gone", || sessions(&server) == 0);
    release(take(&more));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn dropped_lease_frees_its_lock_soon() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let held = take(&lock(&ann, "a").ttl(LONG));
    let waiting = ask(&lock(&bob, "a").ttl(LONG));
    wait_for_waiters(&server, 1);
    let dropped = now();
    drop(held);
    let (next, granted) = waiting.lease();
    assert!(granted.since(dropped) < SOON, "{:?}", granted.since(dropped));
    release(next);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn two_backends_of_one_process_and_two_tasks_of_one_are_apart() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let held = take(&lock(&ann, "a"));
    for locks in [&ann, &bob] {
        assert_kind(&refusal(&lock(locks, "a")), ErrorKind::Contended);
    }
    release(held);
    release(take(&lock(&bob, "a")));
    assert_nothing_is_left(&server);
}

/// What nobody has used for a while is closed.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn sessions_end_with_the_locks_they_were_for() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    let leases: Vec<_> = (0..5).map(|number| take(&lock(&ann, &format!("a/{number}")))).collect();
    assert_eq!(sessions(&server), 5, "each holder has its own");
    leases.into_iter().for_each(release);
    let dropped = now();
    drop(ann);
    wait_until("no session is left", || sessions(&server) == 0);
    assert!(now().since(dropped) < SOON, "{:?}", now().since(dropped));
}
