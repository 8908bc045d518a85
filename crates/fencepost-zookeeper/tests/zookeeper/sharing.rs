//! Locks that are shared: places under a mark of their own in the queue of all, sessions that carry many readers, and readers that fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Backend, Clock, ErrorKind, HolderId, LossReason, Mode as LockMode, Wait, block_on, until,
};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{ZooKeeperClient, ZooKeeperServer, ZooKeeperStay};

use crate::stage::{backend, eventually, locks, now, request, sleep};

const TTL: Duration = Duration::from_secs(10);

fn reader(wait: Wait) -> AcquireRequest {
    AcquireRequest { mode: LockMode::Shared, ..request("orders", TTL, wait) }
}

fn queue(client: &mut ZooKeeperClient) -> Vec<String> {
    client.children("/fencepost/orders").unwrap()
}

/// Nothing is heard of a process that was killed: its session runs out.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn killed_reader_frees_the_lock_for_a_writer_when_its_session_ends() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let alive = block_on(locks.lock("orders").unwrap().ttl(TTL).shared().acquire()).unwrap();
    let ttl = Duration::from_secs(2);
    let mut killed = ZooKeeperClient::connect(server.address(), ttl, TTL).unwrap();
    let stem = format!("/fencepost/orders/{}-r-", HolderId::from_bytes([7; 16]));
    killed.create(&stem, b"", ZooKeeperStay::SessionInOrder).unwrap();
    let since = now();
    block_on(alive.release()).unwrap();
    let writer = block_on(locks.lock("orders").unwrap().ttl(TTL).wait(TTL).acquire()).unwrap();
    assert!(now().since(since) >= ttl / 2, "it came in beside a reader whose session lives");
    block_on(writer.release()).unwrap();
    drop(killed);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn stream_of_readers_does_not_starve_a_writer() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let lock = locks.lock("orders").unwrap().ttl(TTL).shared();
                    let lease = block_on(lock.acquire()).unwrap();
                    sleep(Duration::from_millis(20));
                    reads.fetch_add(1, Ordering::Relaxed);
                    block_on(lease.release()).unwrap();
                }
            });
        }
        for _ in 0..5 {
            let before = reads.load(Ordering::Relaxed);
            eventually("they read", || reads.load(Ordering::Relaxed) > before + 8);
            let before = reads.load(Ordering::Relaxed);
            let outcome = block_on(locks.lock("orders").unwrap().ttl(TTL).wait(TTL).acquire());
            let passed = reads.load(Ordering::Relaxed) - before;
            is_over.store(outcome.is_err(), Ordering::Relaxed);
            block_on(outcome.expect("the writer is served").release()).unwrap();
            // Those who held it, and those who stood in front.
            assert!(passed <= 8, "{passed} readers passed a writer by");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn reader_behind_a_writer_that_waits_has_the_lock_after_it_and_not_before() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let first = block_on(locks.lock("orders").unwrap().ttl(TTL).shared().acquire()).unwrap();
    let (mut client, moment) = (server.client(), Duration::from_millis(300));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap());
        eventually("the writer waits", || queue(&mut client).len() == 2);
        let late = scope.spawn(|| {
            let lock = locks.lock("orders").unwrap().ttl(TTL).shared();
            block_on(block_on(lock.acquire()).unwrap().release()).unwrap();
        });
        eventually("the reader waits", || queue(&mut client).len() == 3);
        sleep(moment);
        assert!(!writer.is_finished(), "the writer came in beside a reader");
        assert!(!late.is_finished(), "the reader passed the writer by");
        block_on(first.release()).unwrap();
        let writer = writer.join().unwrap();
        sleep(moment);
        assert!(!late.is_finished(), "the reader came in beside the writer");
        block_on(writer.release()).unwrap();
        late.join().unwrap();
    });
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn attempts_of_readers_and_writers_that_are_dropped_at_any_instant_leave_no_node() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let through = locks(&format!("zookeeper://{}", proxy.address()));
    block_on(block_on(through.lock("orders").unwrap().ttl(TTL).acquire()).unwrap().release()).unwrap();
    // It keeps the session, with which all would vanish.
    let kept = block_on(through.lock("kept").unwrap().ttl(TTL).acquire()).unwrap();
    let (clock, is_over) = (Clock::system(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                sleep(clock.jitter(Duration::from_millis(80)));
                proxy.set(if clock.random().is_multiple_of(2) { Mode::ReplyHole } else { Mode::Pass });
                sleep(clock.jitter(Duration::from_millis(60)));
                proxy.set(Mode::Cut);
                proxy.set(Mode::Pass);
            }
        });
        for attempt in 0..150 {
            let lock = through.lock("orders").unwrap().ttl(TTL);
            let lock = if attempt % 3 == 0 { lock } else { lock.shared() };
            let most = Some(clock.now().after(clock.jitter(Duration::from_millis(40))));
            drop(block_on(until(&clock, most, lock.acquire())));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut client = server.client();
    eventually("no node is left", || queue(&mut client).is_empty());
    kept.check().unwrap();
    let lease = block_on(through.lock("orders").unwrap().ttl(TTL).wait(TTL).acquire()).unwrap();
    block_on(lease.release()).unwrap();
}

/// The server has made the node, and the client does not know. One that was not found again would keep every writer out.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn place_of_a_reader_whose_making_was_not_heard_of_is_found_again() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let through = backend(&format!("zookeeper://{}", proxy.address()));
    drop(block_on(through.acquire(&reader(Wait::No))).unwrap());
    let mut client = server.client();
    eventually("nothing is left", || queue(&mut client).is_empty());
    let asked = reader(Wait::Forever);
    std::thread::scope(|scope| {
        proxy.set(Mode::ReplyHole);
        let waiter = scope.spawn(|| block_on(through.acquire(&asked)));
        eventually("the node is made", || queue(&mut client).len() == 1);
        let made = queue(&mut client);
        proxy.set(Mode::Cut);
        proxy.set(Mode::Pass);
        let claim = waiter.join().unwrap().unwrap();
        assert!(made[0].starts_with(&format!("{}-r-", asked.holder)), "{made:?}");
        assert_eq!(queue(&mut client), made, "it has one place, the same one");
        block_on(claim.release()).unwrap();
    });
    assert!(queue(&mut client).is_empty(), "nothing is left");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn reader_that_is_lost_alone_takes_no_other_of_its_session_along() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let read = || block_on(locks.lock("orders").unwrap().ttl(TTL).shared().acquire()).unwrap();
    let (lost, kept) = (read(), [read(), read()]);
    assert_eq!(server.counted("zk_global_sessions"), 1, "one session carries all");
    sleep(Duration::from_millis(300));
    let mut client = server.client();
    let own = lost.holder().to_string();
    let node = queue(&mut client).into_iter().find(|node| node.starts_with(&own)).unwrap();
    client.delete(&format!("/fencepost/orders/{node}")).unwrap();
    let clock = Clock::system();
    let soon = Some(clock.now().after(Duration::from_secs(2)));
    let error = block_on(until(&clock, soon, lost.lost())).expect("it is told");
    assert_eq!(error.loss_reason(), Some(LossReason::Expired));
    assert_eq!(block_on(locks.inspect("orders")).unwrap().readers.len(), 2);
    for lease in kept {
        lease.check().unwrap();
        block_on(lease.release()).unwrap();
    }
}

/// A reader that comes late to its token draws it with the raised offset, and must not draw that of another one.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lift_of_a_shared_lock_leaves_its_readers_alone_and_counts_for_the_next_one() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let read = || block_on(locks.lock("orders").unwrap().ttl(TTL).shared().acquire()).unwrap();
    let (one, two) = (read(), read());
    let to = (two.token().get() + 1_000_000).try_into().unwrap();
    let mut client = server.client();
    let mut offset = || {
        let text = String::from_utf8(client.node("/fencepost/orders").unwrap().unwrap().data).unwrap();
        text.split("\"offset\":").nth(1).unwrap().trim_end_matches('}').parse::<u64>().unwrap()
    };
    let before = offset();
    block_on(locks.lift("orders", to)).unwrap();
    assert!(offset() > before + 30_000_000, "tokens of the two offsets may be the same");
    let seen = block_on(locks.inspect("orders")).unwrap();
    let tokens: Vec<_> = seen.readers.iter().map(|reader| reader.token).collect();
    assert_eq!(tokens, [one.token(), two.token()], "the lift changed what is held");
    let three = read();
    assert!(three.token() >= to, "{} is below {to}", three.token());
    for lease in [one, two, three] {
        block_on(lease.release()).unwrap();
    }
    let writer = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    assert!(writer.token() > to);
    block_on(writer.release()).unwrap();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn reader_writes_no_logbook() {
    let server = ZooKeeperServer::start();
    let mut claim = block_on(backend(&server.url()).acquire(&reader(Wait::No))).unwrap();
    let refused = block_on(claim.write_logbook(b"mine")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    block_on(claim.release()).unwrap();
}
