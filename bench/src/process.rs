//! Whole processes: a command under a lock, beside the same command under `flock(1)` and alone.
//!
//! The command line that is measured is the release build of `fencepost` beside this program, or what `FENCEPOST` names.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use fencepost_testkit::servers::{EtcdServer, PostgresServer, RedisServer, ZooKeeperServer};

use crate::file::directory;
use crate::measure::{Figure, in_turns, in_turns_beside, median_micros};
use crate::peers::Peer;
use crate::redlock;

/// How many runs a round has.
const RUNS: usize = 50;

/// `fencepost run x -- true`, with its guardian, beside `flock FILE true`.
pub(crate) fn beside_flock() -> Figure {
    let directory = directory();
    let file = directory.path().join("bare");
    let floor = || median_micros(RUNS, || run(Command::new("flock").arg(&file).arg("true")));
    let url = format!("file:{}", directory.path().display());
    in_turns("file: run -- true, floor flock(1)", "µs", floor, || ours(&url))
}

/// The same beside `true` alone, as what a process costs.
pub(crate) fn beside_nothing() -> Figure {
    let directory = directory();
    beside_true("file", &format!("file:{}", directory.path().display()), Vec::new())
}

pub(crate) fn redis() -> Figure {
    let server = RedisServer::start();
    beside_true("redis", &format!("{}?quarantine=off", server.url()), Vec::new())
}

pub(crate) fn redlock() -> Figure {
    let servers = RedisServer::start_several(5);
    beside_true("redlock", &redlock::url(&servers), Vec::new())
}

pub(crate) fn postgres() -> Figure {
    let server = PostgresServer::start();
    beside_true("postgres", &server.url(), Vec::new())
}

pub(crate) fn zookeeper() -> Figure {
    let server = ZooKeeperServer::start();
    beside_true("zookeeper", &server.url(), Vec::new())
}

/// Beside etcd's own command line as well, which keeps a lock while a command runs.
pub(crate) fn etcd() -> Figure {
    let server = EtcdServer::start();
    let endpoint = format!("http://{}", server.address());
    let etcdctl = move || {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "lock", "peer", "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let works = command.status().is_ok_and(|status| status.success());
        works.then(|| median_micros(RUNS, || run(&mut command)))
    };
    beside_true("etcd", &server.url(), vec![Peer::new("etcdctl lock", etcdctl)])
}

/// `fencepost run x -- true` on a server that runs already, beside `true` alone.
fn beside_true(backend: &str, url: &str, peers: Vec<Peer>) -> Figure {
    let floor = || median_micros(RUNS, || run(&mut Command::new("true")));
    in_turns_beside(peers, format!("{backend}: run -- true, floor true"), "µs", floor, || ours(url))
}

fn ours(url: &str) -> f64 {
    let program = program();
    median_micros(RUNS, || {
        run(Command::new(&program).args(["run", "--backend", url, "x", "--", "true"]));
    })
}

fn program() -> PathBuf {
    std::env::var_os("FENCEPOST").map_or_else(
        || std::env::current_exe().expect("a program knows where it is").with_file_name("fencepost"),
        PathBuf::from,
    )
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status();
    let status = status.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(status.success(), "{command:?} ended with {status}");
}
