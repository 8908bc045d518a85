//! Many locks, looked at by one look.

use std::time::Duration;

use fencepost_core::{Status, block_on};
use fencepost_testkit::servers::ZooKeeperServer;
use futures_util::future::join_all;

use crate::stage::{locks, now};

const LOCKS: usize = 10_000;

fn timed(look: impl FnOnce()) -> Duration {
    let began = now();
    look();
    now().since(began)
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn ten_thousand_locks_that_one_process_holds_are_listed_in_less_time_than_one_by_one() {
    let server = ZooKeeperServer::start();
    let locks = locks(&server.url());
    let ttl = Duration::from_mins(1);
    let mut leases = Vec::with_capacity(LOCKS);
    for first in (0..LOCKS).step_by(250) {
        let acquired = (first..first + 250).map(|number| {
            let lock = locks.lock(&format!("orders/{number:05}")).unwrap().ttl(ttl);
            async move { lock.acquire().await.unwrap() }
        });
        leases.extend(block_on(join_all(acquired)));
    }
    // However busy the machine is: one after the other, each would take as long as that.
    let mut alone: Vec<_> =
        (0..51).map(|_| timed(|| drop(block_on(locks.inspect("orders/00000")).unwrap()))).collect();
    alone.sort();
    let times = [(); 3].map(|()| {
        timed(|| {
            let seen = block_on(locks.list("orders/")).unwrap();
            assert_eq!(seen.len(), LOCKS);
            assert!(seen.iter().all(|state| state.status == Status::Held && state.token.is_some()));
            assert!(seen.is_sorted_by_key(|state| &state.name));
        })
    });
    println!("{times:?}, and {:?} for one", alone[25]);
    assert!(
        times.iter().min() < Some(&(alone[25] * 10_000 * 2 / 3)),
        "{times:?}, and {:?} for one",
        alone[25]
    );
    assert!(leases.iter().all(|lease| lease.check().is_ok()), "the look has cost a lease");
}
