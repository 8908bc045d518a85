//! Waiting in the server's queue, without a statement that stays: what a holder does in the database goes on.

use std::time::Duration;

use fencepost_core::Locks;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresClient, PostgresServer, wait_until};

use crate::process::Client;
use crate::silence::{seen, spy_on_renewals};
use crate::stage::{
    Asking, CARELESS, LOCK, LONG, SLACK, SOON, TTL, ask, assert_nothing_is_left, at, entries, holding_pid,
    lock, now, number, pass, release, session, sessions, take, told, wait_for_waiters,
};

const WAITERS: i64 = 8;

/// Waiters of so many processes, whose statements wait for as long as they ever do.
struct Waiting {
    askings: Vec<Asking>,
    /// They live to the end: what one kept of a session would be gone with it.
    backends: Vec<Locks>,
}

impl Waiting {
    fn begin(server: &PostgresServer) -> Self {
        let backends: Vec<_> = (0..WAITERS).map(|_| at(server, CARELESS)).collect();
        let askings = backends.iter().map(|locks| ask(&lock(locks, "a").ttl(LONG))).collect();
        wait_for_waiters(server, WAITERS);
        Self { askings, backends }
    }

    /// Waits until each has had the lock, and has each take it once more.
    fn end(self) {
        let let_through = |asking: Asking| std::thread::spawn(|| release(asking.lease().0));
        let threads: Vec<_> = self.askings.into_iter().map(let_through).collect();
        for thread in threads {
            thread.join().expect("it is given in the end");
        }
        for locks in &self.backends {
            release(take(&lock(locks, "a")));
        }
    }
}

/// Somebody who waits as one would who knows of no bound.
fn unbounded_waiter(server: &PostgresServer) -> PostgresClient {
    let mut waiter = session(server);
    let id = server.query("select id from fencepost.lock where name = 'a'");
    waiter.send(&format!("select pg_advisory_lock({LOCK}, {id})"));
    wait_for_waiters(server, 1);
    waiter
}

fn build_index(server: &PostgresServer, most: Duration) -> Result<String, String> {
    let mut builder = session(server);
    told(&mut builder, &format!("set statement_timeout = {}", most.as_millis()));
    builder.query("create index concurrently on t (x)")
}

fn server_with_table() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute("create table t (x int)");
    server.execute("insert into t select generate_series(1, 1000)");
    server
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn no_statement_runs_for_long_while_many_wait() {
    let server = PostgresServer::start();
    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    let waiting = Waiting::begin(&server);
    let mut onlooker = server.client().unwrap();
    let (mut longest, mut looks) = (0.0_f64, 0);
    let end = now().after(Duration::from_secs(5));
    while now() < end {
        let age = onlooker.query(
            "select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)
                from pg_stat_activity where application_name = 'fencepost' and state <> 'idle'",
        );
        longest = longest.max(age.unwrap().parse().unwrap());
        looks += 1;
        pass(Duration::from_millis(10));
    }
    println!("the longest of {looks} looks: {longest} s");
    assert!(longest > 0.0 && longest < SOON.as_secs_f64(), "{longest} s");
    release(held);
    waiting.end();
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn index_is_built_concurrently_while_many_wait() {
    let server = server_with_table();
    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    let waiting = Waiting::begin(&server);
    let begun = now();
    build_index(&server, SLACK * 5).expect("waiters do not keep it up");
    println!("the index took {:?}", now().since(begun));
    assert!(held.check().is_ok() && waiting.askings.iter().all(|asking| !asking.is_over()));
    release(held);
    waiting.end();
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn index_would_not_be_built_if_a_waiter_waited_without_a_bound() {
    let server = server_with_table();
    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    let waiter = unbounded_waiter(&server);
    let error = build_index(&server, SLACK).expect_err("it waits for the waiter's transaction");
    assert!(error.starts_with("57014"), "{error}");
    release(held);
    drop(waiter);
}

/// Whether a snapshot of somebody who waits is older than the transaction `id`.
fn is_kept_back(server: &PostgresServer, id: i64) -> bool {
    number(
        server,
        &format!(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock'
                and (backend_xmin::text::bigint <= {id} or backend_xid::text::bigint <= {id})"
        ),
    ) > 0
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn vacuum_may_clean_up_what_was_deleted_while_many_wait() {
    let server = server_with_table();
    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    let waiting = Waiting::begin(&server);
    let id = number(&server, "select pg_current_xact_id()::text::bigint");
    let begun = now();
    wait_until("nobody needs what is older", || !is_kept_back(&server, id));
    assert!(now().since(begun) < SOON + SLACK);
    release(held);
    waiting.end();

    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    let waiter = unbounded_waiter(&server);
    let id = number(&server, "select pg_current_xact_id()::text::bigint");
    pass(SOON + SLACK);
    assert!(is_kept_back(&server, id), "one without a bound keeps it back");
    release(held);
    drop(waiter);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_waiter_leaves_the_queue_and_killed_holder_leaves_the_lock_within_a_second() {
    let server = PostgresServer::start();
    let held = take(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    for _ in 0..3 {
        let mut waiter = Client::start(&format!("{}?{CARELESS}", server.url()), LONG);
        wait_for_waiters(&server, 1);
        waiter.kill();
        let killed = now();
        wait_until("its session is gone", || sessions(&server) == 1);
        assert!(now().since(killed) < SOON, "{:?}", now().since(killed));
        assert_eq!(entries(&server, false), 0);
    }
    let mut holder = Client::start(&format!("{}?{CARELESS}", server.url()), LONG);
    wait_for_waiters(&server, 1);
    release(held);
    holder.await_hold();
    let waiting = ask(&lock(&at(&server, CARELESS), "a").ttl(LONG));
    wait_for_waiters(&server, 1);
    holder.kill();
    let killed = now();
    let (next, granted) = waiting.lease();
    assert!(granted.since(killed) < SOON, "{:?}", granted.since(killed));
    release(next);
    assert_nothing_is_left(&server);
}

/// It may be whoever was granted the lock before, on a slow disk.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiter_outlasts_somebody_who_keeps_the_row_of_the_lock() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    release(take(&lock(&ann, "a")));
    let mut keeper = session(&server);
    told(&mut keeper, "begin");
    told(&mut keeper, "select from fencepost.lock for update");
    let waiting = ask(&lock(&ann, "a"));
    // Longer than a server that cannot be reached is tried.
    pass(Duration::from_secs(7));
    assert!(!waiting.is_over() && sessions(&server) == 1, "it waits, in the session that it had");
    told(&mut keeper, "commit");
    release(waiting.lease().0);
    assert_nothing_is_left(&server);
}

/// What ends a waiter that is stopped must not end a holder that may be.
/// The session is ended in its pool, or waits again: that is one request less.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn who_gives_back_at_once_what_it_has_waited_for_gives_no_sign_of_life() {
    let server = PostgresServer::start_with(&["log_statement=all"]);
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let wanted = lock(&bob, "a").ttl(LONG);
    let signs = || server.log().matches("set idle_session_timeout = 0").count();
    let give_none = || {
        let before = signs();
        let held = take(&lock(&ann, "a").ttl(LONG));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                block_on(async { wanted.acquire().await?.release().await }).expect("it is given in the end");
            });
            wait_for_waiters(&server, 1);
            release(held);
        });
        pass(SOON / 8);
        signs() == before
    };
    // On a busy machine it is sometimes not at once.
    assert!((0..10).any(|_| give_none()));
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn limit_of_a_waiter_is_gone_when_it_holds() {
    let server = PostgresServer::start();
    let held = take(&lock(&at(&server, "on_pause=hold"), "a"));
    spy_on_renewals(&server);
    let waiting = ask(&lock(&at(&server, "on_pause=hold"), "a"));
    wait_for_waiters(&server, 1);
    pass(TTL / 2);
    release(held);
    let (next, _) = waiting.lease();
    let pid = holding_pid(&server);
    pass(TTL * 3);
    next.check().expect("it is renewed, and its session is not ended");
    assert_eq!(holding_pid(&server), pid, "in one session all the time");
    assert_eq!(seen(&server, "idle_session_timeout"), "0");
    let state = server.query(&format!("select state from pg_stat_activity where pid = {pid}"));
    assert!(state == "idle" || state == "active", "{state}");
    release(next);
    assert_nothing_is_left(&server);
}
