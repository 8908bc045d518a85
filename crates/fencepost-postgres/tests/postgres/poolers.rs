//! Poolers: one that lends sessions out is refused by name, and one that keeps them is used when the URL says so.

use std::sync::atomic::{AtomicBool, Ordering};

use fencepost_core::{Error, ErrorKind, Lock, LossReason};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresClient, PostgresServer, psql};

use crate::stage::{
    LONG, SOON, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, holding_pid, lock, locks,
    loss, now, pass, refusal, release, take, wait_for_waiters,
};

/// What a pooler may have set besides: that it drops what it does not know, instead of refusing it.
const SETTINGS: [&[&str]; 2] =
    [&["default_pool_size=5"], &["default_pool_size=5", "ignore_startup_parameters=options"]];

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_that_lends_sessions_out_is_refused_by_name() {
    let server = PostgresServer::start();
    for (mode, name) in [(PoolMode::Transaction, "transaction"), (PoolMode::Statement, "statement")] {
        for settings in SETTINGS {
            let pooler = PgBouncer::start(&server, mode, settings);
            for options in ["quarantine=off", "quarantine=off&pooler=session"] {
                for _ in 0..5 {
                    let error = refusal(&lock(&locks(&format!("{}?{options}", pooler.url())), "a"));
                    assert_kind(&error, ErrorKind::Unsupported);
                    let text = error.to_string();
                    assert!(
                        text.contains(&format!("in {name} mode")) && text.contains("PgBouncer"),
                        "{text}"
                    );
                }
            }
        }
    }
    assert_nothing_is_left(&server);
}

/// What others do there mixes up who gets which session.
#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_that_lends_sessions_out_is_refused_in_the_traffic_of_others() {
    let server = PostgresServer::start();
    let is_over = AtomicBool::default();
    let pooler = PgBouncer::start(&server, PoolMode::Transaction, &["default_pool_size=5"]);
    let url = format!("{}?quarantine=off&pooler=session", pooler.url());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut other = PostgresClient::connect(&pooler.url()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    other.query("select 1").unwrap();
                }
            });
        }
        let errors: Vec<_> = (0..40).map(|_| outcome(&lock(&locks(&url), "a"))).collect();
        is_over.store(true, Ordering::Relaxed);
        for outcome in errors {
            let error = outcome.expect("a lock is never given there");
            assert_kind(&error, ErrorKind::Unsupported);
        }
    });
}

fn outcome(lock: &Lock) -> Option<Error> {
    block_on(lock.try_acquire()).err()
}

/// Two clients get one lock there, since they come by one session.
#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_that_lends_sessions_out_would_let_two_in() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server, PoolMode::Transaction, &["default_pool_size=1"]);
    let take = || psql(&pooler.url(), "select pg_try_advisory_lock(1717923427, 1)");
    assert_eq!([take(), take()], [Ok("t".to_owned()), Ok("t".to_owned())]);
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_that_keeps_sessions_is_refused_with_a_hint_until_the_url_names_it() {
    let server = PostgresServer::start();
    for settings in SETTINGS {
        let pooler = PgBouncer::start(&server, PoolMode::Session, settings);
        let error = refusal(&lock(&locks(&format!("{}?quarantine=off", pooler.url())), "a"));
        assert_kind(&error, ErrorKind::Unsupported);
        assert!(error.to_string().contains("in session mode"), "{error}");
        assert!(error.advice().is_some_and(|advice| advice.contains("?pooler=session")), "{error:?}");
        let named = locks(&format!("{}?quarantine=off&pooler=session", pooler.url()));
        release(take(&lock(&named, "a")));
    }
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn locks_behind_a_pooler_that_keeps_sessions_are_held_waited_for_and_lost() {
    let server = PostgresServer::start();
    let mut pooler = PgBouncer::start(&server, PoolMode::Session, &["default_pool_size=10"]);
    let url = format!("{}?quarantine=off&pooler=session", pooler.url());
    let (ann, bob, direct) = (locks(&url), locks(&url), at(&server, "quarantine=off"));
    let held = take(&lock(&ann, "a"));
    for locks in [&bob, &direct] {
        assert_kind(&refusal(&lock(locks, "a")), ErrorKind::Contended);
    }
    let waiting = ask(&lock(&bob, "a"));
    wait_for_waiters(&server, 1);
    pass(TTL * 2);
    assert_held(&held, &direct);
    assert!(!waiting.is_over());
    let token = held.token();
    release(held);
    let (next, _) = waiting.lease();
    assert!(next.token() > token);
    pass(TTL * 2);
    assert_held(&next, &direct);
    release(next);

    // The server ends the session behind the pooler, and the pooler the one before it.
    let held = take(&lock(&ann, "a").ttl(LONG));
    let ended = now();
    server.terminate(holding_pid(&server));
    let (error, heard) = loss(&held);
    assert_eq!(error.loss_reason(), Some(LossReason::SessionEnded), "{error}");
    assert!(heard.since(ended) < SOON, "{:?}", heard.since(ended));
    drop(held);

    let held = take(&lock(&ann, "a").ttl(LONG));
    let killed = now();
    pooler.kill();
    let (error, heard) = loss(&held);
    assert_eq!(error.loss_reason(), Some(LossReason::SessionEnded), "{error}");
    assert!(heard.since(killed) < SOON, "{:?}", heard.since(killed));
    drop(held);
    release(ask(&lock(&direct, "a")).lease().0);
    pooler.restart();
    release(take(&lock(&bob, "a")));
    assert_nothing_is_left(&server);
}
