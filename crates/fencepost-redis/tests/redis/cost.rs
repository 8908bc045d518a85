//! What the profile says that a lock costs, counted on a network that is slow.

use std::time::Duration;

use fencepost_redis::PROFILE;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::RedisServer;

use crate::stage::{CARELESS, at, calls, lock, now, proxy_to, release, take};

/// One way; so much longer than the work that trips can be told apart.
const DELAY: Duration = Duration::from_millis(50);

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn acquisition_and_release_take_as_many_round_trips_as_the_profile_says() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let lock = lock(&at(proxy.port(), CARELESS), "a").ttl(Duration::from_secs(30));
    // The connection is there, and the scripts are known.
    release(take(&lock));
    proxy.set(Mode::Delay(DELAY));
    let trips = |begun| now().since(begun).as_millis() / (2 * DELAY.as_millis());
    let once = || {
        let begun = now();
        let lease = take(&lock);
        let acquired = trips(begun);
        let begun = now();
        release(lease);
        (acquired, trips(begun))
    };
    // The fewest: a busy machine makes some of them slower.
    let counts: Vec<_> = (0..3).map(|_| once()).collect();
    let acquired = counts.iter().map(|(acquired, _)| *acquired).min();
    let released = counts.iter().map(|(_, released)| *released).min();
    let cost = PROFILE.cost.unwrap();
    let (acquire, release) = (cost.acquire_trips.into(), cost.release_trips.into());
    assert_eq!((acquired, released), (Some(acquire), Some(release)));
    assert_eq!(proxy.connections(), 1);
}

/// What a server has done, command by command; each costs it about as much.
fn done(server: &RedisServer) -> [u64; 7] {
    ["evalsha", "time", "mget", "set", "get", "exists", "del"].map(|command| calls(server, command))
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lock_that_nobody_waits_for_costs_the_server_six_commands() {
    let server = RedisServer::start();
    let lock = lock(&at(server.port(), CARELESS), "a");
    // The connection is there, and the scripts are known.
    release(take(&lock));
    let before = done(&server);
    release(take(&lock));
    let after = done(&server);
    let counts: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(counts, [2, 1, 2, 2, 0, 0, 1]);
}
