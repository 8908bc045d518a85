//! etcd, one node that waits for no disk.

use fencepost_core::{Clock, Lock, Locks};
use fencepost_etcd::EtcdBackend;
use fencepost_etcd::bare::Bare;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::EtcdServer;
use futures_util::future::join_all;

use crate::measure::{Figure, in_turns, in_turns_beside, median_micros_of, on_one_core, per_second};
use crate::peers;
use crate::redis::{TASKS, all_at_once, hand_overs, once};

fn locks(server: &EtcdServer) -> Locks {
    let url = server.url().parse().expect("the server has a URL");
    Locks::new(EtcdBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
}

fn bare(server: &EtcdServer) -> Bare {
    let url = server.url().parse().expect("the server has a URL");
    block_on(Bare::connect(&url, Clock::system())).expect("the server answers")
}

/// One lock, taken and given back again and again, on one core.
pub(crate) fn pair() -> Figure {
    on_one_core(|| {
        let server = EtcdServer::start();
        let bare = bare(&server);
        let lock = locks(&server).lock("pair").expect("a name");
        let floor = || {
            block_on(median_micros_of(1_000, || async {
                bare.pair("/bare/pair").await.expect("the server answers");
            }))
        };
        let ours = || block_on(median_micros_of(1_000, || once(&lock)));
        let peers = peers::of(peers::ETCD, &[format!("http://{}", server.address())], peers::PAIR);
        in_turns_beside(peers, "etcd: acquire and release", "µs", floor, ours)
    })
}

/// What a lease of its own for each acquisition would cost, beside one that is used again.
pub(crate) fn leases() -> Figure {
    on_one_core(|| {
        let server = EtcdServer::start();
        let bare = bare(&server);
        let floor = || {
            block_on(median_micros_of(500, || async {
                bare.pair("/bare/pair").await.expect("the server answers");
            }))
        };
        let fresh = || {
            block_on(median_micros_of(500, || async {
                bare.pair_with_a_lease("/bare/pair").await.expect("the server answers");
            }))
        };
        in_turns("etcd: the bare pair with a fresh lease", "µs", floor, fresh)
    })
}

/// As many locks as tasks, all under way at once.
pub(crate) fn distinct() -> Figure {
    const TIMES: usize = 50;
    let server = EtcdServer::start();
    let bare = bare(&server);
    let locks = locks(&server);
    let all: Vec<Lock> = (0..TASKS).map(|lock| locks.lock(&format!("lock{lock}")).expect("a name")).collect();
    let clock = Clock::system();
    let floor = || {
        let began = clock.now();
        block_on(join_all((0..TASKS).map(|task| {
            let (bare, key) = (&bare, format!("/bare/{task}"));
            async move {
                for _ in 0..TIMES {
                    bare.pair(&key).await.expect("the server answers");
                }
            }
        })));
        per_second(TASKS * TIMES, clock.now().since(began))
    };
    let ours = || all_at_once(&all, TIMES, &clock);
    let peers = peers::of(peers::ETCD, &[format!("http://{}", server.address())], peers::DISTINCT);
    in_turns_beside(peers, "etcd: 64 tasks on distinct locks", "1/s", floor, ours)
}

/// One lock that goes round among all tasks.
pub(crate) fn hand_over() -> Figure {
    const TIMES: usize = 20;
    let server = EtcdServer::start();
    let bare = bare(&server);
    let locks = locks(&server);
    let clock = Clock::system();
    let floor = || {
        let began = clock.now();
        block_on(bare.pass_round(TASKS, TASKS * TIMES)).expect("the server answers");
        per_second(TASKS * TIMES, clock.now().since(began))
    };
    let peers = peers::of(peers::ETCD, &[format!("http://{}", server.address())], peers::ROUND);
    let ours = || hand_overs(&locks, &clock, TIMES);
    in_turns_beside(peers, "etcd: hand-over among 64 waiters", "1/s", floor, ours)
}
