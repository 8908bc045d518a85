//! The lock libraries in Rust, each behind the same four words, driven line by line by the benchmark.
//!
//! `peers PEER URL…` connects, and then answers each line of its input with a number, and where it makes sense with a fairness:
//! `pair TIMES` (µs), `distinct TASKS TIMES` (pairs a second), `round TASKS MILLISECONDS` (changes of the holder a second).
//! All tasks share one thread, as fencepost's do.

use std::cell::RefCell;
use std::io::{BufRead, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;
use distributed_lock_redis::RedisLockProvider;
use futures_util::future::join_all;

const TTL: Duration = Duration::from_secs(30);

enum Peer {
    Rslock(rslock::LockManager),
    DistributedRedis(RedisLockProvider),
    DistributedPostgres(PostgresLockProvider),
    Etcd(etcd_client::Client, i64),
    ZooKeeper(zookeeper_client::Client),
}

impl Peer {
    async fn connect(name: &str, urls: &[String]) -> Self {
        match name {
            "rslock" => {
                let mut locks = rslock::LockManager::new(urls.to_vec());
                locks.set_retry(1_000_000, Duration::from_millis(5));
                Self::Rslock(locks)
            }
            "distributed-lock" if urls[0].starts_with("postgres") => {
                Self::DistributedPostgres(PostgresLockProvider::new(&urls[0]).await.expect("the server answers"))
            }
            "distributed-lock" => {
                let provider = RedisLockProvider::builder().urls(urls).expiry(TTL).build().await;
                Self::DistributedRedis(provider.expect("the servers answer"))
            }
            "etcd-client" => {
                let mut client = etcd_client::Client::connect(urls, None).await.expect("the server answers");
                let lease = client.lease_grant(60, None).await.expect("the server answers").id();
                Self::Etcd(client, lease)
            }
            "zookeeper-client" => {
                Self::ZooKeeper(zookeeper_client::Client::connect(urls[0].trim_start_matches("zookeeper://")).await.expect("the server answers"))
            }
            other => panic!("there is no peer {other}"),
        }
    }

    /// Takes the lock, does `work` under it, and gives it back.
    async fn hold(&self, name: &str, work: impl FnOnce()) {
        match self {
            Self::Rslock(locks) => {
                let lock = locks.acquire_no_guard(name, TTL).await.expect("the server answers");
                work();
                locks.unlock(&lock).await;
            }
            Self::DistributedRedis(provider) => {
                let lock = provider.create_lock(name).acquire(None).await.expect("the server answers");
                work();
                lock.release().await.expect("the server answers");
            }
            Self::DistributedPostgres(provider) => {
                let lock = provider.create_lock(name).acquire(None).await.expect("the server answers");
                work();
                lock.release().await.expect("the server answers");
            }
            Self::Etcd(client, _) => {
                // The lock of a lease is re-entrant, so each acquisition has a lease of its own.
                let mut client = client.clone();
                let lease = client.lease_grant(60, None).await.expect("the server answers").id();
                let options = etcd_client::LockOptions::new().with_lease(lease);
                let lock = client.lock(name, Some(options)).await.expect("the server answers");
                work();
                client.unlock(lock.key()).await.expect("the server answers");
            }
            Self::ZooKeeper(client) => {
                let prefix = format!("/{name}/n-");
                let prefix = zookeeper_client::LockPrefix::new_shared(&prefix).expect("a path");
                let parents =
                    zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
                let options = zookeeper_client::LockOptions::new(zookeeper_client::Acls::anyone_all())
                    .with_ancestor_options(parents)
                    .expect("they are persistent");
                let lock = client.lock(prefix, b"", options).await.expect("the server answers");
                work();
                client.delete(lock.lock_path(), None).await.expect("the server answers");
                // It would be deleted again in the background.
                std::mem::forget(lock);
            }
        }
    }

    /// The same with a lease that is there already, where that is another thing: what is done with nobody else about.
    async fn hold_alone(&self, name: &str) {
        let Self::Etcd(client, lease) = self else { return self.hold(name, || {}).await };
        let mut client = client.clone();
        let options = etcd_client::LockOptions::new().with_lease(*lease);
        let lock = client.lock(name, Some(options)).await.expect("the server answers");
        client.unlock(lock.key()).await.expect("the server answers");
    }
}

async fn pair(peer: &Peer, times: usize) -> String {
    let mut micros = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        peer.hold_alone("pair").await;
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    format!("{{\"value\": {}}}", micros[times / 2])
}

async fn distinct(peer: &Peer, tasks: usize, times: usize) -> String {
    let began = Instant::now();
    join_all((0..tasks).map(|task| async move {
        let name = format!("lock{task}");
        for _ in 0..times {
            peer.hold_alone(&name).await;
        }
    }))
    .await;
    format!("{{\"value\": {}}}", (tasks * times) as f64 / began.elapsed().as_secs_f64())
}

#[derive(Default)]
struct Round {
    last: Option<usize>,
    changes: usize,
    grants: Vec<usize>,
    longest_wait: Duration,
}

async fn round(peer: &Peer, tasks: usize, lasts: Duration) -> String {
    let round = Rc::new(RefCell::new(Round { grants: vec![0; tasks], ..Round::default() }));
    let began = Instant::now();
    join_all((0..tasks).map(|task| {
        let round = Rc::clone(&round);
        async move {
            while began.elapsed() < lasts {
                let asked = Instant::now();
                peer.hold("round", || {
                    let round = &mut *round.borrow_mut();
                    // What is granted after the end was waited for by those who are late.
                    if began.elapsed() < lasts {
                        round.changes += usize::from(round.last.replace(task) != Some(task));
                        round.grants[task] += 1;
                    }
                    round.longest_wait = round.longest_wait.max(asked.elapsed());
                })
                .await;
            }
        }
    }))
    .await;
    let Round { changes, grants, longest_wait, .. } = &*round.borrow();
    let sum: f64 = grants.iter().map(|count| *count as f64).sum();
    let squares: f64 = grants.iter().map(|count| (*count as f64).powi(2)).sum();
    let jain = sum * sum / (tasks as f64 * squares.max(1.0));
    let value = *changes as f64 / lasts.as_secs_f64();
    let wait = longest_wait.as_secs_f64() * 1e3;
    format!("{{\"value\": {value}, \"jain\": {jain}, \"longest_wait_ms\": {wait}}}")
}

/// The next line of the input, from a thread of its own: a library keeps its session alive while others have their turn.
async fn next_line() -> Option<String> {
    let read = || std::io::stdin().lock().lines().next();
    tokio::task::spawn_blocking(read).await.expect("it does not panic").map(|line| line.expect("text"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let peer = Peer::connect(&arguments[0], &arguments[1..]).await;
    println!("ready");
    while let Some(line) = next_line().await {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<usize>().expect("a number");
        let answer = match words[0] {
            "pair" => pair(&peer, number(1)).await,
            "distinct" => distinct(&peer, number(1), number(2)).await,
            "round" => round(&peer, number(1), Duration::from_millis(number(2) as u64)).await,
            other => panic!("there is no measure {other}"),
        };
        println!("{answer}");
        std::io::stdout().flush().expect("somebody reads");
    }
}
