//! The queue of a lock: its order, what is passed over in it, and that no attempt leaves a node behind.

use std::time::Duration;

use fencepost_core::{Backend, Clock, ErrorKind, HolderId, Wait, block_on, until};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{ZooKeeperClient, ZooKeeperEnsemble, ZooKeeperServer, ZooKeeperStay};

use crate::stage::{backend, eventually, locks, request, sleep};

const TTL: Duration = Duration::from_secs(10);

fn prepared(server: &ZooKeeperServer) -> ZooKeeperClient {
    let locks = locks(&server.url());
    block_on(block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap().release()).unwrap();
    server.client()
}

fn queue(client: &mut ZooKeeperClient) -> Vec<String> {
    client.children("/fencepost/orders").unwrap()
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn nodes_that_are_no_places_are_passed_over() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    for node in ["zzz", "lock-0000000000", "_c_1-lock-0000000001"] {
        client.create(&format!("/fencepost/orders/{node}"), b"", ZooKeeperStay::Persistent).unwrap();
    }
    let lease = block_on(locks(&server.url()).lock("orders").unwrap().ttl(TTL).try_acquire()).unwrap();
    block_on(lease.expect("nobody holds it").release()).unwrap();
}

/// A name that comes first as a text and last as a number.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn order_is_that_of_the_numbers_whatever_the_names_are() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    let stem = format!("/fencepost/orders/{}-x-", HolderId::from_bytes([0xff; 16]));
    let first = client.create(&stem, b"", ZooKeeperStay::SessionInOrder).unwrap();
    let mut asked = request("orders", TTL, Wait::Forever);
    asked.holder = HolderId::from_bytes([0; 16]);
    let waiting = backend(&server.url());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(waiting.acquire(&asked)).map(drop));
        eventually("it waits", || queue(&mut client).len() == 2);
        sleep(Duration::from_millis(200));
        assert!(!waiter.is_finished(), "it has passed by whoever came first");
        client.delete(&first).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// The server has made the node, and the client does not know.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn place_whose_making_was_not_heard_of_is_found_again_and_has_no_twin() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    let proxy = Proxy::start(server.address());
    let through = backend(&format!("zookeeper://{}", proxy.address()));
    // So that there is a session.
    drop(block_on(through.acquire(&request("other", TTL, Wait::No))).unwrap());
    let asked = request("orders", TTL, Wait::Forever);
    std::thread::scope(|scope| {
        proxy.set(Mode::ReplyHole);
        let waiter = scope.spawn(|| block_on(through.acquire(&asked)).map(|claim| claim.grant().clone()));
        eventually("the node is made", || queue(&mut client).len() == 1);
        let made = queue(&mut client);
        proxy.set(Mode::Cut);
        proxy.set(Mode::Pass);
        let grant = waiter.join().unwrap().unwrap();
        assert!(made[0].starts_with(&grant.holder.to_string()));
    });
    eventually("nothing is left", || queue(&mut client).is_empty());
}

/// The next member that the client comes to has not heard of the node yet.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn place_is_found_again_on_a_member_that_lags() {
    let ensemble = ZooKeeperEnsemble::start();
    let [near, late] = ensemble.followers();
    let (way, late_way) =
        (Proxy::start(ensemble.member(near).address()), Proxy::start(ensemble.member(late).address()));
    let url = format!("zookeeper://{},{}", way.address(), late_way.address());
    // So that the first member is the near one.
    late_way.set(Mode::Cut);
    let through = backend(&url);
    drop(block_on(through.acquire(&request("orders", TTL, Wait::No))).unwrap());
    late_way.set(Mode::Pass);
    let mut client = ensemble.member(ensemble.leader()).client();
    eventually("nothing is left", || queue(&mut client).is_empty());
    sleep(Duration::from_millis(200));
    ensemble.lag(late, Duration::from_millis(400));
    let asked = request("orders", TTL, Wait::Until(Clock::system().now().after(TTL)));
    std::thread::scope(|scope| {
        way.set(Mode::ReplyHole);
        let waiter = scope.spawn(|| block_on(through.acquire(&asked)).map(drop));
        eventually("the node is made", || queue(&mut client).len() == 1);
        way.set(Mode::Cut);
        waiter.join().unwrap().expect("it has one place, and that is the first");
    });
}

/// A node with the same attempt's name that is of another session is nobody's place, whoever made it.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn node_of_another_session_is_not_taken_for_the_own_place() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    let proxy = Proxy::start(server.address());
    let through = backend(&format!("zookeeper://{}", proxy.address()));
    drop(block_on(through.acquire(&request("other", TTL, Wait::No))).unwrap());
    let asked = request("orders", TTL, Wait::Forever);
    let stem = format!("/fencepost/orders/{}-x-", asked.holder);
    let foreign = client.create(&stem, b"", ZooKeeperStay::SessionInOrder).unwrap();
    std::thread::scope(|scope| {
        // The request is lost on its way: no node is made.
        proxy.set(Mode::RequestHole);
        let waiter = scope.spawn(|| block_on(through.acquire(&asked)).map(drop));
        eventually("it asks", || proxy.held_requests() > 0);
        proxy.set(Mode::Cut);
        proxy.set(Mode::Pass);
        eventually("it has a place of its own", || queue(&mut client).len() == 2);
        sleep(Duration::from_millis(300));
        assert!(!waiter.is_finished(), "it has taken the node of another session for its own");
        client.delete(&foreign).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

/// Two nodes of one attempt in one session: the later one would wait for the earlier one for ever.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn attempts_that_are_cut_off_again_and_again_leave_no_node() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    let proxy = Proxy::start(server.address());
    let through = locks(&format!("zookeeper://{}", proxy.address()));
    let clock = Clock::system();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                sleep(clock.jitter(Duration::from_millis(60)));
                proxy.set(if clock.random().is_multiple_of(2) { Mode::ReplyHole } else { Mode::Pass });
                sleep(clock.jitter(Duration::from_millis(60)));
                proxy.set(Mode::Cut);
                proxy.set(Mode::Pass);
            }
        });
        for _ in 0..150 {
            let lock = through.lock("orders").unwrap().ttl(TTL);
            let most = Some(clock.now().after(clock.jitter(Duration::from_millis(40))));
            drop(block_on(until(&clock, most, lock.acquire())));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    eventually("no node is left", || queue(&mut client).is_empty());
    let lease = block_on(through.lock("orders").unwrap().ttl(TTL).wait(TTL).acquire()).unwrap();
    block_on(lease.release()).unwrap();
}

/// What it watched has gone while it was not connected.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_whose_connection_broke_looks_again() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    let proxy = Proxy::start(server.address());
    let holder = block_on(locks(&server.url()).lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let waiting = backend(&format!("zookeeper://{}", proxy.address()));
    let asked = request("orders", TTL * 3, Wait::Until(Clock::system().now().after(TTL)));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(waiting.acquire(&asked)).map(drop));
        eventually("it waits", || queue(&mut client).len() == 2);
        // The holder has written down its grant, and the waiter has looked at that.
        sleep(Duration::from_millis(500));
        proxy.set(Mode::Cut);
        block_on(holder.release()).unwrap();
        proxy.set(Mode::Pass);
        waiter.join().unwrap().expect("nobody else wants it");
    });
}

/// Its session lives on with another lock.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn dropped_waiter_leaves_no_node_in_a_session_that_lives_on() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    let locks = locks(&server.url());
    let kept = block_on(locks.lock("kept").unwrap().ttl(TTL).acquire()).unwrap();
    let holder = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let clock = Clock::system();
    for _ in 0..5 {
        let most = Some(clock.now().after(Duration::from_millis(100)));
        let waiter = locks.lock("orders").unwrap().ttl(TTL);
        assert!(block_on(until(&clock, most, waiter.acquire())).is_none());
        eventually("its node is gone", || queue(&mut client).len() == 1);
    }
    holder.check().unwrap();
    kept.check().unwrap();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn release_wakes_one_waiter() {
    let server = ZooKeeperServer::start();
    let holder = block_on(locks(&server.url()).lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let mut client = server.client();
    let waiting = backend(&server.url());
    let clock = Clock::system();
    let (sender, held) = std::sync::mpsc::channel();
    for _ in 0..50 {
        let (waiting, sender) = (waiting.clone(), sender.clone());
        clock.serve(async move {
            let asked = request("orders", TTL, Wait::Forever);
            let claim = waiting.acquire(&asked).await.unwrap();
            sender.send(claim).unwrap();
        });
    }
    eventually("all wait", || queue(&mut client).len() == 51);
    sleep(Duration::from_millis(500));
    let before = (server.counted("zk_packets_sent"), server.counted("zk_packets_received"));
    block_on(holder.release()).unwrap();
    let claim = held.recv_timeout(Duration::from_secs(5)).unwrap();
    sleep(Duration::from_millis(50));
    let after = (server.counted("zk_packets_sent"), server.counted("zk_packets_received"));
    let (sent, received) = (after.0 - before.0, after.1 - before.1);
    println!("{sent} packets sent, {received} received");
    // The release, one event for whoever comes next, its two looks, and some heartbeats; fifty waiters would be a hundred more.
    assert!(sent < 25 && received < 25, "{sent} packets sent, {received} received");
    drop(claim);
    for _ in 0..49 {
        drop(held.recv_timeout(Duration::from_secs(5)).unwrap());
    }
    eventually("nothing is left", || queue(&mut client).is_empty());
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn session_that_is_gone_is_no_reason_for_a_second_holder() {
    let server = ZooKeeperServer::start();
    let mut client = prepared(&server);
    let ttl = Duration::from_secs(1);
    let (one, other) = (backend(&server.url()), backend(&server.url()));
    let clock = Clock::system();
    for round in 0..6 {
        let holder = block_on(locks(&server.url()).lock("orders").unwrap().ttl(ttl).acquire()).unwrap();
        let waiters = [&one, &other].map(|backend| {
            let backend = backend.clone();
            let (sender, outcome) = std::sync::mpsc::channel();
            clock.serve(async move {
                let asked = request("orders", ttl, Wait::Forever);
                drop(sender.send(backend.acquire(&asked).await));
            });
            outcome
        });
        eventually("both wait", || queue(&mut client).len() == 3);
        // All sessions end in the same second.
        server.stop();
        sleep(ttl + clock.jitter(ttl / 2) + Duration::from_millis(round * 50));
        server.go_on();
        drop(block_on(holder.release()));
        for waiter in waiters {
            let claim = waiter.recv_timeout(Duration::from_secs(20)).unwrap();
            if let Ok(claim) = claim {
                let nodes = queue(&mut client);
                let own = claim.grant().holder.to_string();
                let live: Vec<_> = nodes.iter().filter(|node| node.starts_with(&own)).collect();
                assert!(live.len() <= 1, "twins: {nodes:?}");
                block_on(claim.release())
                    .map_or_else(|error| assert_eq!(error.kind(), ErrorKind::Lost), drop);
            }
        }
        client = server.client();
    }
    eventually("nothing is left", || queue(&mut client).is_empty());
}
