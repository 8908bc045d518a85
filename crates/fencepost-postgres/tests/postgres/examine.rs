//! What is wrong with a server is found: each finding on a server that really is set up so, and none on one that is well.

use std::time::Duration;

use fencepost_core::{Backend, Clock, ErrorKind, Examination, Fence, Finding, Severity};
use fencepost_postgres::{PROFILE, PostgresBackend, PostgresFence};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresServer, PostgresSetup, wait_until};

use crate::stage::{CARELESS, LONG, at, draw, lock, now, proxy_to, release, sessions, take, through};

/// The testkit's servers do without, so that they start soon.
const DURABLE: [&str; 3] = ["fsync=on", "full_page_writes=on", "synchronous_commit=on"];

fn backend(url: &str) -> PostgresBackend {
    let url = url.parse().expect("a test writes a URL");
    PostgresBackend::from_url(&url, Clock::system()).expect("the URL names a server")
}

fn examined_at(url: &str) -> Examination {
    block_on(backend(url).examine()).expect("the server answers")
}

/// A look at a server's locks, which leaves it as it was.
#[track_caller]
fn examined(server: &PostgresServer, options: &str) -> Examination {
    let shape = "select count(*) from pg_class where relnamespace = (select oid from pg_namespace where nspname = 'fencepost')";
    let before = server.query(shape);
    let examination = examined_at(&format!("{}?{options}", server.url()));
    assert_eq!(server.query(shape), before, "nothing is left behind");
    wait_until("its sessions have ended", || sessions(server) == 0);
    examination
}

fn examined_fence(server: &PostgresServer) -> Examination {
    let url = server.url().parse().expect("a server has a URL");
    let fence = PostgresFence::from_url(&url, Clock::system()).expect("the URL names a server");
    block_on(fence.examine()).expect("the server answers")
}

/// The finding whose evidence contains `evidence`, which says what it means and what to do.
#[track_caller]
fn found<'a>(examination: &'a Examination, severity: Severity, evidence: &str) -> &'a Finding {
    let finding = examination.findings.iter().find(|finding| finding.evidence.contains(evidence));
    let finding = finding.unwrap_or_else(|| panic!("{evidence:?} in {examination:#?}"));
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(!finding.consequence.is_empty() && !finding.remedy.is_empty(), "{finding:?}");
    finding
}

#[track_caller]
fn assert_none(examination: &Examination, evidence: &str) {
    let found = examination.findings.iter().find(|finding| finding.evidence.contains(evidence));
    assert!(found.is_none(), "{found:#?}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_that_is_well_has_no_finding() {
    let server = PostgresServer::start_with(&DURABLE);
    found(&examined(&server, ""), Severity::Note, "has no schema fencepost");
    draw(&at(&server, ""));
    let examination = examined(&server, "");
    assert!(examination.findings.is_empty(), "{examination:#?}");
    assert!(examination.servers[0].starts_with("PostgreSQL 1"), "{examination:#?}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn commits_that_a_crash_would_lose_are_found() {
    let server = PostgresServer::start_with(&["fsync=off", "full_page_writes=off", "synchronous_commit=on"]);
    for examination in [examined(&server, ""), examined_fence(&server)] {
        found(&examination, Severity::Serious, "fsync is off");
        found(&examination, Severity::Serious, "full_page_writes is off");
        assert_none(&examination, "synchronous_commit");
    }
    server.execute("alter role postgres set synchronous_commit = off");
    found(&examined(&server, ""), Severity::Warning, "synchronous_commit is off (set by: user)");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn settings_of_a_role_that_are_in_the_way_are_found() {
    let server = PostgresServer::start();
    assert_none(&examined(&server, ""), "sessions of postgres begin with");
    server.execute("alter role postgres set statement_timeout = '50ms'");
    server.execute("alter database postgres set lock_timeout = '10ms'");
    server.execute("alter role postgres set idle_session_timeout = '2min'");
    server.execute("alter role postgres set session_replication_role = replica");
    let examination = examined(&server, "");
    let finding = found(&examination, Severity::Note, "sessions of postgres begin with ");
    for part in [
        "statement_timeout = 50ms (set by: user)",
        "lock_timeout = 10ms (set by: database)",
        "idle_session_timeout",
    ] {
        assert!(finding.evidence.contains(part), "{finding:?}");
    }
    // As it says, they are not in the way of a lock.
    release(take(&lock(&at(&server, CARELESS), "a")));
    found(&examined_fence(&server), Severity::Warning, "session_replication_role is replica");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn standbys_that_may_lack_commits_are_found() {
    let primary = PostgresServer::start();
    assert_none(&examined(&primary, ""), "standby");
    let standby = primary.standby();
    found(
        &examined(&primary, ""),
        Severity::Warning,
        "1 standbys follow it, and synchronous_standby_names is empty",
    );
    let of_standby = examined_at(&standby.url());
    found(&of_standby, Severity::Serious, "a standby, and no primary is named");
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), primary.port());
    let examination = examined_at(&both);
    assert_eq!(examination.servers.len(), 2);
    assert_none(&examination, "no primary is named");
    drop(standby);
    let one_away = examined_at(&both);
    found(&one_away, Severity::Serious, "refused");
    primary.execute("alter system set synchronous_standby_names = '*'");
    primary.execute("select pg_reload_conf()");
    let names = "show synchronous_standby_names";
    wait_until("it is reloaded", || primary.query(names) == "*");
    found(&examined(&primary, ""), Severity::Serious, "and no standby follows it");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn connections_that_run_out_are_found() {
    let server = PostgresServer::start_with(&["max_connections=24", "superuser_reserved_connections=3"]);
    assert_none(&examined(&server, ""), "left");
    let held: Vec<_> = (0..12).map(|_| server.client().unwrap()).collect();
    found(&examined(&server, ""), Severity::Warning, "max_connections is 24");
    drop(held);
    server.execute("create role ann login connection limit 2");
    let examination = examined_at(&server.url_of("ann", "postgres"));
    let finding = found(&examination, Severity::Serious, "the role's CONNECTION LIMIT is 2");
    assert!(finding.evidence.contains(" 1 left"), "{finding:?}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn clock_that_is_apart_is_found_with_how_exactly_that_is_known() {
    let mut server = PostgresSetup::default().own_clock().start();
    assert_none(&examined(&server, ""), "its clock is");
    server.step_clock_forward(Duration::from_mins(2));
    let examination = examined(&server, "");
    let finding = found(&examination, Severity::Warning, "its clock is ");
    let (number, within) = finding.evidence["its clock is ".len()..].split_once(" s (to within ").unwrap();
    let apart: f64 = number.parse().unwrap();
    assert!((apart - 120.0).abs() < 2.0 && within.ends_with(" ms) ahead of this host's"), "{finding:?}");
    let fence = examined_fence(&server);
    assert_none(&fence, "its clock is");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn schema_that_a_role_cannot_use_is_found() {
    let server = PostgresServer::start();
    server.execute("create role ann login");
    let url = server.url_of("ann", "postgres");
    found(&examined_at(&url), Severity::Serious, "and the role ann may not make it");
    draw(&at(&server, CARELESS));
    found(&examined_at(&url), Severity::Serious, "the role ann lacks usage on schema fencepost");
    let fence = PostgresFence::from_url(&url.parse().unwrap(), Clock::system()).unwrap();
    found(&block_on(fence.examine()).unwrap(), Severity::Serious, "may not use the schema");
    server.execute(
        "grant usage on schema fencepost to ann; grant select, update on fencepost.installation to ann",
    );
    server.execute(
        "grant select, insert, update on fencepost.incarnation, fencepost.lock, fencepost.revocation, fencepost.logbook to ann",
    );
    let missing = examined_at(&url);
    found(
        &missing,
        Severity::Serious,
        "the role ann lacks select, insert, update, delete on fencepost.waiter",
    );
    server.execute("grant select, insert, update, delete on fencepost.waiter, fencepost.reader to ann");
    assert_none(&examined_at(&url), "lacks");
    server.execute("update fencepost.installation set version = 99");
    found(&examined_at(&url), Severity::Serious, "the schema fencepost has version 99");
    server.execute("drop schema fencepost cascade; create schema fencepost");
    found(&examined(&server, ""), Severity::Serious, "has no table installation");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn quarantine_that_is_under_way_or_to_come_is_found() {
    let mut server = PostgresServer::start();
    draw(&at(&server, ""));
    assert_none(&examined(&server, ""), "quarantine");
    server.restart_cleanly();
    let to_come = examined(&server, "");
    let finding = found(&to_come, Severity::Warning, "it has lost its locks since");
    assert!(finding.consequence.contains("60.0 s"), "{finding:?}");
    drop(block_on(at(&server, "").lock("a").unwrap().try_acquire()));
    found(&examined(&server, ""), Severity::Warning, "it is in quarantine for ");
    found(&examined(&server, CARELESS), Severity::Warning, "quarantine=off");
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_in_front_is_found() {
    let server = PostgresServer::start();
    for (mode, name) in
        [(PoolMode::Transaction, "in transaction mode"), (PoolMode::Session, "in session mode")]
    {
        let pooler = PgBouncer::start(&server, mode, &["default_pool_size=5"]);
        let examination = examined_at(&pooler.url());
        let finding = found(&examination, Severity::Serious, name);
        assert!(finding.evidence.contains("PgBouncer"), "{finding:?}");
        let fence = PostgresFence::from_url(&pooler.url().parse().unwrap(), Clock::system()).unwrap();
        let of_fence = block_on(fence.examine()).unwrap();
        assert_none(&of_fence, "pooler");
        if mode == PoolMode::Session {
            let named = examined_at(&format!("{}?pooler=session", pooler.url()));
            found(&named, Severity::Warning, "pooler=session");
            assert_none(&named, name);
        }
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn silent_server_is_given_up_soon() {
    let server = PostgresServer::start();
    server.stop();
    let begun = now();
    let error = block_on(backend(&server.url()).examine()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(now().since(begun) < Duration::from_secs(9));
    server.go_on();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn acquisition_and_release_take_as_many_round_trips_as_the_profile_says() {
    let server = PostgresServer::start();
    let proxy = proxy_to(&server);
    let lock = lock(&through(&proxy, CARELESS), "a").ttl(LONG);
    // The session is there.
    release(take(&lock));
    let delay = Duration::from_millis(50);
    proxy.set(Mode::Delay(delay));
    let trips = |begun| now().since(begun).as_millis() / (2 * delay.as_millis());
    let once = || {
        let begun = now();
        let lease = take(&lock);
        let acquired = trips(begun);
        let begun = now();
        release(lease);
        (acquired, trips(begun))
    };
    // The fewest: a busy machine makes some of them slower.
    let counts: Vec<_> = (0..3).map(|_| once()).collect();
    let acquired = counts.iter().map(|(acquired, _)| *acquired).min();
    let released = counts.iter().map(|(_, released)| *released).min();
    let cost = PROFILE.cost.unwrap();
    let (acquire, release) = (cost.acquire_trips.into(), cost.release_trips.into());
    assert_eq!((acquired, released), (Some(acquire), Some(release)));
    assert_eq!(proxy.connections(), 1);
}
