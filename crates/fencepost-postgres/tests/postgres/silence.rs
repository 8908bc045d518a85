//! Silence: nobody tells the holder anything, so its own deadline does, and the server keeps its lock until then.

use std::time::Duration;

use fencepost_core::{ErrorKind, LossReason};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{PostgresServer, wait_until};

use crate::stage::{
    CARELESS, SLACK, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, deadline, lock, loss,
    proxy_to, refusal, release, take, through, wait_for_waiters,
};

/// A holder in a black hole, and who waits meanwhile; `end` is what gives the server the news.
fn holder_in_a_black_hole(options: &str, ends_by_itself: bool) {
    let server = PostgresServer::start();
    let proxy = proxy_to(&server);
    let (ann, bob) = (through(&proxy, options), at(&server, options));
    let held = take(&lock(&ann, "a"));
    let waiting = ask(&lock(&bob, "a"));
    wait_for_waiters(&server, 1);
    proxy.set(Mode::Blackhole);
    let (error, lost) = loss(&held);
    assert_eq!(error.loss_reason(), Some(LossReason::Deadline), "{error}");
    let deadline = deadline(&held);
    assert!(lost.since(deadline) < SLACK / 4, "{:?}", lost.since(deadline));
    assert!(held.check().is_err());
    if !ends_by_itself {
        assert_kind(&refusal(&lock(&bob, "a")), ErrorKind::Contended);
        assert!(!waiting.is_over(), "the server keeps the lock as long as the session");
        proxy.set(Mode::Cut);
    }
    let (next, granted) = waiting.lease();
    assert!(granted >= deadline, "the holds do not overlap");
    assert!(granted.since(lost) < SLACK + TTL);
    assert!(next.token() > held.token());
    proxy.set(Mode::Pass);
    assert_kind(&block_on(held.release()).expect_err("it was lost"), ErrorKind::Lost);
    assert_held(&next, &bob);
    release(next);
    release(take(&lock(&ann, "a")));
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_in_a_black_hole_is_lost_by_its_deadline_and_the_server_keeps_its_lock() {
    holder_in_a_black_hole("on_pause=hold&quarantine=off", false);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_in_a_black_hole_is_lost_by_its_deadline_and_the_server_ends_its_session() {
    holder_in_a_black_hole("on_pause=expire&quarantine=off", true);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_on_a_server_that_stands_still_is_lost_by_its_deadline() {
    let server = PostgresServer::start();
    let (ann, bob) = (at(&server, CARELESS), at(&server, CARELESS));
    let held = take(&lock(&ann, "a"));
    let waiting = ask(&lock(&bob, "a"));
    wait_for_waiters(&server, 1);
    server.stop();
    let (error, lost) = loss(&held);
    assert_eq!(error.loss_reason(), Some(LossReason::Deadline), "{error}");
    assert!(lost.since(deadline(&held)) < SLACK / 4);
    server.go_on();
    // The server knows the session still, and what it answers now comes too late.
    assert!(held.check().is_err() && !waiting.is_over());
    // Whoever gives it back may hear that nobody else has had it.
    if let Err(error) = block_on(held.release()) {
        assert_kind(&error, ErrorKind::Lost);
    }
    let (next, granted) = waiting.lease();
    assert!(granted >= lost, "the holds do not overlap");
    assert_held(&next, &bob);
    release(next);
    assert_nothing_is_left(&server);
}

/// Has the renewals of all sessions write down what they have set.
pub(crate) fn spy_on_renewals(server: &PostgresServer) {
    server.execute(
        "create table public.seen (at bigserial, name text, setting text, pid int);
        grant all on all tables in schema public to public;
        grant all on all sequences in schema public to public;
        create or replace function fencepost.held_by(_id int) returns int language plpgsql as $$
        begin
            insert into public.seen (name, setting, pid)
                select name, setting, pg_catalog.pg_backend_pid() from pg_catalog.pg_settings
                where name ~ 'timeout|keepalive|check_interval|synchronous_commit|search_path|isolation|read_only';
            return (select k.pid from pg_catalog.pg_locks k where k.locktype = 'advisory' and k.granted
                and k.classid = 1717923427 and k.objid = _id and k.pid = pg_catalog.pg_backend_pid());
        end $$",
    );
}

/// What a session had set at its last renewal.
pub(crate) fn seen(server: &PostgresServer, name: &str) -> String {
    server.query(&format!("select setting from public.seen where name = '{name}' order by at desc limit 1"))
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_drops_a_silent_holder_by_the_network_no_sooner_than_its_lease_ends() {
    let server = PostgresServer::start();
    let ann = at(&server, CARELESS);
    release(take(&lock(&ann, "a")));
    spy_on_renewals(&server);
    for ttl in [TTL, Duration::from_millis(2_500), Duration::from_secs(11)] {
        let held = take(&lock(&ann, "a").ttl(ttl));
        let before = server.query("select coalesce(max(at), 0) from public.seen");
        wait_until("it is renewed", || {
            server.query("select coalesce(max(at), 0) from public.seen") != before
        });
        let number = |name: &str| seen(&server, name).parse::<u64>().unwrap();
        let (ms, keepalive) = (u64::try_from(ttl.as_millis()).unwrap(), "tcp_keepalives");
        let kept = number(&format!("{keepalive}_idle"))
            + number(&format!("{keepalive}_interval")) * number(&format!("{keepalive}_count"));
        assert!(kept * 1_000 >= ms && kept * 1_000 <= ms * 2 + 5_000, "{kept} s for {ttl:?}");
        let most = number("tcp_user_timeout");
        assert!(most >= ms && most <= ms * 2, "{most} ms for {ttl:?}");
        assert_eq!(number("idle_session_timeout"), 0, "a holder may be stopped");
        release(held);
    }
}
