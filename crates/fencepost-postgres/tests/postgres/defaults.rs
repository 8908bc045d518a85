//! What a role or a database has set by default does not reach a session that holds a lock.

use fencepost_core::Locks;
use fencepost_testkit::servers::PostgresServer;

use crate::silence::{seen, spy_on_renewals};
use crate::stage::{
    CARELESS, TTL, as_role, ask, assert_held, assert_nothing_is_left, at, draw, holding_pid, lift, lock,
    locks, pass, release, take, wait_for_waiters,
};

/// Far above any clock in microseconds.
const FAR: u64 = 1 << 62;

/// What would end, hinder or mislead a session that had it.
const HARMFUL: [&str; 12] = [
    "statement_timeout = '20ms'",
    "lock_timeout = '1ms'",
    "idle_in_transaction_session_timeout = '100ms'",
    "idle_session_timeout = '100ms'",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_read_only = 'on'",
    "default_transaction_deferrable = 'on'",
    "search_path = 'hostile', 'pg_catalog'",
    "client_min_messages = 'error'",
    "synchronous_commit = 'off'",
    "client_connection_check_interval = '1h'",
    "tcp_user_timeout = '200ms'",
];

/// Objects with the names of the server's own, which grant whatever is asked for.
const HOSTILE: &str = "
    create schema hostile;
    create function hostile.pg_advisory_lock(int, int) returns void language sql as '';
    create function hostile.pg_try_advisory_lock(int, int) returns boolean language sql as 'select true';
    create function hostile.pg_advisory_unlock(int, int) returns boolean language sql as 'select true';
    create function hostile.pg_backend_pid() returns int language sql as 'select 1';
    create function hostile.clock_timestamp() returns timestamptz language sql
        as $$ select '2001-01-01'::timestamptz $$;
    create function hostile.equal(int, int) returns boolean language sql as 'select true';
    create operator hostile.= (leftarg = int, rightarg = int, function = hostile.equal);
    create function hostile.sum(bigint, int) returns bigint language sql as 'select 7::bigint';
    create operator hostile.+ (leftarg = bigint, rightarg = int, function = hostile.sum);
    create table hostile.pg_locks (pid int);
    grant usage on schema hostile to public";

fn server_with_roles() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute("create role ann login");
    server.execute("create role eve login superuser");
    server.execute("create database other");
    for database in ["postgres", "other"] {
        server.execute(&format!("grant create on database {database} to ann"));
    }
    server.execute(HOSTILE);
    server
}

/// Holding for three ttls, waiting and handing over go as they always do.
fn assert_nothing_is_different(server: &PostgresServer, all: &Locks, second: &Locks) {
    lift(all, FAR);
    assert_eq!(draw(all), FAR, "the server counts as it should");
    let held = take(&lock(all, "a"));
    assert_eq!(held.token().get(), FAR + 1);
    let waiting = ask(&lock(second, "a"));
    wait_for_waiters(server, 1);
    let pid = holding_pid(server);
    for _ in 0..6 {
        pass(TTL / 2);
        assert_held(&held, all);
        let state = server.query(&format!("select state from pg_stat_activity where pid = {pid}"));
        assert!(["idle", "active"].contains(&state.as_str()), "{state}");
        assert!(!waiting.is_over());
    }
    let before = held.token();
    release(held);
    let (next, _) = waiting.lease();
    assert!(next.token() > before);
    pass(TTL);
    assert_held(&next, all);
    release(next);
    assert_nothing_is_left(server);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_with_harmful_settings_holds_and_waits() {
    let server = server_with_roles();
    for setting in HARMFUL {
        server.execute(&format!("alter role ann set {setting}"));
    }
    let control = fencepost_testkit::servers::psql(
        &server.url_of("ann", "postgres"),
        "select pg_try_advisory_lock(1, 1), pg_backend_pid()",
    );
    assert_eq!(control.unwrap(), "t|1", "the role is misled");
    let (one, other) = (as_role(&server, "ann", CARELESS), as_role(&server, "ann", CARELESS));
    assert_nothing_is_different(&server, &one, &other);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn database_with_harmful_settings_is_held_and_waited_in() {
    let server = server_with_roles();
    for setting in HARMFUL {
        server.execute(&format!("alter database other set {setting}"));
    }
    let url = format!("{}?{CARELESS}", server.url_of("ann", "other"));
    assert_nothing_is_different(&server, &locks(&url), &locks(&url));
}

/// A short one has the server look for deadlocks while somebody waits.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn superuser_with_a_short_deadlock_timeout_holds_and_waits() {
    let server = server_with_roles();
    for setting in HARMFUL.iter().chain(&["deadlock_timeout = '100ms'", "log_min_messages = 'debug1'"]) {
        server.execute(&format!("alter role eve set {setting}"));
    }
    let (one, other) = (as_role(&server, "eve", CARELESS), as_role(&server, "eve", CARELESS));
    assert_nothing_is_different(&server, &one, &other);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn session_that_holds_has_the_settings_that_it_asked_for() {
    let server = server_with_roles();
    for setting in HARMFUL {
        server.execute(&format!("alter role eve set {setting}"));
    }
    release(take(&lock(&at(&server, CARELESS), "a")));
    spy_on_renewals(&server);
    let held = take(&lock(&as_role(&server, "eve", CARELESS), "a"));
    pass(TTL);
    held.check().expect("it is renewed");
    let expected = [
        ("statement_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("idle_session_timeout", "0"),
        ("synchronous_commit", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("search_path", "pg_catalog"),
        ("client_connection_check_interval", "100"),
    ];
    for (name, value) in expected {
        assert_eq!(seen(&server, name), value, "{name}");
    }
    release(held);
}
