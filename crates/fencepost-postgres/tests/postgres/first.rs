//! What a session takes as its first lock, in one statement of plain SQL: no more than the function would give it.

use std::time::Duration;

use fencepost_core::{ErrorKind, until};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PostgresClient, PostgresServer, wait_until};

use crate::stage::{
    CARELESS, DOOR, LONG, SOON, ask, assert_kind, assert_nothing_is_left, at, clock, draw, entries, lock,
    now, number, pass, refusal, release, session, sessions, take, told,
};

/// Far above any clock in microseconds.
const FAR: u64 = 1 << 62;

/// A session in whose transaction `sql` was carried out, after the lock was held once.
fn in_transaction(server: &PostgresServer, sql: &str) -> PostgresClient {
    draw(&at(server, CARELESS));
    let mut other = session(server);
    told(&mut other, "begin");
    told(&mut other, sql);
    other
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lock_that_rests_is_given_to_no_new_session_and_nothing_of_it_stays_there() {
    let server = PostgresServer::start();
    release(take(&lock(&at(&server, CARELESS), "a").at_least(LONG)));
    let bob = at(&server, CARELESS);
    assert_kind(&refusal(&lock(&bob, "a")), ErrorKind::Contended);
    assert_eq!(entries(&server, true), 0, "the session is still there");
    drop(bob);
}

/// It would pass by whoever has waited, and has only just come back for more of it.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lock_in_whose_door_somebody_stands_is_given_to_no_new_session() {
    let server = PostgresServer::start();
    draw(&at(&server, CARELESS));
    let mut other = session(&server);
    told(&mut other, &format!("select pg_advisory_lock({DOOR}, id) from fencepost.lock"));
    let bob = at(&server, CARELESS);
    assert_kind(&refusal(&lock(&bob, "a")), ErrorKind::Contended);
    assert_eq!(entries(&server, true), 1, "the session is still there");
    told(&mut other, "select pg_advisory_unlock_all()");
    release(take(&lock(&bob, "a")));
    assert_eq!(entries(&server, true), 0);
}

/// What the server has locked for it is not locked once more when the row is read again.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn row_that_changes_meanwhile_gives_a_greater_token_and_one_release_frees_it() {
    let server = PostgresServer::start();
    let mut other = in_transaction(&server, &format!("update fencepost.lock set token = {FAR}"));
    let ann = at(&server, CARELESS);
    let asking = ask(&lock(&ann, "a"));
    let waiting = "select count(*) from pg_stat_activity where application_name = 'fencepost' and wait_event_type = 'Lock'";
    wait_until("it waits for the row", || number(&server, waiting) == 1);
    told(&mut other, "commit");
    let (lease, _) = asking.lease();
    assert_eq!(lease.token().get(), FAR + 1);
    release(lease);
    assert_eq!(entries(&server, true), 0, "the session is still there");
    drop(ann);
}

/// Nor when somebody has the row for longer than a statement waits.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn row_that_is_not_to_be_had_leaves_nothing_with_a_new_session() {
    let server = PostgresServer::start();
    let mut other = in_transaction(&server, "select from fencepost.lock for update");
    let ann = at(&server, CARELESS);
    let error = refusal(&lock(&ann, "a"));
    assert_kind(&error, ErrorKind::Contended);
    assert_eq!(entries(&server, true), 0, "the session is still there");
    told(&mut other, "commit");
    release(take(&lock(&ann, "a")));
}

/// Nor when whoever asks gives up while the statement waits for the row.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn request_that_is_given_up_while_it_waits_for_the_row_leaves_nothing_with_a_new_session() {
    let server = PostgresServer::start();
    let mut other = in_transaction(&server, "select from fencepost.lock for update");
    let ann = at(&server, CARELESS);
    let wanted = lock(&ann, "a").ttl(LONG);
    let outcome = block_on(until(&clock(), Some(now().after(Duration::from_millis(150))), wanted.acquire()));
    assert!(outcome.is_none(), "it waits");
    assert_nothing_is_left(&server);
    assert_eq!(sessions(&server), 1, "the session is still there");
    told(&mut other, "commit");
    release(take(&wanted));
    assert_eq!(entries(&server, true), 0);
    drop(ann);
}

/// An administrator who rebuilds a table has it for himself for a while. Nobody waits for longer than that, and nobody is turned away.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn session_begins_although_its_look_finds_a_table_locked_for_a_while() {
    let server = PostgresServer::start();
    for table in ["installation", "incarnation"] {
        let lock_table = format!("lock table fencepost.{table} in access exclusive mode");
        let mut other = in_transaction(&server, &lock_table);
        let ann = at(&server, CARELESS);
        let asking = ask(&lock(&ann, "a"));
        pass(SOON / 2);
        told(&mut other, "commit");
        let (lease, _) = asking.lease();
        release(lease);
    }
}

/// The server says by a warning that it has cut short the wait for the standby that was to have the token.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn token_whose_commit_comes_with_a_warning_is_not_believed() {
    let server = PostgresServer::start();
    draw(&at(&server, CARELESS));
    server.execute("alter system set synchronous_standby_names = 'nobody'");
    server.execute("select pg_reload_conf()");
    let ann = at(&server, CARELESS);
    let wanted = lock(&ann, "a").ttl(LONG).wait(Duration::ZERO);
    let asking = std::thread::spawn(move || block_on(wanted.acquire()).map(drop));
    let waiting = "from pg_stat_activity where application_name = 'fencepost' and wait_event = 'SyncRep'";
    wait_until("it waits for the standby", || number(&server, &format!("select count(*) {waiting}")) == 1);
    server.query(&format!("select pg_cancel_backend(pid) {waiting}"));
    // It is asked once more, on another session, where it waits for the standby to the end.
    let error = asking.join().expect("asking does not panic").expect_err("it is not believed");
    assert_kind(&error, ErrorKind::Unavailable);
}
