//! Tokens grow over everything that loses data, and the row alone keeps those that are ahead of the clock.
//!
//! The process that writes the log in the background stands still, so that what no commit has written is lost at a crash.

use std::time::Duration;

use fencepost_core::{Lease, Locks};
use fencepost_testkit::servers::{PostgresServer, PostgresSetup, wait_until};

use crate::stage::{CARELESS, as_role, at, draw, lift, lock, release, take, token_in_row};
use rustix::process::{Pid, Signal, kill_process};

/// Far above any clock in microseconds.
const FAR: u64 = 1 << 62;

/// A server that loses what it has not written, when it is killed.
fn lossy_server() -> PostgresServer {
    let server = PostgresServer::start_with(&["fsync=on", "wal_writer_delay=10s"]);
    stop_log_writer(&server);
    server
}

/// Commits then write for themselves, or not at all.
pub(crate) fn stop_log_writer(server: &PostgresServer) {
    let mut writer = String::new();
    wait_until("the server has a process that writes the log", || {
        writer = server.query("select pid from pg_stat_activity where backend_type = 'walwriter'");
        !writer.is_empty()
    });
    let writer = writer.parse().ok().and_then(Pid::from_raw).expect("it has a number");
    kill_process(writer, Signal::STOP).expect("it is there");
}

/// Takes the lock `a` and has the server killed at once; the token.
fn draw_and_kill(server: &mut PostgresServer, locks: &Locks) -> u64 {
    let lease: Lease = take(&lock(locks, "a"));
    server.kill();
    let token = lease.token().get();
    drop(lease);
    server.restart();
    token
}

/// The last token is in the row after a crash right after its grant.
fn assert_row_survives(server: &mut PostgresServer, locks: &Locks) {
    let mut last = 0;
    for _ in 0..3 {
        let token = draw_and_kill(server, locks);
        assert!(token > last, "tokens grow");
        assert_eq!(token_in_row(server), token, "what was granted is written");
        last = token;
        stop_log_writer(server);
    }
    assert!(draw(locks) > last);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_that_is_killed_right_after_a_grant_keeps_the_token() {
    let mut server = lossy_server();
    let locks = at(&server, CARELESS);
    assert_row_survives(&mut server, &locks);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_that_does_not_wait_for_the_disk_does_so_for_its_tokens() {
    let mut server = lossy_server();
    server.execute("create role ann superuser login");
    server.execute("alter role ann set synchronous_commit = off");
    server.execute("checkpoint");
    let locks = as_role(&server, "ann", CARELESS);
    assert_row_survives(&mut server, &locks);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lifted_tokens_do_not_go_back_over_a_crash() {
    let mut server = lossy_server();
    let locks = at(&server, CARELESS);
    draw(&locks);
    lift(&locks, FAR);
    server.kill();
    server.restart();
    assert_eq!(token_in_row(&server), FAR - 1, "a lift is written");
    stop_log_writer(&server);
    assert_eq!([draw(&locks), draw(&locks)], [FAR, FAR + 1], "the clock is far behind");
    assert_eq!(draw_and_kill(&mut server, &locks), FAR + 2);
    assert_eq!(draw(&locks), FAR + 3);
}

/// What `synchronous_commit=off` would do to them: the functions are the product's.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lifted_tokens_would_go_back_if_a_grant_did_not_wait_for_the_disk() {
    let mut server = lossy_server();
    let locks = at(&server, CARELESS);
    draw(&locks);
    lift(&locks, FAR);
    let mut hasty = server.client().unwrap();
    hasty.query("set synchronous_commit = off").unwrap();
    let mut last = String::new();
    for _ in 0..20 {
        let grant = "select fencepost.acquire(id, name, '0 h l', 0, false, false, '0', null) from fencepost.lock where name = 'a'";
        last = hasty.query(grant).unwrap();
        hasty
            .query(&format!("select pg_advisory_unlock({}, id) from fencepost.lock", crate::stage::LOCK))
            .unwrap();
    }
    server.kill();
    server.restart();
    let last: u64 = last.parse().unwrap();
    assert_eq!(last, FAR + 19);
    let next = draw(&locks);
    assert!(next <= last, "{next} after {last}: the control has lost its teeth");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn tokens_grow_over_clean_and_immediate_restarts() {
    let mut server = PostgresServer::start();
    let locks = at(&server, CARELESS);
    lift(&locks, FAR);
    let mut tokens = vec![draw(&locks)];
    server.restart_cleanly();
    tokens.push(draw(&locks));
    server.shut_down_immediately();
    server.restart();
    tokens.extend([draw(&locks), draw(&locks)]);
    assert_eq!(tokens, [FAR, FAR + 1, FAR + 2, FAR + 3]);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn promoted_standby_that_lacks_the_last_grants_goes_on_by_its_clock() {
    let mut primary = PostgresServer::start();
    let locks = at(&primary, CARELESS);
    let first = draw(&locks);
    let standby = primary.standby();
    standby.wait_for_replay(&primary);
    standby.stop_receiving();
    let last = (0..5).map(|_| draw(&locks)).max().unwrap();
    primary.kill();
    standby.promote();
    assert_eq!(token_in_row(&standby), first, "the standby lacks the later ones");
    assert!(draw(&at(&standby, CARELESS)) > last);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn tokens_grow_when_the_clock_goes_back() {
    let mut server = PostgresSetup::default().own_clock().start();
    let locks = at(&server, CARELESS);
    let before = draw(&locks);
    server.step_clock_back(Duration::from_hours(1));
    let taken = take(&lock(&locks, "a"));
    assert_eq!(taken.token().get(), before + 1);
    release(taken);
    server.kill();
    server.restart();
    assert_eq!(draw(&locks), before + 2);
}
