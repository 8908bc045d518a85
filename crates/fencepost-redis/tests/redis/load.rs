//! Ten thousand leases of one process: one connection, renewals that go together and do not come in bursts.

use std::time::Duration;

use fencepost_core::{Lease, Locks};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::RedisServer;
use futures_util::future::join_all;

use crate::stage::{CARELESS, assert_nothing_is_left, at, calls, lock, now, pass, scripts};

const LEASES: usize = 10_000;

const TTL: Duration = Duration::from_secs(10);

/// A renewal comes every quarter of what is left of the ttl without the grace.
const PERIOD: Duration = Duration::from_millis(1_875);

fn hold_many(locks: &Locks, ttl: Duration) -> Vec<Lease> {
    let acquiring = (0..LEASES).map(|number| async move {
        let lock = lock(locks, &format!("lease/{number}")).ttl(ttl);
        lock.acquire().await.expect("a free lock is given")
    });
    block_on(join_all(acquiring))
}

/// What this process has used: ticks of the processor, and bytes of memory.
fn used() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process can read its own state");
    let (_, fields) = stat.rsplit_once(") ").expect("the name stands in parentheses");
    let fields: Vec<u64> = fields.split(' ').map(|field| field.parse().unwrap_or_default()).collect();
    (fields[11] + fields[12], fields[21] * 4_096)
}

/// The scripts that the server runs in each tenth of a second.
fn buckets(server: &RedisServer, count: usize) -> Vec<u64> {
    let mut before = scripts(server);
    (0..count)
        .map(|_| {
            pass(Duration::from_millis(100));
            let all = scripts(server);
            all - std::mem::replace(&mut before, all)
        })
        .collect()
}

/// How long that takes says `cargo xtask bench redis-list`; here it is a handful of commands, none of which is one of each lock.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn ten_thousand_held_locks_are_listed_by_a_handful_of_commands() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let leases = hold_many(&locks, Duration::from_mins(1));
    let commands = || scripts(&server) + calls(&server, "scan") + calls(&server, "mget");
    let before = commands();
    let listed = block_on(locks.list("lease/")).expect("locks can be listed");
    let used = commands() - before;
    assert_eq!(listed.len(), LEASES);
    assert!(listed.iter().all(|seen| seen.holder.is_some() && seen.remaining.is_some()));
    // Seventy, and renewals that come between, many in one script.
    assert!(used <= 300, "{used} commands");
    drop(leases);
    assert_nothing_is_left(&server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn ten_thousand_leases_are_kept_on_one_connection_without_bursts() {
    let server = RedisServer::start();
    let locks = at(server.port(), CARELESS);
    let (_, memory) = used();
    let leases = hold_many(&locks, TTL);
    let (ticks, full) = used();
    let begun = now();
    let buckets = buckets(&server, 60);
    let (later, _) = used();
    let time = now().since(begun);
    assert!(time > PERIOD * 3, "more than two renewals of each");
    for lease in &leases {
        lease.check().expect("none is lost");
    }
    let sum: u64 = buckets.iter().sum();
    let most = buckets.iter().max().copied().unwrap();
    println!("{sum} scripts in {time:?}, {most} in a tenth of a second at most: {buckets:?}");
    println!("{} ms of processor, {} bytes a lease", (later - ticks) * 10, (full - memory) / LEASES as u64);
    assert!(sum < LEASES as u64 * 3 / 10, "three renewals of each in {sum} scripts");
    assert!(most * buckets.len() as u64 <= sum * 4, "a burst of {most}: {buckets:?}");
    let connected = server.command(&["CLIENT", "LIST"]);
    assert_eq!(connected.text().lines().filter(|line| line.contains("name=fencepost")).count(), 1);
    // A process whose own executor does nothing else keeps them too.
    let blocked = now();
    let mut number = 0_u64;
    while now().since(blocked) < PERIOD {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    assert_ne!(number, 0);
    assert!(leases.iter().all(|lease| lease.check().is_ok()));
    assert!(block_on(fencepost_core::release_all(leases)).is_empty());
    assert!(calls(&server, "evalsha") > 0);
    assert_nothing_is_left(&server);
}
