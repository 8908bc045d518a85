//! A holder that is killed: how long until the next one has the lock.
//!
//! What is killed is `fencepost run` alone, whose guardian gives the lease back, or the whole tree of it as with a host that is gone,
//! whose lease runs out. The floor is none: peers wait out the ttl.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fencepost_core::Clock;
use fencepost_testkit::servers::{EtcdServer, PostgresServer, RedisServer, ZooKeeperServer};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Serialize;

use crate::measure::median;

/// The lease that is asked for.
const TTL: Duration = Duration::from_secs(2);

/// How often each is killed.
const TIMES: usize = 9;

/// What is killed.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Killed {
    /// The process that holds the lock, and neither its guardian nor its command.
    Run,
    /// All that belong to it.
    Tree,
}

/// How long it took on one backend.
#[derive(Debug, Serialize)]
pub(crate) struct Recovery {
    backend: &'static str,
    killed: Killed,
    ttl_s: f64,
    /// From the kill to the next holder's command: the least, the median and the greatest.
    milliseconds: [f64; 3],
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let killed = match self.killed {
            Killed::Run => "run is killed",
            Killed::Tree => "its whole tree is killed",
        };
        let [least, median, greatest] = self.milliseconds;
        write!(
            f,
            "{}: {killed}, ttl {} s: the next one has it after {median:.0} ms ({least:.0} to {greatest:.0})",
            self.backend, self.ttl_s
        )
    }
}

pub(crate) fn all() -> Vec<Recovery> {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let (etcd, zookeeper) = (EtcdServer::start(), ZooKeeperServer::start());
    let places = [
        ("file", format!("file:{}", directory.path().display())),
        ("redis", format!("{}?quarantine=off", redis.url())),
        ("postgres", postgres.url()),
        ("etcd", etcd.url()),
        ("zookeeper", zookeeper.url()),
    ];
    let program = program();
    let mut all = Vec::new();
    for (backend, url) in &places {
        for killed in [Killed::Run, Killed::Tree] {
            let mut times: Vec<f64> = (0..TIMES).map(|_| once(&program, url, killed)).collect();
            times.sort_by(f64::total_cmp);
            let milliseconds = [times[0], median(times.iter().copied()), times[TIMES - 1]];
            all.push(Recovery { backend, killed, ttl_s: TTL.as_secs_f64(), milliseconds });
        }
    }
    all
}

/// The command as it is installed, beside this program.
fn program() -> PathBuf {
    let here = std::env::current_exe().expect("a program knows where it is");
    let program = here.with_file_name("fencepost");
    assert!(program.exists(), "{} is missing: cargo build --release -p fencepost-cli", program.display());
    program
}

fn once(program: &Path, url: &str, killed: Killed) -> f64 {
    let clock = Clock::system();
    let (holder, _) = started(program, url, "echo held; exec sleep 1000");
    // Its next one waits, and says so with its first line.
    let waiting = command(program, url, "echo held").spawn().expect("it can be started");
    // About half of a lease is left.
    std::thread::park_timeout(TTL / 2);
    let pid = Pid::from_child(&holder);
    let at = clock.now();
    match killed {
        Killed::Run => kill_process(pid, Signal::KILL),
        Killed::Tree => kill_tree(pid),
    }
    .expect("it is there");
    let mut waiting = waiting;
    read_line(&mut waiting);
    let took = clock.now().since(at);
    finish(waiting);
    finish(holder);
    took.as_secs_f64() * 1e3
}

/// Kills what is in the group of `run`, and the command's group, which is the guardian's child's.
fn kill_tree(run: Pid) -> rustix::io::Result<()> {
    let mut tree = vec![run.as_raw_nonzero().get()];
    let mut next = 0;
    while next < tree.len() {
        let path = format!("/proc/{0}/task/{0}/children", tree[next]);
        let children = std::fs::read_to_string(path).unwrap_or_default();
        tree.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        next += 1;
    }
    // All of them stand still first, so that none can act on the death of another.
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in tree.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            // It may be gone already.
            let _ = kill_process(pid, signal);
        }
    }
    kill_process_group(run, Signal::KILL).or(Ok(()))
}

fn command(program: &Path, url: &str, script: &str) -> Command {
    let mut command = Command::new(program);
    let ttl = format!("{}ms", TTL.as_millis());
    command.args(["run", "--backend", url, "--ttl", &ttl, "recovery", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).process_group(0);
    command
}

fn started(program: &Path, url: &str, script: &str) -> (Child, String) {
    let mut child = command(program, url, script).spawn().expect("it can be started");
    let line = read_line(&mut child);
    (child, line)
}

fn read_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("it says that it is held");
    assert_eq!(line, "held\n", "the command did not run");
    line
}

fn finish(mut child: Child) {
    drop(child.wait());
}
