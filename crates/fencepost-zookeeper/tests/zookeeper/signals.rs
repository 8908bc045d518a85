//! Signals: of every change of the locks that were asked for, until the connection ends, where the server has watches that stay.

use std::time::Duration;

use fencepost_core::{Backend, Clock, NamePrefix, block_on, until};
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::ZooKeeperServer;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use crate::between::Between;
use crate::stage::{backend, eventually, locks, sleep};

const TTL: Duration = Duration::from_secs(10);

/// The number of `addWatch`, and what a server says that does not know it.
const ADD_WATCH: i32 = 106;
const UNIMPLEMENTED: i32 = -6;

/// What comes of waiting for a signal.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Signal,
    Nothing,
    End,
}

fn next(signals: &mut BoxStream<'static, ()>, most: Duration) -> Next {
    let clock = Clock::system();
    match block_on(until(&clock, Some(clock.now().after(most)), signals.next())) {
        Some(Some(())) => Next::Signal,
        Some(None) => Next::End,
        None => Next::Nothing,
    }
}

/// Takes what has come, until nothing comes any more.
fn settle(signals: &mut BoxStream<'static, ()>) {
    while next(signals, Duration::from_millis(500)) == Next::Signal {}
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn every_change_of_a_lock_that_was_asked_for_is_signalled_and_none_of_another() {
    let server = ZooKeeperServer::start();
    let (watching, locks) = (backend(&server.url()), locks(&server.url()));
    // Before there is any lock, or the node that all are below of.
    let mut signals = block_on(watching.signals(&NamePrefix::new("ledger/"))).unwrap().unwrap();
    let soon = Duration::from_secs(5);
    let acquire = |name: &str| block_on(locks.lock(name).unwrap().ttl(TTL).acquire()).unwrap();
    let lease = acquire("ledger/1");
    assert_eq!(next(&mut signals, soon), Next::Signal, "it is held");
    settle(&mut signals);
    block_on(locks.revoke("ledger/1", lease.token(), "a test")).unwrap();
    assert_eq!(next(&mut signals, soon), Next::Signal, "it is free");
    settle(&mut signals);
    block_on(acquire("orders").release()).unwrap();
    assert_eq!(
        next(&mut signals, Duration::from_millis(500)),
        Next::Nothing,
        "another lock is none of its business"
    );
    for _ in 0..3 {
        let lease = acquire("ledger/2");
        assert_eq!(next(&mut signals, soon), Next::Signal, "it is held");
        settle(&mut signals);
        block_on(lease.release()).unwrap();
        assert_eq!(next(&mut signals, soon), Next::Signal, "it is free");
        settle(&mut signals);
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn stream_of_signals_ends_with_its_connection_and_leaves_no_session() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::start(server.address());
    let watching = backend(&format!("zookeeper://{}", proxy.address()));
    let asked = || block_on(watching.signals(&NamePrefix::new(""))).unwrap().unwrap();
    let sessions = || server.counted("zk_global_sessions");
    let signals = asked();
    assert_eq!(sessions(), 1);
    drop(signals);
    eventually("no session is left", || sessions() == 0);
    let mut signals = asked();
    proxy.set(Mode::Cut);
    assert_eq!(next(&mut signals, Duration::from_secs(5)), Next::End, "what is missed is not passed over");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn server_that_knows_no_such_watch_gives_no_signals_and_costs_no_lease() {
    let server = ZooKeeperServer::start();
    let old = Between::start(server.address(), |mut answer| {
        let is_asked = answer.operation == Some(ADD_WATCH);
        if is_asked {
            answer.refuse(UNIMPLEMENTED);
        }
        // It closes the connection then.
        !is_asked
    });
    let locks = locks(&old.url());
    let lease = block_on(locks.lock("orders").unwrap().ttl(TTL).acquire()).unwrap();
    let signals = block_on(locks.backend().signals(&NamePrefix::new(""))).unwrap();
    assert!(signals.is_none(), "it looks again from time to time instead");
    sleep(Duration::from_millis(500));
    lease.check().unwrap();
    block_on(lease.release()).unwrap();
    eventually("its session is closed", || server.counted("zk_global_sessions") <= 1);
}
