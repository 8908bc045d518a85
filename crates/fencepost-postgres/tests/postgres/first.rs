//! What a session takes as its first lock, in one statement of plain SQL: no more than the function would give it.

use fencepost_core::ErrorKind;
use fencepost_testkit::servers::{PostgresServer, wait_until};

use crate::stage::{
    CARELESS, LONG, ask, assert_kind, at, draw, entries, lock, number, refusal, release, session, take, told,
};

/// Far above any clock in microseconds.
const FAR: u64 = 1 << 62;

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

/// What the server has locked for it is not locked once more when the row is read again.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn row_that_changes_meanwhile_gives_a_greater_token_and_one_release_frees_it() {
    let server = PostgresServer::start();
    draw(&at(&server, CARELESS));
    let mut other = session(&server);
    told(&mut other, "begin");
    told(&mut other, &format!("update fencepost.lock set token = {FAR}"));
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
    draw(&at(&server, CARELESS));
    let mut other = session(&server);
    told(&mut other, "begin");
    told(&mut other, "select from fencepost.lock for update");
    let ann = at(&server, CARELESS);
    let error = refusal(&lock(&ann, "a"));
    assert_kind(&error, ErrorKind::Contended);
    assert_eq!(entries(&server, true), 0, "the session is still there");
    told(&mut other, "commit");
    release(take(&lock(&ann, "a")));
}
