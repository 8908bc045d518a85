//! The logbook: read as it was acknowledged wherever it is asked for, written once whatever becomes of answers, and no place in a queue.

use std::time::Duration;

use fencepost_core::{Backend, Claim, ErrorKind, Status, Wait, block_on};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};
use fencepost_zookeeper::ZooKeeperBackend;

use crate::stage::{backend, eventually, locks, request, sleep};

const TTL: Duration = Duration::from_secs(10);

fn held(backend: &ZooKeeperBackend) -> Box<dyn Claim> {
    block_on(backend.acquire(&request("orders", TTL, Wait::No))).unwrap()
}

fn read(backend: &ZooKeeperBackend) -> Option<Vec<u8>> {
    block_on(backend.logbook(&"orders".parse().unwrap())).unwrap()
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn logbook_is_no_place_and_is_seen_by_no_onlooker() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let lock = || locks.lock("orders").unwrap().ttl(TTL).history(3);
    block_on(block_on(lock().acquire()).unwrap().release()).unwrap();
    assert_eq!(server.client().children("/fencepost/orders").unwrap(), ["logbook"]);
    assert!(block_on(locks.list("")).unwrap().is_empty());
    let next = block_on(lock().try_acquire()).unwrap().expect("nobody holds it");
    let seen = block_on(locks.inspect("orders")).unwrap();
    assert_eq!((seen.status, seen.waiters.len()), (Status::Held, 0));
    block_on(next.release()).unwrap();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn logbook_that_is_too_long_is_refused_and_the_longest_is_kept() {
    let server = ZooKeeperServer::start();
    let backend = backend(&server.url());
    let mut claim = held(&backend);
    let longest = vec![b'x'; 1_000_000];
    block_on(claim.write_logbook(&longest)).unwrap();
    let refused = block_on(claim.write_logbook(&[&longest[..], b"x"].concat())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("1000001 bytes"), "{refused}");
    assert_eq!(read(&backend), Some(longest), "what was refused has changed nothing");
    block_on(claim.release()).unwrap();
}

/// The server has written, and the writer does not know.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn write_whose_answer_was_lost_is_repeated_on_the_next_connection() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let through = backend(&format!("zookeeper://{}", proxy.address()));
    let mut claim = held(&through);
    let mut client = server.client();
    for content in [&b"made"[..], b"changed"] {
        std::thread::scope(|scope| {
            proxy.set(Mode::ReplyHole);
            let writer = scope.spawn(|| block_on(claim.write_logbook(content)));
            let node = |client: &mut fencepost_testkit::servers::ZooKeeperClient| {
                client.node("/fencepost/orders/logbook").unwrap().map(|node| node.data)
            };
            // The node is only made once the writer knows that there is none.
            if content == b"made" {
                eventually("it asks", || proxy.held_replies() > 0);
            } else {
                eventually("it is written", || node(&mut client).as_deref() == Some(content));
            }
            proxy.set(Mode::Cut);
            proxy.set(Mode::Pass);
            writer.join().unwrap().unwrap();
            assert_eq!(node(&mut client).as_deref(), Some(content));
        });
    }
    block_on(claim.release()).unwrap();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn member_that_lags_does_not_give_an_older_logbook() {
    let ensemble = ZooKeeperEnsemble::start();
    let [late, _] = ensemble.followers();
    let writing = backend(&ensemble.member(ensemble.leader()).url());
    let reading = backend(&ensemble.member(late).url());
    let mut claim = held(&writing);
    block_on(claim.write_logbook(b"older")).unwrap();
    assert_eq!(read(&reading).as_deref(), Some(&b"older"[..]));
    ensemble.lag(late, Duration::from_millis(300));
    sleep(Duration::from_millis(100));
    for content in [b"newer", b"after"] {
        block_on(claim.write_logbook(content)).unwrap();
        assert_eq!(read(&reading).as_deref(), Some(&content[..]));
    }
    block_on(claim.release()).unwrap();
}
