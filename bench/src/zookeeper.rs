//! One ZooKeeper.

use fencepost_core::{Clock, Lock, Locks};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{ZooKeeperClient, ZooKeeperServer, ZooKeeperStay};
use fencepost_zookeeper::ZooKeeperBackend;

use crate::measure::{Figure, in_turns_beside, median_micros, median_micros_of, on_one_core, per_second};
use crate::peers;
use crate::redis::{TASKS, all_at_once, hand_overs, once};

fn locks(server: &ZooKeeperServer) -> Locks {
    let url = server.url().parse().expect("the server has a URL");
    Locks::new(ZooKeeperBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
}

/// A session that has a node to make others in.
fn bare(server: &ZooKeeperServer) -> ZooKeeperClient {
    let mut client = server.client();
    client.create("/bare", b"", ZooKeeperStay::Persistent).expect("there is none yet");
    client
}

/// What a bare client makes the nodes of a queue from.
const STEM: &str = "/bare/00000000000000000000000000000000-x-";

/// One lock, taken and given back again and again, on one core.
pub(crate) fn pair() -> Figure {
    on_one_core(|| {
        let server = ZooKeeperServer::start();
        let mut bare = bare(&server);
        let lock = locks(&server).lock("pair").expect("a name");
        let floor = || {
            median_micros(500, || {
                let node = bare.create(STEM, b"", ZooKeeperStay::SessionInOrder).expect("it can be made");
                bare.delete(&node).expect("it is there");
            })
        };
        let ours = || block_on(median_micros_of(500, || once(&lock)));
        let peers = peers::of(peers::ZOOKEEPER, &[server.url()], peers::PAIR);
        in_turns_beside(peers, "zookeeper: acquire and release", "µs", floor, ours)
    })
}

/// As many locks as tasks, all under way at once.
pub(crate) fn distinct() -> Figure {
    const TIMES: usize = 50;
    let server = ZooKeeperServer::start();
    let mut bare = bare(&server);
    let locks = locks(&server);
    let all: Vec<Lock> = (0..TASKS).map(|lock| locks.lock(&format!("lock{lock}")).expect("a name")).collect();
    let nodes: Vec<String> = (0..TASKS).map(|node| format!("/bare/{node}")).collect();
    let clock = Clock::system();
    let floor = || {
        let began = clock.now();
        for _ in 0..TIMES {
            bare.make_and_delete(&nodes).expect("they can be made");
        }
        per_second(TASKS * TIMES, clock.now().since(began))
    };
    let ours = || all_at_once(&all, TIMES, &clock);
    let peers = peers::of(peers::ZOOKEEPER, &[server.url()], peers::DISTINCT);
    in_turns_beside(peers, "zookeeper: 64 tasks on distinct locks", "1/s", floor, ours)
}

/// One lock that goes round among all tasks.
pub(crate) fn hand_over() -> Figure {
    const TIMES: usize = 20;
    let server = ZooKeeperServer::start();
    let mut bare = bare(&server);
    let locks = locks(&server);
    let clock = Clock::system();
    let mut queue: std::collections::VecDeque<String> = (0..TASKS)
        .map(|_| bare.create(STEM, b"", ZooKeeperStay::SessionInOrder).expect("it can be made"))
        .collect();
    let floor = || {
        let began = clock.now();
        for _ in 0..TASKS * TIMES {
            let (first, last) = (queue.pop_front(), queue.back().cloned());
            let (first, last) = first.zip(last).expect("the queue has more than one");
            queue.push_back(bare.pass_on(&first, &last, STEM).expect("it can be passed on"));
        }
        per_second(TASKS * TIMES, clock.now().since(began))
    };
    let peers = peers::of(peers::ZOOKEEPER, &[server.url()], peers::ROUND);
    let ours = || hand_overs(&locks, &clock, TIMES);
    in_turns_beside(peers, "zookeeper: hand-over among 64 waiters", "1/s", floor, ours)
}
