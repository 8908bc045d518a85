//! Locks that one process takes again and again: nothing is asked for that it would have heard of, and all that it would is heeded.

use std::time::Duration;

use fencepost_core::{ErrorKind, HolderId, Locks, block_on};
use fencepost_testkit::servers::{ZooKeeperServer, ZooKeeperStay};

use crate::stage::{locks, sleep};

const TTL: Duration = Duration::from_secs(30);

/// How often a lock is held until it is believed that nobody else comes.
const TIMES: usize = 4;

/// A client that has held the lock alone a few times.
fn settled(server: &ZooKeeperServer) -> Locks {
    let locks = locks(&server.url());
    for _ in 0..TIMES {
        once(&locks);
    }
    locks
}

fn once(locks: &Locks) -> u64 {
    let lease = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let token = lease.token().get();
    block_on(lease.release()).unwrap();
    token
}

#[track_caller]
fn assert_is_held(locks: &Locks) {
    let wait = Duration::from_millis(300);
    let outcome = block_on(locks.lock("orders").unwrap().ttl(TTL).wait(wait).acquire());
    assert_eq!(outcome.expect_err("two hold it at once").kind(), ErrorKind::Contended);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn hold_of_a_lock_that_nobody_else_wants_costs_a_create_and_a_delete() {
    const HOLDS: u64 = 200;
    let server = ZooKeeperServer::start();
    let locks = settled(&server);
    let before = server.counted("zk_packets_received");
    for _ in 0..HOLDS {
        once(&locks);
    }
    let packets = server.counted("zk_packets_received") - before;
    // Some heartbeats beside.
    assert!(packets < HOLDS * 5 / 2, "{packets} requests for {HOLDS} holds");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lift_by_another_client_counts_for_the_next_hold() {
    let server = ZooKeeperServer::start();
    let (settled, other) = (settled(&server), locks(&server.url()));
    for _ in 0..3 {
        let to = once(&settled) + 3_600_000_000;
        block_on(other.lift("orders", to.try_into().unwrap())).unwrap();
        assert!(once(&settled) >= to);
        once(&settled);
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lock_that_another_client_has_taken_since_is_held_and_rests() {
    let server = ZooKeeperServer::start();
    let (settled, other) = (settled(&server), locks(&server.url()));
    for _ in 0..3 {
        let lease = block_on(other.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
        assert_is_held(&settled);
        block_on(lease.release()).unwrap();
        for _ in 0..TIMES {
            once(&settled);
        }
    }
    let rests = Duration::from_secs(2);
    let lease = block_on(other.lock("orders").unwrap().ttl(TTL).at_least(rests).acquire()).unwrap();
    block_on(lease.release()).unwrap();
    assert_is_held(&settled);
    sleep(rests);
    once(&settled);
}

/// Places are counted anew below a node that was made anew, and the one that is made next seems to follow the last one.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lock_whose_node_was_made_anew_is_not_taken_for_free() {
    let server = ZooKeeperServer::start();
    let settled = settled(&server);
    let mut client = server.client();
    let data = client.node("/fencepost/orders").unwrap().unwrap().data;
    client.delete_all("/fencepost/orders").unwrap();
    client.create("/fencepost/orders", &data, ZooKeeperStay::Persistent).unwrap();
    for number in 0..TIMES {
        let stem = format!("/fencepost/orders/{}-x-", HolderId::from_bytes([7; 16]));
        let node = client.create(&stem, b"", ZooKeeperStay::SessionInOrder).unwrap();
        assert!(node.ends_with(&format!("{number:010}")), "{node}");
    }
    assert_is_held(&settled);
}
