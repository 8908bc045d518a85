//! Keys that others have put where fencepost looks: they disturb nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost_core::Status;
use fencepost_testkit::servers::EtcdServer;
use futures_util::future::join;

use super::stage::{block_on, lock, locks, until_waiting, within};

const TTL: Duration = Duration::from_secs(10);

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn foreign_keys_in_the_queue_are_passed_over() {
    let server = EtcdServer::start();
    for key in ["orders/q/", "orders/q/zzz", "orders/zzz", "orders", "orders/q/x-1", "orders/q/x-00/1"] {
        server.control(&["put", &format!("/fencepost/{key}"), "x"]);
    }
    // It looks like ours, and no lease keeps it.
    server.control(&["put", "/fencepost/orders/q/x-0001020304050607", "{}"]);
    server.control(&["put", "/fencepost/orders/q/r-0001020304050607", "{}"]);
    let onlooker = locks(&server.url());
    block_on(async {
        assert_eq!(onlooker.inspect("orders").await.unwrap().status, Status::Free);
        let orders = || lock(&server.url(), "orders", TTL);
        let lease = orders().try_acquire().await.unwrap().expect("it is free");
        assert!(orders().try_acquire().await.unwrap().is_none(), "there is a second holder");
        let listed = onlooker.list("").await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        // One that comes in between: whoever waits must look past it.
        server.control(&["put", "/fencepost/orders/q/between", "x"]);
        let (second, is_released) = (orders(), AtomicBool::new(false));
        let waiter = async {
            let lease = second.acquire().await.unwrap();
            assert!(is_released.load(Ordering::Acquire), "there is a second holder");
            lease.release().await.unwrap();
        };
        let meanwhile = async {
            until_waiting(&onlooker, "orders", 1).await;
            is_released.store(true, Ordering::Release);
            lease.release().await.unwrap();
        };
        within(TTL, "the waiter's turn", join(waiter, meanwhile)).await;
        let readers = [orders().shared(), orders().shared()];
        for reader in &readers {
            assert!(reader.try_acquire().await.unwrap().is_some(), "it is free");
        }
        let [one, other] = [readers[0].acquire().await.unwrap(), readers[1].acquire().await.unwrap()];
        assert!(orders().try_acquire().await.unwrap().is_none(), "a writer came in beside readers");
        one.release().await.unwrap();
        other.release().await.unwrap();
        assert_eq!(onlooker.inspect("orders").await.unwrap().status, Status::Free);
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn prefixes_keep_locks_apart() {
    let server = EtcdServer::start();
    block_on(async {
        let teams = ["", "/team", "/team/a", "/teams"].map(|prefix| format!("{}{prefix}", server.url()));
        let mut leases = Vec::new();
        for url in &teams {
            leases.push(lock(url, "orders", TTL).try_acquire().await.unwrap().expect("it is another lock"));
        }
        for url in &teams {
            assert_eq!(locks(url).list("").await.unwrap().len(), 1, "{url}");
        }
        let all = server.keys("/team/a/fencepost/orders/");
        assert_eq!(all.len(), 1, "{all:?}");
        for lease in leases {
            lease.release().await.unwrap();
        }
    });
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn nothing_but_the_offset_is_left_behind() {
    let server = EtcdServer::start();
    block_on(async {
        for _ in 0..3 {
            lock(&server.url(), "orders", TTL).acquire().await.unwrap().release().await.unwrap();
        }
        fencepost_core::Clock::system().settled().await;
    });
    assert_eq!(server.keys("/"), ["/fencepost/.offset"]);
    assert_eq!(server.control(&["lease", "list"]).lines().count(), 1, "no lease is left");
}
