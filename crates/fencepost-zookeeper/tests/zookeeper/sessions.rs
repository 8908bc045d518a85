//! Sessions: one for all locks of a process, kept over connections, and closed when nobody needs it any more.

use std::time::Duration;

use fencepost_core::{Backend, Clock, ErrorKind, LossReason, Wait, block_on, until};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{ZooKeeperServer, ZooKeeperSetup};

use crate::stage::{backend, eventually, locks, now, request, sleep};

const TTL: Duration = Duration::from_secs(10);

fn sessions(server: &ZooKeeperServer) -> u64 {
    // The one that asks is no session.
    server.counted("zk_global_sessions")
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn many_locks_have_one_session_and_heartbeats_do_not_grow_with_them() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let leases: Vec<_> = (0..50)
        .map(|index| block_on(locks.lock(&format!("orders/{index}")).unwrap().ttl(TTL).acquire()).unwrap())
        .collect();
    assert_eq!(sessions(&server), 1);
    sleep(Duration::from_millis(500));
    let before = server.counted("zk_packets_received");
    sleep(Duration::from_secs(2));
    let packets = server.counted("zk_packets_received") - before;
    assert!(packets < 20, "{packets} requests in two seconds for fifty leases");
    assert!(leases.iter().all(|lease| lease.check().is_ok()));
    for lease in leases {
        block_on(lease.release()).unwrap();
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn session_is_closed_when_its_backend_is_gone_and_nobody_uses_it() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let lease = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    drop(locks);
    assert_eq!(sessions(&server), 1, "the lease needs it");
    block_on(lease.release()).unwrap();
    eventually("no session", || sessions(&server) == 0);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn session_that_nobody_uses_is_closed_after_a_while_and_another_one_follows() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    for _ in 0..2 {
        block_on(locks.lock("orders").unwrap().ttl(TTL / 10).acquire()).map(drop).unwrap();
        eventually("no session", || sessions(&server) == 0);
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn what_the_server_grants_counts() {
    let server = ZooKeeperSetup::default().settings(&["tickTime=1000", "minSessionTimeout=2000"]).start();
    let lease = block_on(locks(&server.url()).lock("orders").unwrap().ttl(TTL / 20).acquire()).unwrap();
    assert_eq!(lease.ttl(), Some(Duration::from_secs(2)));
    assert_eq!(lease.assured(), Some(Duration::from_secs(1)));
    block_on(lease.release()).unwrap();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lock_that_is_lost_alone_takes_no_other_along() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let lock = |name: &str| block_on(locks.lock(name).unwrap().ttl(TTL).acquire()).unwrap();
    let (kept, lost) = (lock("kept"), lock("lost"));
    // It is watched from then on.
    sleep(Duration::from_millis(300));
    let mut other = server.client();
    let [node] = &other.children("/fencepost/lost").unwrap()[..] else { panic!("one holds it") };
    other.delete(&format!("/fencepost/lost/{node}")).unwrap();
    let clock = Clock::system();
    let soon = Some(clock.now().after(Duration::from_secs(2)));
    let error = block_on(until(&clock, soon, lost.lost())).expect("it is told");
    assert_eq!(error.loss_reason(), Some(LossReason::Expired));
    kept.check().unwrap();
    block_on(kept.release()).unwrap();
    assert_eq!(block_on(lost.release()).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn node_that_vanishes_while_the_connection_is_broken_is_missed_on_the_next_one() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let locks = locks(&format!("zookeeper://{}", proxy.address()));
    let lease = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    sleep(Duration::from_millis(300));
    proxy.set(Mode::Cut);
    let mut other = server.client();
    other.delete_all("/fencepost/orders").unwrap();
    proxy.set(Mode::Pass);
    let clock = Clock::system();
    let soon = Some(clock.now().after(Duration::from_secs(3)));
    assert!(block_on(until(&clock, soon, lease.lost())).is_some(), "it is told");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lease_outlives_connections_and_restarts_of_the_server() {
    let mut server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let locks = locks(&format!("zookeeper://{}", proxy.address()));
    let lease = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    for _ in 0..5 {
        proxy.set(Mode::Cut);
        proxy.set(Mode::Pass);
        sleep(Duration::from_millis(200));
    }
    server.restart();
    sleep(TTL / 2);
    lease.check().expect("the session lives");
    block_on(lease.release()).unwrap();
}

/// Requests are held back, and the server ends the session; the client hears nothing of that.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_behind_a_black_hole_has_stopped_before_its_session_ends() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let ttl = Duration::from_secs(2);
    let through = locks(&format!("zookeeper://{}", proxy.address()));
    let lease = block_on(through.lock("orders").unwrap().ttl(ttl).acquire()).unwrap();
    sleep(ttl);
    proxy.set(Mode::Blackhole);
    let believed_to = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let mut to = now();
            while lease.check().is_ok() {
                to = now();
                sleep(Duration::from_millis(1));
            }
            to
        });
        let next = block_on(locks(&server.url()).lock("orders").unwrap().ttl(ttl).acquire()).unwrap();
        let from = now();
        drop(next);
        (holder.join().unwrap(), from)
    });
    assert!(believed_to.0 < believed_to.1);
    proxy.set(Mode::Pass);
    assert_eq!(block_on(lease.release()).unwrap_err().kind(), ErrorKind::Lost);
}

/// A waiter whose session has ended while it waited asks anew, and its old node is no place of its own.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_whose_session_has_ended_stands_in_line_anew() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let ttl = Duration::from_secs(1);
    let holder = block_on(locks(&server.url()).lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let waiting = backend(&format!("zookeeper://{}", proxy.address()));
    let asked = request("orders", ttl, Wait::Forever);
    let mut other = server.client();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(waiting.acquire(&asked)).map(|claim| claim.grant().clone()));
        eventually("the waiter stands in line", || other.children("/fencepost/orders").unwrap().len() == 2);
        proxy.set(Mode::Blackhole);
        eventually("its session has ended", || other.children("/fencepost/orders").unwrap().len() == 1);
        proxy.set(Mode::Pass);
        eventually("it stands in line again", || other.children("/fencepost/orders").unwrap().len() == 2);
        block_on(holder.release()).unwrap();
        let grant = waiter.join().unwrap().unwrap();
        assert_eq!(grant.holder, asked.holder);
    });
}
