//! The logbook outlives the token record, and ends in the end.

use fencepost_core::{AcquireRequest, Claim, HolderId, Locks, Mode, Wait};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{RedisServer, Reply};

use crate::stage::{CARELESS, TTL, assert_nothing_is_left, at, clock, key};

const DAY: i64 = 24 * 3_600;

fn claim(locks: &Locks) -> Box<dyn Claim> {
    let request = AcquireRequest {
        name: "a".parse().expect("a test names a lock"),
        holder: HolderId::draw(&clock()),
        label: String::new(),
        ttl: TTL,
        at_least: None,
        mode: Mode::Exclusive,
        beside: Vec::new(),
        wait: Wait::No,
        observer: None,
    };
    block_on(locks.backend().acquire(&request)).expect("the lock is free")
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn logbook_is_kept_for_longer_than_a_year_after_it_was_written_last() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    for content in ["one", "two"] {
        let mut claim = claim(&locks);
        block_on(claim.write_logbook(content.as_bytes())).expect("its holder can write");
        block_on(claim.release()).expect("it is held");
        let left = server.command(&["TTL", &key("a", "b")]).integer();
        assert!((399 * DAY..=400 * DAY).contains(&left), "{left} s are left");
        server.command(&["EXPIRE", &key("a", "b"), "7"]);
    }
    // The token record goes first.
    server.command(&["DEL", &key("a", "s")]);
    block_on(claim(&locks).release()).expect("it is held");
    let read = block_on(locks.backend().logbook(&"a".parse().expect("a name"))).expect("it can be read");
    assert_eq!(read.as_deref(), Some(&b"two"[..]));
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_whose_record_has_gone_writes_no_logbook() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let mut late = claim(&locks);
    server.command(&["DEL", &key("a", "l")]);
    let refused = block_on(late.write_logbook(b"late")).expect_err("a lease that is gone wrote");
    assert_eq!(refused.kind(), fencepost_core::ErrorKind::Lost, "{refused}");
    assert_eq!(server.command(&["GET", &key("a", "b")]), Reply::Nil);
}
