//! What waiting costs the server: signs of life, and no storm after an outage.

use std::time::Duration;

use fencepost_core::Locks;
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, wait_until};
use futures_util::future::join_all;

use crate::stage::{
    CARELESS, assert_nothing_is_left, at, clock, lock, now, pass, proxy_to, release, scripts, take,
    wait_for_waiters,
};

const LONG: Duration = Duration::from_secs(50);

/// Waiters of several processes, each of which waits often; they give the lock back at once when their turn has come.
fn crowd(port: u16, processes: usize, each: usize) -> std::thread::JoinHandle<()> {
    let processes: Vec<Locks> = (0..processes).map(|_| at(port, CARELESS)).collect();
    std::thread::spawn(move || {
        let all = processes.iter().flat_map(|locks| (0..each).map(move |_| locks));
        let served = all.map(|locks| async {
            let lease = lock(locks, "a").ttl(LONG).acquire().await.expect("every waiter is served");
            lease.release().await.expect("a lease that is held can be given back");
        });
        block_on(join_all(served));
    })
}

/// The scripts that a server runs in some time.
fn scripts_in(server: &RedisServer, time: Duration) -> u64 {
    let before = scripts(server);
    pass(time);
    scripts(server) - before
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiters_of_one_process_share_their_signs_of_life() {
    let server = RedisServer::start();
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let crowd = crowd(server.port(), 4, 50);
    wait_for_waiters(&server, "a", 200);
    let count = scripts_in(&server, Duration::from_secs(3));
    // Each process gives a sign every second or two.
    assert!((4..=24).contains(&count), "{count} scripts in 3 s");
    release(held);
    crowd.join().unwrap();
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiter_alone_in_its_process_sends_less_than_a_command_a_second() {
    let server = RedisServer::start();
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let crowd = crowd(server.port(), 40, 1);
    wait_for_waiters(&server, "a", 40);
    let count = scripts_in(&server, Duration::from_secs(3));
    println!("{:.2} commands a second and waiter", f64::from(u32::try_from(count).unwrap()) / 120.0);
    assert!((40..=120).contains(&count), "{count} scripts of 40 processes in 3 s");
    release(held);
    crowd.join().unwrap();
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn outage_is_followed_by_no_storm() {
    let server = RedisServer::start();
    let proxy = proxy_to(&server);
    let held = take(&lock(&at(server.port(), CARELESS), "a").ttl(LONG));
    let crowd = crowd(proxy.port(), 20, 10);
    wait_for_waiters(&server, "a", 200);
    proxy.set(Mode::Blackhole);
    // By then each process has given its connection up, and tries another one in vain.
    pass(Duration::from_millis(4_500));
    let before = scripts(&server);
    let begun = now();
    proxy.set(Mode::Cut);
    proxy.set(Mode::Pass);
    wait_until("all processes listen again", || {
        server.command(&["PUBSUB", "CHANNELS", "fencepost:p:*"]).array().len() == 21
    });
    let end = clock().now().after(Duration::from_secs(1));
    block_on(clock().sleep_until(end));
    let (count, time) = (scripts(&server) - before, now().since(begun));
    println!("{count} scripts of 200 waiters in {time:?} after the outage");
    // Each process learns what the server is, and each waiter asks once whether it still waits; then come the signs of life.
    assert!(count <= 20 + 200 + 20 * (time.as_secs() + 1), "{count} scripts in {time:?}");
    release(held);
    crowd.join().unwrap();
    assert_nothing_is_left(&server);
}
