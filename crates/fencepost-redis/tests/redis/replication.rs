//! Replicas: one that is promoted without a grant, and grants that count only when a replica has them.

use std::time::Duration;

use fencepost_core::{ErrorKind, until};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{RedisServer, RedisSetup, Reply, wait_until};

use crate::stage::{
    CARELESS, TTL, ask, assert_held, assert_kind, assert_nothing_is_left, at, clock, deadline, key, lock,
    loss, now, old_server, pass, proxy_to, refusal, release, take, wait_for_waiters,
};

/// Makes a server a replica of another one, by a way that the test can close.
fn replicate(primary: &RedisServer, replica: &RedisServer) -> Proxy {
    let way = proxy_to(primary);
    replica.command(&["REPLICAOF", "127.0.0.1", &way.port().to_string()]);
    wait_until("the replica is linked to its primary", || {
        replica.info("replication", "master_link_status").as_deref() == Some("up")
    });
    way
}

/// Waits until a replica acknowledges what it receives, which it does up to a second after it has the data.
fn wait_for_acknowledgement(primary: &RedisServer) {
    let mut client = primary.client().expect("the server answers");
    client.command(&["SET", "anything", "1", "PX", "1"]).expect("the server answers");
    assert_eq!(client.command(&["WAIT", "1", "9000"]).expect("the server answers"), Reply::Integer(1));
}

/// A primary that dies with a grant that its replica never saw, and the replica in its place. `options` are those of whoever
/// comes next.
fn lagging_replica_takes_over(options: &str) -> bool {
    let (mut primary, replica) = (old_server(RedisSetup::default()), old_server(RedisSetup::default()));
    let way = replicate(&primary, &replica);
    let (way_of_ann, way_of_bob) = (proxy_to(&primary), proxy_to(&primary));
    let (ann, bob) = (at(way_of_ann.port(), "max_ttl=2s"), at(way_of_bob.port(), options));
    release(take(&lock(&bob, "a")));
    wait_until("the replica has what there is", || {
        replica.command(&["DBSIZE"]) == primary.command(&["DBSIZE"])
    });
    way.set(Mode::Blackhole);
    let held = take(&lock(&ann, "a").ttl(Duration::from_secs(2)));
    // The holder hears nothing any more, and believes in its lease to the end.
    way_of_ann.set(Mode::Blackhole);
    primary.kill();
    way.set(Mode::Cut);
    replica.promote();
    way_of_bob.redirect(([127, 0, 0, 1], replica.port()).into());
    let (next, granted) = ask(&lock(&bob, "a")).lease();
    let is_overlap = held.check().is_ok() && now() < deadline(&held);
    assert!(next.token() > held.token(), "tokens grow");
    assert!(is_overlap || granted >= deadline(&held));
    release(next);
    way_of_ann.redirect(([127, 0, 0, 1], replica.port()).into());
    way_of_ann.set(Mode::Cut);
    way_of_ann.set(Mode::Pass);
    assert_kind(&loss(&held).0, ErrorKind::Lost);
    drop(held);
    assert_nothing_is_left(&replica);
    is_overlap
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn promoted_replica_that_lacks_a_grant_gives_the_lock_to_nobody_else() {
    assert!(!lagging_replica_takes_over("max_ttl=2s"), "the holds overlap");
}

/// The control: there is something to be protected from.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn promoted_replica_that_lacks_a_grant_gives_it_twice_without_a_quarantine() {
    assert!(lagging_replica_takes_over("max_ttl=2s&quarantine=off"));
}

/// The primary is one again, without the grants that it made before, and its record is still the one that it wrote.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn primary_that_was_a_replica_for_a_while_is_quarantined() {
    let (primary, replica) = (old_server(RedisSetup::default()), old_server(RedisSetup::default()));
    let ann = at(primary.port(), "max_ttl=2s");
    release(take(&lock(&ann, "a")));
    let way = replicate(&primary, &replica);
    let record = primary.command(&["GET", "fencepost:inc"]);
    way.set(Mode::Blackhole);
    let held = take(&lock(&ann, "a").ttl(Duration::from_secs(2)));
    // The replica takes over without it, and back again before anybody has used it.
    way.set(Mode::Cut);
    replica.promote();
    primary.replica_of(&replica);
    primary.promote();
    assert_eq!(primary.command(&["GET", "fencepost:inc"]), record);
    primary.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let error = refusal(&lock(&at(primary.port(), "max_ttl=2s"), "a"));
    assert!(error.to_string().contains("it was a replica for a while"), "{error}");
    drop(held);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_counts_when_a_replica_has_it() {
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    replica.replica_of(&primary);
    wait_for_acknowledgement(&primary);
    let (ann, bob) = (at(primary.port(), "quarantine=off&replicas=1"), at(primary.port(), CARELESS));
    let ttl = Duration::from_secs(2);
    for round in 0..5 {
        let lease = take(&lock(&ann, "a").ttl(ttl));
        let seen = replica.command(&["GET", &key("a", "l")]);
        assert!(seen.text().contains(&lease.token().to_string()), "{round}: {seen:?}");
        release(lease);
    }
    let kept = take(&lock(&ann, "kept"));
    replica.stop();
    let asked = now();
    let error = refusal(&lock(&ann, "a").ttl(ttl));
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.to_string().contains("0 of the 1 replicas"), "{error}");
    assert!(now().since(asked) >= ttl / 4, "the replica is given some time");
    // The connection of the grants waits for the replica; that of the renewals does not.
    while now().since(asked) < TTL * 3 {
        assert_kind(&refusal(&lock(&ann, "a").ttl(ttl)), ErrorKind::Unavailable);
        kept.check().expect("other leases are renewed meanwhile");
    }
    block_on(until(&clock(), Some(now().after(TTL)), async {
        while bob.inspect("a").await.unwrap().holder.is_some() {}
    }))
    .expect("nothing is held that was not acquired");
    replica.go_on();
    assert_held(&kept, &bob);
    release(take(&lock(&ann, "a").ttl(ttl)));
    release(kept);
    assert_nothing_is_left(&primary);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiter_for_a_grant_with_replicas_is_told_of_its_turn() {
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    replica.replica_of(&primary);
    wait_for_acknowledgement(&primary);
    let held = take(&lock(&at(primary.port(), CARELESS), "a").ttl(Duration::from_secs(30)));
    let asking =
        ask(&lock(&at(primary.port(), "quarantine=off&replicas=1"), "a").ttl(Duration::from_secs(30)));
    wait_for_waiters(&primary, "a", 1);
    let behind = ask(&lock(&at(primary.port(), CARELESS), "a").ttl(Duration::from_secs(30)));
    wait_for_waiters(&primary, "a", 2);
    release(held);
    let (first, _) = asking.lease();
    pass(Duration::from_millis(50));
    assert!(!behind.is_over(), "it came later");
    release(first);
    release(behind.lease().0);
    assert_nothing_is_left(&primary);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn replica_is_no_place_for_locks() {
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    replica.replica_of(&primary);
    let error = refusal(&lock(&at(replica.port(), CARELESS), "a"));
    assert_kind(&error, ErrorKind::Unavailable);
    assert!(error.to_string().contains("is a replica"), "{error}");
    assert!(error.advice().is_some_and(|advice| advice.contains("sentinel")), "{error:?}");
}

/// Behind an open connection the primary has become a replica.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_on_a_primary_that_became_a_replica_is_lost_by_its_deadline() {
    let (primary, other) = (RedisServer::start(), RedisServer::start());
    let ann = at(primary.port(), CARELESS);
    let held = take(&lock(&ann, "a"));
    primary.replica_of(&other);
    assert_kind(&loss(&held).0, ErrorKind::Lost);
    assert_kind(&refusal(&lock(&ann, "a")), ErrorKind::Unavailable);
    primary.promote();
    release(take(&lock(&ann, "a")));
}
