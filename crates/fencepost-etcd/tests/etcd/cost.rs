//! What the profile says that a lock costs, counted on a network that is slow.

use std::time::Duration;

use fencepost_core::{Backend, Clock, Wait};
use fencepost_etcd::PROFILE;
use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::EtcdServer;

use super::stage::{backend, block_on, lock, request};

/// One way; so much longer than the work that trips can be told apart.
const DELAY: Duration = Duration::from_millis(50);

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn acquisition_and_release_take_as_many_round_trips_as_the_profile_says() {
    let server = EtcdServer::start();
    let (clock, proxy) = (Clock::system(), Proxy::start(server.address()));
    let trips = |begun| clock.now().since(begun).as_millis() / (2 * DELAY.as_millis());
    // What a client pays that has a connection and no lease, and then again with that lease.
    let client = |is_shared: bool| {
        proxy.set(Mode::Pass);
        let lock = lock(&format!("etcd://{}", proxy.address()), "a", Duration::from_secs(30));
        let lock = if is_shared { lock.shared() } else { lock };
        let take = || block_on(lock.acquire()).unwrap();
        block_on(take().release()).unwrap();
        proxy.set(Mode::Delay(DELAY));
        let once = || {
            let begun = clock.now();
            let lease = take();
            let acquired = trips(begun);
            let begun = clock.now();
            block_on(lease.release()).unwrap();
            [acquired, trips(begun)]
        };
        let counts = [once(), once()].concat();
        assert_eq!(proxy.connections(), 1);
        counts
    };
    // The fewest: a busy machine makes some of them slower.
    for is_shared in [false, true] {
        let (one, other) = (client(is_shared), client(is_shared));
        let fewest: Vec<u128> = one.iter().zip(&other).map(|(one, other)| *one.min(other)).collect();
        let cost = PROFILE.cost.unwrap();
        let (acquire, release) = (cost.acquire_trips.into(), cost.release_trips.into());
        assert_eq!(fewest, [acquire, release, acquire - 1, release], "{one:?} {other:?} {is_shared}");
    }
}

/// Each lock that is held has one, for as long as it is held.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiting_for_the_loss_of_a_lease_takes_little_memory() {
    let server = EtcdServer::start();
    let request = request("a", Duration::from_secs(10), Wait::No);
    let claim = block_on(backend(&server.url()).acquire(&request)).unwrap();
    let waiting = size_of_val(claim.lost().as_ref().get_ref());
    assert!(waiting <= 256, "{waiting} bytes");
}
