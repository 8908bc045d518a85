//! One Postgres.

mod crowd;
pub(crate) mod guard;
mod wire;

use fencepost_core::{Clock, Lock, Locks};
use fencepost_postgres::PostgresBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::PostgresServer;
use futures_util::future::join_all;

use crate::contest::{Contest, Outcome, passed_round};
use crate::measure::{Figure, in_turns_beside, median_micros, median_micros_of, on_one_core};
use crate::peers;
use crate::redis::{TASKS, once};
use crowd::Crowd;
use wire::Session;

const TRY: &str = "select pg_try_advisory_lock($1, $2)";
const WAIT: &str = "select pg_advisory_lock($1, $2)";

fn locks(server: &PostgresServer) -> Locks {
    let url = server.url().parse().expect("the server has a URL");
    Locks::new(PostgresBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
}

/// A server with room for the floor's sessions beside ours, and with the schema.
fn large_server() -> PostgresServer {
    let server = PostgresServer::start_with(&["max_connections=300"]);
    block_on(once(&locks(&server).lock("first").expect("a name")));
    server
}

/// One lock, taken and given back again and again, on one core.
pub(crate) fn pair() -> Figure {
    pair_on("postgres: acquire and release", 2_000, "fsync=off")
}

/// The same where each token waits for the disk; the floor writes nothing.
pub(crate) fn durable_pair() -> Figure {
    pair_on("postgres: acquire and release, fsync=on", 200, "fsync=on")
}

fn pair_on(name: &str, times: usize, setting: &str) -> Figure {
    on_one_core(|| {
        let server = PostgresServer::start_with(&[setting]);
        let mut session = Session::new(&server);
        let take = session.prepare("take", TRY, &[1, 1]);
        let give_back = session.prepare("give", "select pg_advisory_unlock($1, $2)", &[1, 1]);
        let lock = locks(&server).lock("pair").expect("a name");
        let floor = || {
            median_micros(times, || {
                session.run_and_check(&take);
                session.run_and_check(&give_back);
            })
        };
        let ours = || block_on(median_micros_of(times, || once(&lock)));
        let peers = peers::of(peers::POSTGRES, &[server.url()], peers::PAIR);
        in_turns_beside(peers, name, "µs", floor, ours)
    })
}

/// As many locks as tasks, all under way at once.
pub(crate) fn distinct() -> Figure {
    let server = large_server();
    let mut crowd = Crowd::new(&server, TASKS, TRY, false);
    let locks = locks(&server);
    let all: Vec<Lock> = (0..TASKS).map(|lock| locks.lock(&format!("lock{lock}")).expect("a name")).collect();
    in_turns_beside(
        peers::of(peers::POSTGRES, &[server.url()], peers::DISTINCT),
        "postgres: 64 tasks on distinct locks",
        "1/s",
        || crowd.contend().grants_a_second,
        || contend(&all).grants_a_second,
    )
}

/// One lock that goes round among clients, each with its own connection.
pub(crate) fn hand_over<const WAITERS: usize>() -> Figure {
    let server = large_server();
    let mut crowd = Crowd::new(&server, WAITERS, WAIT, true);
    let all: Vec<Lock> = (0..WAITERS).map(|_| locks(&server).lock("one").expect("a name")).collect();
    let name = format!("postgres: hand-over among {WAITERS} clients");
    let line = format!("round {WAITERS} {}", peers::ROUND_MS);
    let peers = peers::of(peers::POSTGRES, &[server.url()], &line);
    passed_round(peers, name, || crowd.contend(), || contend(&all))
}

/// One lock that goes round among the tasks of one client; the floor has a connection for each.
pub(crate) fn hand_over_in_a_process<const WAITERS: usize>() -> Figure {
    let server = large_server();
    let mut crowd = Crowd::new(&server, WAITERS, WAIT, true);
    let all = vec![locks(&server).lock("one").expect("a name"); WAITERS];
    let name = format!("postgres: hand-over among {WAITERS} tasks");
    passed_round(Vec::new(), name, || crowd.contend(), || contend(&all))
}

fn contend(locks: &[Lock]) -> Outcome {
    let contest = Contest::among(locks.len());
    block_on(join_all(locks.iter().enumerate().map(|(worker, lock)| {
        let contest = &contest;
        async move {
            while contest.goes_on() {
                contest.asks(worker);
                let lease = lock.acquire().await.expect("everybody gives it back");
                contest.is_granted(worker);
                lease.release().await.expect("it is held");
            }
        }
    })));
    contest.end()
}
