//! One Redis.

use std::time::Duration;

use fencepost_core::{Clock, Lock, Locks};
use fencepost_redis::RedisBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::RedisServer;
use futures_util::future::join_all;

use crate::floor::Bare;
use crate::measure::{
    Figure, in_turns, in_turns_beside, median_micros, median_micros_of, micros, on_one_core, per_second,
};
use crate::peers;

fn locks(server: &RedisServer) -> Locks {
    let url = format!("{}?quarantine=off", server.url()).parse().expect("the server has a URL");
    Locks::new(RedisBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
}

/// Acquires and releases.
pub(crate) async fn once(lock: &Lock) {
    let lease = lock.acquire().await.expect("nobody else wants it");
    lease.release().await.expect("it is held");
}

/// One lock, taken and given back again and again, on one core.
pub(crate) fn pair() -> Figure {
    on_one_core(|| {
        let server = RedisServer::start();
        let mut bare = Bare::new(&server);
        let lock = locks(&server).lock("pair").expect("a name");
        let floor = || median_micros(2_000, || bare.pair());
        let ours = || block_on(median_micros_of(2_000, || once(&lock)));
        let peers = peers::of(peers::REDIS, &[server.url()], peers::PAIR);
        in_turns_beside(peers, "redis: acquire and release", "µs", floor, ours)
    })
}

/// Looks at ten thousand locks that are held; the floor finds their records and reads them, and no more.
pub(crate) fn list() -> Figure {
    const LOCKS: usize = 10_000;
    let server = RedisServer::start();
    let mut bare = Bare::new(&server);
    let locks = locks(&server);
    let acquire = async |number| {
        let lock = locks.lock(&format!("lock{number}")).expect("a name").ttl(Duration::from_mins(1));
        lock.acquire().await.expect("nobody else wants it")
    };
    let held = block_on(join_all((0..LOCKS).map(acquire)));
    let floor = || micros(|| bare.all_records()) / 1e3;
    let ours =
        || micros(|| assert_eq!(block_on(locks.list("")).expect("the server answers").len(), LOCKS)) / 1e3;
    let figure = in_turns("redis: list of 10,000 held locks", "ms", floor, ours);
    block_on(join_all(held.into_iter().map(|lease| async { lease.release().await.expect("it is held") })));
    figure
}

/// How many tasks work at once.
pub(crate) const TASKS: usize = 64;

/// How often a second these locks are acquired and released, each so many times and all under way at once.
pub(crate) fn all_at_once(locks: &[Lock], times: usize, clock: &Clock) -> f64 {
    let began = clock.now();
    block_on(join_all(locks.iter().map(|lock| async move {
        for _ in 0..times {
            once(lock).await;
        }
    })));
    per_second(locks.len() * times, clock.now().since(began))
}

/// As many locks as tasks, all under way at once.
pub(crate) fn distinct() -> Figure {
    const TIMES: usize = 200;
    let server = RedisServer::start();
    let mut bare = Bare::new(&server);
    let locks = locks(&server);
    let all: Vec<Lock> = (0..TASKS).map(|lock| locks.lock(&format!("lock{lock}")).expect("a name")).collect();
    let clock = Clock::system();
    let floor = || {
        let began = clock.now();
        bare.pipelined(TASKS, TIMES);
        per_second(TASKS * TIMES, clock.now().since(began))
    };
    let ours = || all_at_once(&all, TIMES, &clock);
    let peers = peers::of(peers::REDIS, &[server.url()], peers::DISTINCT);
    in_turns_beside(peers, "redis: 64 tasks on distinct locks", "1/s", floor, ours)
}

/// One lock that goes round among all tasks.
pub(crate) fn hand_over() -> Figure {
    const TIMES: usize = 200;
    let server = RedisServer::start();
    let mut bare = Bare::new(&server);
    let locks = locks(&server);
    let clock = Clock::system();
    let floor = || {
        let began = clock.now();
        bare.passed_on(TASKS, TASKS * TIMES);
        per_second(TASKS * TIMES, clock.now().since(began))
    };
    let peers = peers::of(peers::REDIS, &[server.url()], peers::ROUND);
    let ours = || hand_overs(&locks, &clock, TIMES);
    in_turns_beside(peers, "redis: hand-over among 64 waiters", "1/s", floor, ours)
}

/// How many owner changes a second there are when each of all tasks takes the lock so often.
pub(crate) fn hand_overs(locks: &Locks, clock: &Clock, times: usize) -> f64 {
    let began = clock.now();
    let lock = locks.lock("one").expect("a name");
    block_on(join_all((0..TASKS).map(|_| async {
        for _ in 0..times {
            once(&lock).await;
        }
    })));
    per_second(TASKS * times, clock.now().since(began))
}
