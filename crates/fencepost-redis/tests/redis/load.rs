//! Ten thousand leases of one process: one connection, renewals that go together and do not come in bursts.

use std::time::Duration;

use fencepost_core::{Lease, Locks, default_grace};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::RedisServer;
use futures_util::future::join_all;

use crate::stage::{CARELESS, assert_nothing_is_left, at, calls, lock, now, pass, scripts};

const LEASES: usize = 10_000;

/// Ten thousand leases, and their ttl. On a busy machine the first of them must last longer: renewals wait on the connection behind what is
/// still being acquired.
fn hold_many_for_long(locks: &Locks) -> (Vec<Lease>, Duration) {
    for ttl in [10, 20, 60].map(Duration::from_secs) {
        let begun = now();
        let leases = hold_many(locks, ttl);
        if now().since(begun) < ttl / 3 {
            return (leases, ttl);
        }
        // Some may be lost.
        drop(block_on(fencepost_core::release_all(leases)));
    }
    panic!("on so slow a machine this says nothing")
}

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

/// The scripts that the server runs in each `bucket` of time; where this thread was woken late, in that part of what it has seen.
fn buckets(server: &RedisServer, bucket: Duration, count: usize) -> Vec<u64> {
    let (mut before, mut since) = (scripts(server), now());
    let mut one = || {
        pass(bucket);
        let (all, at) = (scripts(server), now());
        let took = at.since(since).max(bucket);
        let ran = u128::from(all - before) * bucket.as_nanos() / took.as_nanos();
        (before, since) = (all, at);
        u64::try_from(ran).expect("it is less than all")
    };
    (0..count).map(|_| one()).collect()
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
    let (leases, ttl) = hold_many_for_long(&locks);
    let period = ttl.saturating_sub(default_grace(ttl)) / 4;
    // What came due meanwhile has waited behind the acquisitions.
    pass(period);
    let (ticks, full) = used();
    let (begun, ran) = (now(), scripts(&server));
    let buckets = buckets(&server, period / 20, 60);
    let (later, _) = used();
    let (time, sum) = (now().since(begun), scripts(&server) - ran);
    assert!(time >= period * 3, "more than two renewals of each");
    for lease in &leases {
        lease.check().expect("none is lost");
    }
    println!("{sum} scripts in {time:?}, by twentieths of a period: {buckets:?}");
    println!("{} ms of processor, {} bytes a lease", (later - ticks) * 10, (full - memory) / LEASES as u64);
    assert!(sum < LEASES as u64 * 3 / 10, "three renewals of each in {sum} scripts");
    // A burst that the leases make comes back in each period; one that comes once is of a machine that stood still, or of this thread.
    let has_burst = |period: &[u64]| period.iter().max().unwrap() * 20 > period.iter().sum::<u64>() * 4;
    assert!(!buckets.chunks(20).all(has_burst), "bursts: {buckets:?}");
    let connected = server.command(&["CLIENT", "LIST"]);
    assert_eq!(connected.text().lines().filter(|line| line.contains("name=fencepost")).count(), 1);
    // A process whose own executor does nothing else keeps them too.
    let blocked = now();
    let mut number = 0_u64;
    while now().since(blocked) < period {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    assert_ne!(number, 0);
    assert!(leases.iter().all(|lease| lease.check().is_ok()));
    assert!(block_on(fencepost_core::release_all(leases)).is_empty());
    assert!(calls(&server, "evalsha") > 0);
    assert_nothing_is_left(&server);
}
