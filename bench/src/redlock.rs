//! Redlock, on five servers.

use fencepost_core::{Clock, Locks};
use fencepost_redis::redlock::RedlockBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::RedisServer;

use crate::floor::{Bare, quorum_pair};
use crate::measure::{Figure, in_turns_beside, median_micros, median_micros_of, per_second};
use crate::peers;
use crate::redis::{TASKS, hand_overs, once};

fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

/// All of them as one backend.
pub(crate) fn url(servers: &[RedisServer]) -> String {
    let nodes: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("redlock://{}?max_ttl=60s&quarantine=off", nodes.join(","))
}

fn locks(servers: &[RedisServer]) -> Locks {
    let url = url(servers).parse().expect("the servers have a URL");
    Locks::new(RedlockBackend::from_url(&url, Clock::system()).expect("the URL names servers"))
}

/// One lock, taken with its token and given back; the floor has one phase and no token.
pub(crate) fn pair() -> Figure {
    let servers = RedisServer::start_several(5);
    let mut bare: Vec<Bare> = servers.iter().map(Bare::new).collect();
    let lock = locks(&servers).lock("pair").expect("a name");
    let floor = || median_micros(500, || quorum_pair(&mut bare));
    let ours = || block_on(median_micros_of(500, || once(&lock)));
    let peers = peers::of(peers::REDLOCK, &urls(&servers), peers::PAIR);
    in_turns_beside(peers, "redlock: acquire and release, 5 nodes", "µs", floor, ours)
}

/// One lock that goes round among all tasks; the floor takes it again and again alone, as if being told cost nothing.
pub(crate) fn hand_over() -> Figure {
    const TIMES: usize = 20;
    let servers = RedisServer::start_several(5);
    let mut bare: Vec<Bare> = servers.iter().map(Bare::new).collect();
    let locks = locks(&servers);
    let clock = Clock::system();
    let floor = || {
        let began = clock.now();
        (0..TASKS * TIMES).for_each(|_| quorum_pair(&mut bare));
        per_second(TASKS * TIMES, clock.now().since(began))
    };
    let peers = peers::of(peers::REDLOCK, &urls(&servers), peers::ROUND);
    let ours = || hand_overs(&locks, &clock, TIMES);
    in_turns_beside(peers, "redlock: hand-over among 64 waiters", "1/s", floor, ours)
}
