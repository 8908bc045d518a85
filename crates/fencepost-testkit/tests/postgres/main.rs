//! Postgres servers of the testkit: each start, fault and restart does what it says, and nothing outlives its test.

mod ending;
mod faults;
mod pooler;
mod server;
mod standbys;

use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use fencepost_testkit::servers::{PostgresClient, PostgresServer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

fn pidfd(process: u32) -> OwnedFd {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("it is the number of a process");
    pidfd_open(process, PidfdFlags::empty()).expect("the process exists")
}

fn ends(process: &OwnedFd) -> bool {
    ends_within(LONG, process)
}

fn ends_within(limit: Duration, process: &OwnedFd) -> bool {
    let limit = limit.try_into().expect("it is short");
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).expect("a process can be waited for") == 1
}

/// The processes of a server that runs, its first one included.
fn processes(server: &PostgresServer) -> Vec<u32> {
    let parent = server.pid().to_string();
    let output = Command::new("ps")
        .args(["-o", "pid=", "--ppid", &parent, "--pid", &parent])
        .output()
        .expect("ps can be started");
    let text = String::from_utf8(output.stdout).expect("numbers are text");
    text.split_whitespace().map(|number| number.parse().expect("ps gives numbers")).collect()
}

fn descriptors(processes: &[u32]) -> Vec<OwnedFd> {
    processes.iter().map(|process| pidfd(*process)).collect()
}

/// The process that serves a client.
fn session_of(client: &mut PostgresClient) -> u32 {
    let session = client.query("SELECT pg_backend_pid()").expect("the session is open");
    session.parse().expect("it is the number of a process")
}

fn with_table() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute("CREATE TABLE kept (a int)");
    server
}

const LONG: Duration = Duration::from_secs(20);
