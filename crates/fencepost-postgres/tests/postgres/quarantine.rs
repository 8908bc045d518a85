//! After anything that loses the server's locks nothing is granted until every lease that it has forgotten is over.
//!
//! The holder is one that cannot hear of it. Each scenario has its control: a client without a quarantine, which overlaps.

use std::time::Duration;

use fencepost_core::{ErrorKind, Event, Status};
use fencepost_testkit::Listener;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{PostgresServer, wait_until};

use crate::stage::{
    LONG, SLACK, TTL, ask, assert_kind, at, deadline, lock, look, now, number, proxy_to, refusal, release,
    session, take, through, told,
};

/// The longest lease here, and the options of a client that is quarantined for it.
const MAX_TTL: Duration = Duration::from_secs(3);
const CAREFUL: &str = "max_ttl=3s";

/// Those of one that is not; its leases count in the quarantine of the others all the same.
const CARELESS: &str = "quarantine=off&max_ttl=3s";

/// For how many milliseconds the server grants nothing.
fn left(server: &PostgresServer) -> i64 {
    number(
        server,
        "select coalesce(max(extract(epoch from ready_at - clock_timestamp()) * 1000)::bigint, -1)
            from fencepost.incarnation",
    )
}

fn started(server: &PostgresServer) -> String {
    server.query("select pg_postmaster_start_time()")
}

/// A holder whose path is gone, a server that forgets it, and those who come after that.
fn nothing_is_granted_behind(mut server: PostgresServer, forget: impl FnOnce(&mut PostgresServer)) {
    let proxy = proxy_to(&server);
    release(take(&lock(&at(&server, CAREFUL), "b")));
    let ann = through(&proxy, CAREFUL);
    let believed = take(&lock(&ann, "a").ttl(MAX_TTL));
    proxy.set(Mode::Blackhole);
    let deadline = deadline(&believed);
    forget(&mut server);
    let forgotten = now();
    let careless = take(&lock(&at(&server, CARELESS), "a"));
    assert!(now() > deadline || believed.check().is_ok(), "the control overlaps");
    release(careless);

    let bob = at(&server, CAREFUL);
    let heard = Listener::new();
    let error = refusal(&lock(&bob, "a").observer(heard.observer()));
    assert_eq!(heard.count(|event| matches!(event, Event::Quarantined)), 1, "{heard:?}");
    assert_kind(&error, ErrorKind::Contended);
    let text = error.to_string();
    assert!(text.contains("it has lost its locks") && text.contains(" s, because"), "{text}");
    assert!(error.advice().is_some_and(|advice| advice.contains("quarantine=off")), "{error:?}");
    let state = look(&bob, "a");
    assert_eq!(state.status, Status::Quarantined, "whoever looks sees it");
    assert!(state.remaining.is_some_and(|left| left <= MAX_TTL + TTL / 2), "{state:?}");

    let (next, granted) = ask(&lock(&bob, "a")).lease();
    assert!(granted >= deadline, "the holds do not overlap");
    assert!(granted.since(forgotten) < MAX_TTL + SLACK * 2, "{:?}", granted.since(forgotten));
    assert!(left(&server) <= 0, "the server grants again");
    assert!(believed.check().is_err(), "the holder knows that it is over");
    assert!(next.token() > believed.token());
    assert_eq!(look(&bob, "c").status, Status::Free);
    release(next);
    proxy.set(Mode::Pass);
}

/// All sessions end, and the first process goes on: its start time says nothing of it.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_session_of_somebody_else_begins_a_quarantine() {
    nothing_is_granted_behind(PostgresServer::start(), |server| {
        let before = started(server);
        let mut other = server.client().unwrap();
        let pid = other.query("select pg_backend_pid()").unwrap().parse().unwrap();
        server.kill_session(pid);
        assert_eq!(started(server), before);
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_server_begins_a_quarantine() {
    nothing_is_granted_behind(PostgresServer::start(), PostgresServer::restart);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn clean_restart_begins_a_quarantine() {
    nothing_is_granted_behind(PostgresServer::start(), PostgresServer::restart_cleanly);
}

/// The standby has the row of the lock and never had the lock itself. Its start time is older than the promotion.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn promotion_begins_a_quarantine() {
    nothing_is_granted_behind(PostgresServer::start(), |server| {
        let standby = server.standby();
        standby.wait_for_replay(server);
        let before = started(&standby);
        drop(std::mem::replace(server, standby));
        server.promote();
        assert_eq!(started(server), before);
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn first_installation_grants_at_once_and_so_does_every_later_client() {
    let server = PostgresServer::start();
    for _ in 0..3 {
        let asked = now();
        release(take(&lock(&at(&server, "max_ttl=60s"), "a")));
        assert!(now().since(asked) < LONG / 4);
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn longest_max_ttl_that_anybody_came_with_counts() {
    let mut server = PostgresServer::start();
    release(take(&lock(&at(&server, "max_ttl=40s"), "a")));
    release(take(&lock(&at(&server, CAREFUL), "a")));
    server.restart();
    refusal(&lock(&at(&server, CAREFUL), "a"));
    assert!(left(&server) > 20_000, "{}", left(&server));
}

/// A standby need not know of the longest: the client that came with it does.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn quarantine_grows_when_a_client_of_longer_leases_comes() {
    let primary = PostgresServer::start();
    release(take(&lock(&at(&primary, CAREFUL), "a")));
    let standby = primary.standby();
    standby.wait_for_replay(&primary);
    standby.stop_receiving();
    release(take(&lock(&at(&primary, "max_ttl=6s"), "a")));
    drop(primary);
    standby.promote();
    let waiting = ask(&lock(&at(&standby, CAREFUL), "a"));
    wait_until("the short quarantine has begun", || left(&standby) > 0);
    let before = now();
    refusal(&lock(&at(&standby, "max_ttl=6s"), "a"));
    assert!(left(&standby) > 4_000, "{}", left(&standby));
    let (next, granted) = waiting.lease();
    assert!(granted.since(before) > MAX_TTL * 5 / 4, "{:?}", granted.since(before));
    release(next);
}

/// Also where there is nothing else to be set up for that one.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn client_of_longer_leases_is_remembered_by_a_server_that_grants() {
    let mut server = PostgresServer::start();
    release(take(&lock(&at(&server, CAREFUL), "a")));
    release(take(&lock(&at(&server, "max_ttl=6s"), "a")));
    release(take(&lock(&at(&server, CAREFUL), "a")));
    server.restart();
    refusal(&lock(&at(&server, CAREFUL), "a"));
    assert!(left(&server) > 4_000, "{}", left(&server));
}

/// Two who find that the server has lost its locks, the second while the first is not done yet.
fn assert_one_writes(server: &PostgresServer) {
    let (mut first, mut second) = (session(server), session(server));
    let left = |answer: String| answer.parse::<i64>().expect("it is a number");
    let ready_at = "select ready_at from fencepost.incarnation";
    told(&mut first, "begin");
    assert!(left(told(&mut first, "select fencepost.ready_in(3000)")) > 2_000);
    second.send("select fencepost.ready_in(3000)");
    let written = told(&mut first, ready_at);
    told(&mut first, "commit");
    assert!(left(second.receive().expect("it is not in the way")) > 0);
    assert_eq!(told(&mut second, ready_at), written);
    refusal(&lock(&at(server, CAREFUL), "a"));
    assert_eq!(server.query(ready_at), written, "nobody puts it off");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn of_two_who_see_it_at_once_one_says_for_how_long() {
    let mut server = PostgresServer::start();
    release(take(&lock(&at(&server, CAREFUL), "a")));
    // The record is missing after the one, and another server's after the other.
    server.restart();
    assert_one_writes(&server);
    server.restart_cleanly();
    assert_one_writes(&server);
}
