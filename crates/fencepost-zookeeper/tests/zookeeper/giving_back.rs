//! Leases that end by other hands than their holder's: given back by another process, or forgotten by their own.

use std::time::Duration;

use fencepost_core::{AcquireRequest, Backend, Revoked, Status, Wait, block_on};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};

use crate::stage::{backend, eventually, locks, request, sleep};

const TTL: Duration = Duration::from_secs(10);

/// Its grant is not written down yet, and its holder has waited for a while.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lock_that_is_given_back_at_once_by_others_rests_for_as_long_as_was_asked() {
    let server = ZooKeeperServer::start();
    let at_least = Duration::from_secs(3);
    let (waiting, other) = (backend(&server.url()), backend(&server.url()));
    let name = "orders".parse().unwrap();
    block_on(other.inspect(&name)).unwrap();
    let holder = block_on(locks(&server.url()).lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let asked = AcquireRequest { at_least: Some(at_least), ..request("orders", TTL, Wait::Forever) };
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(waiting.acquire(&asked)).unwrap());
        sleep(at_least * 2 / 3);
        block_on(holder.release()).unwrap();
        let claim = waiter.join().unwrap();
        block_on(other.give_back(&claim.handover().unwrap())).unwrap();
        let seen = block_on(other.inspect(&name)).unwrap();
        assert_eq!(seen.status, Status::Resting);
        assert!(seen.remaining > Some(at_least / 2), "it rests for {:?} only", seen.remaining);
    });
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lease_is_given_back_by_a_member_that_lags() {
    let ensemble = ZooKeeperEnsemble::start();
    let [late, _] = ensemble.followers();
    let holding = backend(&ensemble.member(ensemble.leader()).url());
    let other = backend(&ensemble.member(late).url());
    let name = "orders".parse().unwrap();
    block_on(other.inspect(&name)).unwrap();
    ensemble.lag(late, Duration::from_millis(300));
    sleep(Duration::from_millis(100));
    let claim = block_on(holding.acquire(&request("orders", TTL, Wait::No))).unwrap();
    block_on(other.give_back(&claim.handover().unwrap())).expect("it is held");
    let seen = block_on(holding.inspect(&name)).unwrap();
    assert_eq!(seen.status, Status::Free);
}

/// Others keep its session, so that nothing else would end it.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn forgotten_lease_ends_although_its_deletion_was_lost_on_the_way() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let url = format!("zookeeper://{}", proxy.address());
    let (ttl, locks) = (Duration::from_secs(4), locks(&url));
    let kept = block_on(locks.lock("kept").unwrap().ttl(ttl).acquire()).unwrap();
    let forgotten = block_on(locks.backend().acquire(&request("orders", ttl, Wait::No))).unwrap();
    std::mem::forget(forgotten);
    sleep(ttl * 39 / 40);
    // It is deleted now, and the connection is given up a tenth of the ttl later.
    proxy.set(Mode::RequestHole);
    sleep(Duration::from_millis(300));
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    let mut client = server.client();
    eventually("it is gone", || client.children("/fencepost/orders").unwrap().is_empty());
    kept.check().expect("the session lives");
    block_on(kept.release()).unwrap();
}

/// What is written down of a grant was on its way when the connection broke.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn grant_is_written_down_although_that_was_lost_on_the_way() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let holding = locks(&format!("zookeeper://{}", proxy.address()));
    let lease = block_on(holding.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    proxy.set(Mode::RequestHole);
    // Beside the heartbeat that is held back by then.
    eventually("it is being written down", || proxy.held_requests() > 150);
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    let mut client = server.client();
    eventually("it is written down", || {
        let places = client.children("/fencepost/orders").unwrap();
        let node = client.node(&format!("/fencepost/orders/{}", places[0])).unwrap().unwrap();
        String::from_utf8_lossy(&node.data).contains(&lease.token().to_string())
    });
    // So that it is known by its own token, whatever is added to those of others.
    let to = lease.token().get() + 3_600_000_000;
    block_on(holding.lift("orders", to.try_into().unwrap())).unwrap();
    let revoked = block_on(holding.revoke("orders", lease.token(), "a test")).unwrap();
    assert_eq!(revoked, Revoked::Done);
}
