//! Tokens: on the scale of the wall clock, growing over the deletion of nodes, elections, and lifts.

use std::time::Duration;

use fencepost_core::{Clock, FencingToken, Locks, block_on};
use fencepost_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};

use crate::stage::locks;

const TTL: Duration = Duration::from_secs(10);

fn token(locks: &Locks) -> FencingToken {
    let lease = block_on(locks.lock("orders").unwrap().ttl(TTL).wait(TTL).acquire()).unwrap();
    let token = lease.token();
    block_on(lease.release()).unwrap();
    token
}

fn above(token: FencingToken, by: u64) -> FencingToken {
    (token.get() + by).try_into().unwrap()
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn tokens_are_on_the_scale_of_the_wall_clock() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let wall = Clock::system().wall_micros();
    for _ in 0..3 {
        assert!(token(&locks).get().abs_diff(wall) < 60_000_000);
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn tokens_grow_over_the_deletion_of_the_lock() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let mut client = server.client();
    // As far ahead of the clock as elections bring it.
    client
        .create(
            "/fencepost",
            br#"{"offset":1900000000000000}"#,
            fencepost_testkit::servers::ZooKeeperStay::Persistent,
        )
        .unwrap();
    let mut last = None;
    for _ in 0..3 {
        for _ in 0..3 {
            let next = token(&locks);
            assert!(next.get() > 1_900_000_000_000_000, "{next} is not above the offset of all locks");
            assert!(Some(next) > last, "{next} came after {last:?}");
            last = Some(next);
        }
        client.delete_all("/fencepost/orders").unwrap();
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn token_that_lags_behind_the_clock_is_raised_and_that_of_another_lock_with_it() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let first = token(&locks);
    let mut client = server.client();
    // As if it had been two minutes ago.
    let node = client.node("/fencepost/orders").unwrap().unwrap();
    let text = String::from_utf8(node.data).unwrap();
    let offset: u64 = text.split("\"offset\":").nth(1).unwrap().trim_end_matches('}').parse().unwrap();
    let older = text.replace(&offset.to_string(), &(offset - 120_000_000).to_string());
    for path in ["/fencepost", "/fencepost/orders"] {
        client.set(path, older.as_bytes()).unwrap();
    }
    let wall = Clock::system().wall_micros();
    let next = token(&locks);
    assert!(next > first && next.get() + 1_000_000 > wall, "{next} at {wall}");
    let root = String::from_utf8(client.node("/fencepost").unwrap().unwrap().data).unwrap();
    assert!(!root.contains(&(offset - 120_000_000).to_string()), "{root}");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn garbage_in_the_nodes_is_no_reason_for_a_lower_token() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let first = token(&locks);
    let mut client = server.client();
    client.set("/fencepost/orders", b"{\"offset\":").unwrap();
    assert!(token(&locks) > first);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lift_counts_for_whoever_waits_already_and_is_never_lowered() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let holder = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let to = above(holder.token(), 3_600_000_000);
    let waiter = locks.lock("orders").unwrap().ttl(TTL);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(waiter.acquire()).unwrap());
        crate::stage::eventually("it waits", || {
            !block_on(locks.inspect("orders")).unwrap().waiters.is_empty()
        });
        block_on(locks.lift("orders", to)).unwrap();
        block_on(locks.lift("orders", FencingToken::MIN)).unwrap();
        let seen = block_on(locks.inspect("orders")).unwrap();
        assert_eq!(seen.token, Some(holder.token()), "the lift changed what is held");
        block_on(holder.release()).unwrap();
        let lease = waiter.join().unwrap();
        assert!(lease.token() >= to, "{} is below {to}", lease.token());
        block_on(lease.release()).unwrap();
    });
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn tokens_grow_over_elections_and_restarts() {
    let mut ensemble = ZooKeeperEnsemble::start();
    let locks = locks(&ensemble.url());
    let mut last = token(&locks);
    for _ in 0..2 {
        let leader = ensemble.leader();
        ensemble.restart(leader);
        ensemble.leader();
        let next = token(&locks);
        assert!(next > last, "{next} came after {last}");
        last = next;
    }
}
