//! Tokens grow whatever happens to the data, and are exact up to the last one that Redis counts exactly.

use std::time::Duration;

use fencepost_core::{ErrorKind, FencingToken, Locks, Status};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{RedisServer, RedisSetup};

use crate::stage::{
    CARELESS, assert_all_ends, assert_kind, assert_nothing_is_left, at, key, lock, look, refusal, release,
    server_time, take,
};

/// The greatest token that Redis counts exactly.
const GREATEST: u64 = (1 << 53) - 1;

const WEEK: i64 = 7 * 24 * 3_600;

fn draw(locks: &Locks) -> u64 {
    let lease = take(&lock(locks, "a"));
    let token = lease.token().get();
    release(lease);
    token
}

fn lift(locks: &Locks, to: u64) {
    let to = FencingToken::try_from(to).expect("it is a token");
    block_on(locks.lift("a", to)).expect("a lock can be lifted");
}

/// The seconds that the token record has left; -1 where it does not end.
fn left(server: &RedisServer) -> i64 {
    server.command(&["TTL", &key("a", "s")]).integer()
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn tokens_grow_over_losses_of_data() {
    let mut server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let mut tokens = vec![draw(&locks), draw(&locks)];
    server.restart_empty();
    tokens.extend([draw(&locks), draw(&locks)]);
    server.command(&["FLUSHALL"]);
    tokens.push(draw(&locks));
    server.command(&["DEL", &key("a", "s")]);
    tokens.push(draw(&locks));
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn tokens_grow_when_the_clock_goes_back() {
    let mut server = RedisSetup::default().own_clock().start();
    let locks = at(server.port(), CARELESS);
    let before = draw(&locks);
    server.step_clock_back(Duration::from_hours(1));
    let (next, third) = (draw(&locks), draw(&locks));
    assert_eq!([next, third], [before + 1, before + 2]);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn last_tokens_are_exact_and_then_there_is_none() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    lift(&locks, GREATEST - 2);
    let drawn: Vec<u64> = (0..3).map(|_| draw(&locks)).collect();
    assert_eq!(drawn, [GREATEST - 2, GREATEST - 1, GREATEST]);
    for _ in 0..2 {
        let error = refusal(&lock(&locks, "a"));
        assert_kind(&error, ErrorKind::Unexpected);
        assert!(error.to_string().contains("2^53-1"), "{error}");
    }
    assert_eq!(look(&locks, "a").status, Status::Free);
    let error = block_on(locks.lift("a", FencingToken::try_from(GREATEST + 1).unwrap())).unwrap_err();
    assert_kind(&error, ErrorKind::InvalidArgument);
    // Every other lock has its own tokens.
    release(take(&lock(&locks, "b")));
}

/// A double has no place for each number of that size.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn token_never_passes_through_a_double() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    server.command(&["SET", &key("a", "s"), &(GREATEST - 1).to_string()]);
    let lease = take(&lock(&locks, "a"));
    assert_eq!(lease.token().get(), GREATEST);
    assert_eq!(look(&locks, "a").token, Some(lease.token()));
    release(lease);
    // What somebody else wrote there is refused as well.
    server.command(&["SET", &key("a", "s"), "10000000000000000000"]);
    assert_kind(&refusal(&lock(&locks, "a")), ErrorKind::Unexpected);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lift_never_lowers() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    lift(&locks, GREATEST - 100);
    lift(&locks, 7);
    lift(&locks, GREATEST - 1_000);
    assert_eq!(draw(&locks), GREATEST - 100);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn record_of_an_idle_lock_ends_after_a_week() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    draw(&locks);
    assert!((WEEK - 60..=WEEK).contains(&left(&server)), "{}", left(&server));
    server.command(&["EXPIRE", &key("a", "s"), "1000"]);
    draw(&locks);
    assert!(left(&server) > WEEK - 60, "after its last use");
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn record_ahead_of_the_clock_stays_until_the_clock_has_come() {
    let mut server = RedisSetup::default().own_clock().start();
    let locks = at(server.port(), CARELESS);
    draw(&locks);
    let ahead = u64::try_from(server_time(&server) + 60_000).unwrap() * 1_000;
    lift(&locks, ahead);
    assert_eq!(left(&server), -1, "lifted");
    assert_eq!([draw(&locks), draw(&locks)], [ahead, ahead + 1]);
    assert_eq!(left(&server), -1, "drawn ahead of the clock");
    server.step_clock_forward(Duration::from_mins(2));
    assert!(draw(&locks) > ahead + 1);
    assert!(left(&server) > WEEK - 60, "the clock is ahead again: {}", left(&server));
    assert_all_ends(&server);
}
