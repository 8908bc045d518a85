//! Redis Sentinels, which watch a primary and make one of its replicas the primary when it is gone.
//!
//! The same program as the server runs them, so nothing more need be installed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tempfile::TempDir;

use super::redis::RedisServer;
use super::resp::{RedisClient, Reply};
use super::{LONGEST_WAIT, holds_within, installed, log_to, wait_until};
use crate::port::Port;
use crate::process::Process;

/// A running Sentinel.
#[derive(Debug)]
pub struct RedisSentinel {
    // Dropped first: the directory is removed when nobody writes in it any more.
    process: Process,
    port: Port,
    directory: TempDir,
}

impl RedisSentinel {
    /// The name under which every Sentinel here watches its primary.
    pub const PRIMARY: &str = "primary";

    /// A Sentinel that decides alone. It believes a primary to be down after half a second.
    ///
    /// # Panics
    /// When it is not installed, or does not start.
    pub fn start(primary: &RedisServer) -> Self {
        let sentinel = Self::launch(primary, 1);
        sentinel.wait_until_ready();
        sentinel
    }

    /// Several Sentinels that know each other and decide by their majority.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn start_several(count: usize, primary: &RedisServer) -> Vec<Self> {
        let sentinels: Vec<Self> = (0..count).map(|_| Self::launch(primary, count / 2 + 1)).collect();
        sentinels.iter().for_each(Self::wait_until_ready);
        let others = (count - 1).to_string();
        for sentinel in &sentinels {
            wait_until("the Sentinels know each other", || sentinel.knows("num-other-sentinels", &others));
        }
        sentinels
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where it is reached.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Stops the process, and waits until it stands still.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Lets the stopped process go on.
    pub fn go_on(&self) {
        self.process.go_on();
    }

    /// The port of the server that is the primary by what this Sentinel knows.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn primary_port(&self) -> u16 {
        let address = self.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::PRIMARY]);
        address.array()[1].text().parse().expect("a Sentinel gives a host and a port")
    }

    /// Waits until the Sentinel knows so many replicas, of which it can then choose a new primary.
    ///
    /// # Panics
    /// When it does not come to know them.
    pub fn wait_for_replicas(&self, count: usize) {
        let count = count.to_string();
        wait_until("the Sentinel knows the replicas", || self.knows("num-slaves", &count));
    }

    /// Sends a command on a new connection and gives the reply.
    ///
    /// # Panics
    /// When no reply comes.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Reply {
        let client = RedisClient::connect(self.address(), LONGEST_REPLY);
        let reply = client.and_then(|mut client| client.command(arguments));
        reply.unwrap_or_else(|error| panic!("the Sentinel {} does not answer: {error}", self.pid()))
    }

    fn launch(primary: &RedisServer, quorum: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let port = Port::reserve();
        // It writes into this file what it learns.
        let settings = directory.path().join("sentinel.conf");
        fs::write(&settings, settings_of(port.number(), primary, quorum)).expect("a file can be made there");
        let mut command = Process::bound(&installed("redis-server"));
        let log = directory.path().join("log");
        command.stdout(log_to(&log)).stderr(log_to(&log)).arg(settings).arg("--sentinel");
        command.arg("--dir").arg(directory.path());
        Self { process: Process::start_bound(command), port, directory }
    }

    fn wait_until_ready(&self) {
        let is_ready = holds_within(LONGEST_WAIT, || {
            let client = RedisClient::connect(self.address(), LONGEST_REPLY);
            client.and_then(|mut client| client.command(&["PING"])).is_ok()
        });
        assert!(is_ready, "the Sentinel does not start; it said:\n{}", self.log());
        let process = self.command(&["INFO", "server"]);
        let line = format!("process_id:{}", self.pid());
        assert!(
            process.text().lines().any(|found| found == line),
            "the Sentinel that answers is the one started"
        );
    }

    /// Whether a field of what it knows about its primary has this value.
    fn knows(&self, field: &str, value: &str) -> bool {
        let known = self.command(&["SENTINEL", "MASTER", Self::PRIMARY]);
        known.array().chunks_exact(2).any(|pair| pair[0].text() == field && pair[1].text() == value)
    }
}

fn settings_of(port: u16, primary: &RedisServer, quorum: usize) -> String {
    let (name, host) = (RedisSentinel::PRIMARY, Ipv4Addr::LOCALHOST);
    let password = primary.password().map(|password| format!("sentinel auth-pass {name} {password}\n"));
    format!(
        "bind {host}\nport {port}\nsentinel monitor {name} {host} {} {quorum}\n\
         sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 2000\n{}",
        primary.port(),
        password.unwrap_or_default(),
    )
}

/// Longer than a command takes on a busy machine.
const LONGEST_REPLY: Duration = Duration::from_secs(10);
