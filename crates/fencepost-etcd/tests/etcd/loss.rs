//! How a holder learns that its lease is gone, whatever takes it.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{Clock, ErrorKind, LossReason, Observer, until};
use fencepost_testkit::servers::EtcdServer;

use super::stage::{Notes, block_on, lock, locks, within};

const TTL: Duration = Duration::from_secs(30);

/// Long before the next renewal.
const SOON: Duration = Duration::from_secs(2);

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_whose_key_is_removed_by_hand_hears_of_it_at_once() {
    let server = EtcdServer::start();
    let lease = block_on(lock(&server.url(), "orders", TTL).acquire()).unwrap();
    server.control(&["del", "--prefix", "/fencepost/orders/q/"]);
    let lost = block_on(within(SOON, "the news", lease.lost()));
    assert_eq!(lost.loss_reason(), Some(LossReason::Expired), "{lost}");
    assert_eq!(block_on(lease.release()).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_whose_lease_is_revoked_by_hand_hears_of_it_at_once() {
    let server = EtcdServer::start();
    let lease = block_on(lock(&server.url(), "orders", TTL).acquire()).unwrap();
    let listed = server.control(&["lease", "list"]);
    server.control(&["lease", "revoke", listed.lines().nth(1).unwrap()]);
    let lost = block_on(within(SOON, "the news", lease.lost()));
    assert_eq!(lost.kind(), ErrorKind::Lost);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_that_was_revoked_while_its_server_was_away_is_told_why() {
    let mut server = EtcdServer::start();
    let lease = block_on(lock(&server.url(), "orders", TTL).acquire()).unwrap();
    // Its watch is gone with the server.
    server.restart();
    block_on(async {
        let other = locks(&server.url());
        other.revoke("orders", lease.token(), "night shift").await.unwrap();
        let lost = within(SOON * 2, "the news", lease.lost()).await;
        assert_eq!(lost.loss_reason(), Some(LossReason::Revoked), "{lost}");
        assert!(lost.to_string().contains("night shift"), "{lost}");
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn loss_of_one_lock_is_not_that_of_others() {
    let server = EtcdServer::start();
    let client = locks(&server.url());
    block_on(async {
        let mut leases = Vec::new();
        for name in ["a", "b", "c"] {
            leases.push(client.lock(name).unwrap().ttl(TTL).acquire().await.unwrap());
        }
        let listed = server.control(&["lease", "list"]);
        assert_eq!(listed.lines().count(), 4, "each has a lease of its own: {listed}");
        server.control(&["lease", "revoke", listed.lines().nth(1).unwrap()]);
        let mut lost = 0;
        for lease in &leases {
            let clock = Clock::system();
            lost += usize::from(until(&clock, Some(clock.now().after(SOON)), lease.lost()).await.is_some());
        }
        assert_eq!(lost, 1);
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_of_a_server_that_restarts_goes_on() {
    let mut server = EtcdServer::start();
    let notes = Notes::new();
    let observer: Arc<dyn Observer> = Arc::<Notes>::clone(&notes);
    let ttl = Duration::from_secs(4);
    let lease = block_on(lock(&server.url(), "orders", ttl).observer(observer).acquire()).unwrap();
    for _ in 0..2 {
        server.restart();
        let renewed = notes.count("renewed");
        fencepost_testkit::servers::wait_until("it was renewed", || notes.count("renewed") > renewed + 1);
    }
    lease.check().unwrap();
    block_on(lease.release()).unwrap();
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn ttl_of_the_server_counts_and_is_said() {
    let setup = fencepost_testkit::servers::EtcdSetup::default();
    let server = setup.arguments(&["--heartbeat-interval", "200", "--election-timeout", "2000"]).start();
    let notes = Notes::new();
    let observer: Arc<dyn Observer> = Arc::<Notes>::clone(&notes);
    let asked = Duration::from_secs(1);
    let lease = block_on(lock(&server.url(), "orders", asked).observer(observer).acquire()).unwrap();
    assert_eq!(lease.ttl(), Some(Duration::from_secs(3)));
    let left = lease.remaining().unwrap();
    assert!(left > Duration::from_millis(2_500), "{left:?}");
    assert!(notes.all().contains("3s") && notes.all().contains("1s"), "{}", notes.all());
    block_on(lease.release()).unwrap();
}
