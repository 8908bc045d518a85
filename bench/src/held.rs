//! Many locks held by one process and renewed: what each costs in memory, connections and processor time, and how it grows.
//!
//! The holder is a process of its own, this program again, so that nothing else counts. The floor of memory is what the process has
//! with one lock.

use std::fmt;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost_core::{Backend, BackendUrl, Clock, ErrorKind, Lease, Locks};
use fencepost_etcd::EtcdBackend;
use fencepost_postgres::PostgresBackend;
use fencepost_redis::RedisBackend;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{EtcdServer, PostgresServer, RedisServer, ZooKeeperSetup};
use fencepost_zookeeper::ZooKeeperBackend;
use futures_util::StreamExt;
use futures_util::stream::iter;
use serde::{Deserialize, Serialize};

use crate::measure::median_micros_of;
use crate::redis::once;

/// How this program is told to hold locks.
pub(crate) const HOLDER: &str = "--hold";

/// How many are held, one number after the other.
const COUNTS: [usize; 3] = [1_000, 10_000, 100_000];

/// The same where each has a connection, of which a server admits no more.
const COUNTS_OF_SESSIONS: [usize; 3] = [10, 100, 1_000];

/// The lease that is asked for; each is renewed several times while the processor's time is counted.
const TTL: Duration = Duration::from_secs(30);

/// For how long the processor's time is counted.
const COUNTED: Duration = Duration::from_secs(20);

/// What a server in Java has for all those nodes.
const SERVER_MIB: u32 = 2_048;

/// How many acquisitions are under way at once.
const AT_ONCE: usize = 64;

/// What holding so many has come to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    backend: String,
    locks: usize,
    acquired_in_s: f64,
    /// The process's resident memory beyond what it has with one lock.
    kib_a_lock: f64,
    sockets: usize,
    /// Of one core, while nothing is done but renewing.
    cpu_percent: f64,
    /// A pair on a lock of its own, while the others are held.
    pair_us: f64,
    /// How many leases were lost meanwhile, since the server was silent for too long.
    lost: usize,
}

impl Held {
    pub(crate) fn backend(&self) -> &str {
        &self.backend
    }

    /// How many, and the memory of all of them in KiB.
    pub(crate) fn point(&self) -> (f64, f64) {
        (as_float(self.locks), self.kib_a_lock * as_float(self.locks))
    }

    /// It as a row of a table in HTML.
    pub(crate) fn row(&self) -> String {
        let Self { backend, locks, acquired_in_s, kib_a_lock, sockets, cpu_percent, pair_us, .. } = self;
        format!(
            "<tr><td>{backend}</td><td>{locks}</td><td>{kib_a_lock:.2}</td><td>{sockets}</td><td>{cpu_percent:.1}</td>\
             <td>{acquired_in_s:.1}</td><td>{pair_us:.0}</td></tr>\n"
        )
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, locks, acquired_in_s, kib_a_lock, sockets, cpu_percent, pair_us, lost } = self;
        if *lost > 0 {
            write!(f, "{lost} LOST: ")?;
        }
        write!(
            f,
            "{backend}: {locks} held: {kib_a_lock:.2} KiB each, {sockets} sockets, {cpu_percent:.1} % of a core, \
             acquired in {acquired_in_s:.1} s, a pair beside them {pair_us:.0} µs"
        )
    }
}

pub(crate) fn redis() -> Vec<Held> {
    let server = RedisServer::start();
    growth(&format!("{}?quarantine=off", server.url()), &COUNTS)
}

pub(crate) fn etcd() -> Vec<Held> {
    let server = EtcdServer::start();
    growth(&server.url(), &COUNTS)
}

pub(crate) fn zookeeper() -> Vec<Held> {
    let server = ZooKeeperSetup::default().memory_mib(SERVER_MIB).start();
    growth(&server.url(), &COUNTS)
}

pub(crate) fn postgres() -> Vec<Held> {
    let server = PostgresServer::start_with(&["max_connections=1100"]);
    growth(&server.url(), &COUNTS_OF_SESSIONS)
}

fn growth(url: &str, counts: &[usize]) -> Vec<Held> {
    counts.iter().filter_map(|count| in_a_process(url, *count)).collect()
}

/// `None` where so many could not be held.
fn in_a_process(url: &str, count: usize) -> Option<Held> {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut command = Command::new(program);
    command.args([HOLDER, url, &count.to_string()]).stderr(Stdio::inherit());
    let output = command.output().expect("this program can be started");
    let held = serde_json::from_slice(&output.stdout).ok();
    if held.is_none() {
        eprintln!("{count} locks could not be held: {}", output.status);
    }
    held
}

/// Is the holder: `URL COUNT`.
pub(crate) fn hold(arguments: &[String]) -> Held {
    let [url, count] = arguments else { panic!("usage: {HOLDER} URL COUNT") };
    let (url, count) = (url.parse().expect("a URL"), count.parse().expect("a number"));
    let locks = locks(&url);
    block_on(hold_all(&locks, url.kind(), count))
}

fn locks(url: &BackendUrl) -> Locks {
    fn of(backend: fencepost_core::Result<impl Backend>) -> Locks {
        Locks::new(backend.expect("the URL names a server"))
    }
    match url.kind() {
        "redis" => of(RedisBackend::from_url(url, Clock::system())),
        "postgres" => of(PostgresBackend::from_url(url, Clock::system())),
        "etcd" => of(EtcdBackend::from_url(url, Clock::system())),
        "zookeeper" => of(ZooKeeperBackend::from_url(url, Clock::system())),
        other => panic!("nothing is held in {other}"),
    }
}

async fn hold_all(locks: &Locks, backend: &str, count: usize) -> Held {
    let clock = Clock::system();
    let take = |number: usize| async move {
        let lock = locks.lock(&format!("held/{number}")).expect("a name").ttl(TTL);
        loop {
            match lock.acquire().await {
                Ok(lease) => return lease,
                // A server that is busy with all the others may be silent for longer than it is believed in.
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {}
                Err(error) => panic!("nobody else wants it: {error}"),
            }
        }
    };
    let first = take(0).await;
    let (memory, began) = (resident_kib(), clock.now());
    let leases: Vec<Lease> = iter(1..=count).map(take).buffer_unordered(AT_ONCE).collect().await;
    let acquired_in = clock.now().since(began);
    let grown = resident_kib() - memory;
    let pair = locks.lock("pair").expect("a name");
    let pair_us = median_micros_of(200, || once(&pair)).await;
    let before = processor_seconds();
    clock.sleep(COUNTED).await;
    let used = processor_seconds() - before;
    let lost = leases.iter().filter(|lease| lease.check().is_err()).count();
    let held = Held {
        backend: backend.to_owned(),
        locks: count,
        acquired_in_s: acquired_in.as_secs_f64(),
        kib_a_lock: grown / as_float(count),
        sockets: sockets(),
        cpu_percent: 100.0 * used / COUNTED.as_secs_f64(),
        pair_us,
        lost,
    };
    // Given back, so that the next number finds nothing of this one.
    iter(leases.into_iter().chain([first])).map(Lease::release).buffer_unordered(AT_ONCE).count().await;
    held
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells of a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// User and system time, which the kernel counts in hundredths of a second.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells of a process");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

fn sockets() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux tells of a process");
    let targets = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}
