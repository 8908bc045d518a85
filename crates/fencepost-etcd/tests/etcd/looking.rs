//! Looking at many locks.

use std::time::Duration;

use fencepost_core::{Backend, Clock, Status, Wait};
use fencepost_testkit::servers::EtcdServer;
use futures_util::StreamExt;

use super::stage::{backend, block_on, lock, locks, request, until_waiting};

/// Locks of one process; nobody renews them.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn thousands_of_locks_are_listed_soon() {
    const LOCKS: usize = 10_000;
    let server = EtcdServer::start();
    let client = backend(&format!("{}?max_ttl=1h", server.url()));
    let ttl = Duration::from_mins(30);
    let clock = Clock::system();
    block_on(async {
        let client = &client;
        let take = |number: usize| async move {
            let request = request(&format!("orders/{number}"), ttl, Wait::Forever);
            client.acquire(&request).await.unwrap().detach();
        };
        futures_util::stream::iter((0..LOCKS).map(take)).buffer_unordered(32).collect::<Vec<()>>().await;
        let began = clock.now();
        let listed = locks(&server.url()).list("").await.unwrap();
        let took = clock.now().since(began);
        assert_eq!(listed.len(), LOCKS);
        assert!(listed.iter().all(|seen| seen.status == Status::Held && seen.remaining.is_some()));
        assert!(listed.is_sorted_by(|one, next| one.name < next.name));
        let most = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });
        assert!(took < most, "{took:?}");
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_that_was_served_holds_since_then() {
    let server = EtcdServer::start();
    let client = locks(&server.url());
    let ttl = Duration::from_secs(20);
    block_on(async {
        let first = lock(&server.url(), "orders", ttl).acquire().await.unwrap();
        let waiting = lock(&server.url(), "orders", ttl);
        let meanwhile = async {
            until_waiting(&client, "orders", 1).await;
            Clock::system().sleep(Duration::from_millis(300)).await;
            let released = Clock::system().wall_micros();
            first.release().await.unwrap();
            released
        };
        let (lease, released) = futures_util::future::join(waiting.acquire(), meanwhile).await;
        let lease = lease.unwrap();
        let seen = async {
            loop {
                let seen = client.inspect("orders").await.unwrap();
                if seen.since_micros.unwrap() >= released {
                    return seen;
                }
                Clock::system().sleep(Duration::from_millis(10)).await;
            }
        };
        let seen = super::stage::within(ttl, "noting the grant", seen).await;
        assert_eq!((seen.token, seen.holder), (Some(lease.token()), Some(lease.holder())));
        lease.release().await.unwrap();
    });
}
