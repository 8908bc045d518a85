//! An etcd server: one node or a member of a cluster, stopped, killed, restarted with its data or from a snapshot, and asked.
//!
//! It keeps its ports and its directory over a restart, and nobody else gets them, so the server that answers is the one started.

mod asking;
mod cluster;
mod setup;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub use cluster::EtcdCluster;
pub use setup::EtcdSetup;

use super::certificates::Certificates;
use super::{LONGEST_WAIT, holds_within, installed, log_to};
use crate::port::Port;
use crate::process::Process;

/// A running etcd server, or one that was killed and can be restarted.
#[derive(Debug)]
pub struct EtcdServer {
    // Dropped first: the directory is removed when nobody writes in it any more.
    process: Option<Process>,
    name: String,
    ports: Ports,
    /// All members, as each is told of them: `a=http://127.0.0.1:1,b=http://127.0.0.1:2`.
    members: String,
    setup: EtcdSetup,
    certificates: Option<Certificates>,
    login: Option<(String, String)>,
    directory: TempDir,
}

/// Where a server is reached.
#[derive(Debug)]
struct Ports {
    clients: Port,
    peers: Port,
    /// Where it tells of itself without TLS and without a login.
    metrics: Port,
}

impl Ports {
    fn reserve() -> Self {
        Self { clients: Port::reserve(), peers: Port::reserve(), metrics: Port::reserve() }
    }
}

impl EtcdServer {
    /// One node that asks for no password. Its shortest lease is a second.
    ///
    /// # Panics
    /// As [`EtcdSetup::start`].
    pub fn start() -> Self {
        EtcdSetup::default().start()
    }

    /// The port of clients.
    pub fn port(&self) -> u16 {
        self.ports.clients.number()
    }

    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        self.ports.clients.address()
    }

    /// `etcd://127.0.0.1:PORT`, or `etcds://` with the authority of its certificate, without a login.
    pub fn url(&self) -> String {
        match &self.certificates {
            None => format!("etcd://{}", self.address()),
            Some(certificates) => {
                format!("etcds://{}?ca={}", self.address(), certificates.authority().display())
            }
        }
    }

    /// The certificates of a server with TLS.
    ///
    /// # Panics
    /// When the server has no TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("the server was started with TLS")
    }

    /// The number of the process.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Whether it has not been killed.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// What the server has said since it was first started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Stops the process, and waits until it stands still; its connections stay open.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn stop(&self) {
        self.process().stop();
    }

    /// Lets the stopped process go on.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn go_on(&self) {
        self.process().go_on();
    }

    /// Kills the process, as a crash does. Until it is restarted, connections to its ports are refused.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the process if it runs, and starts it on the same ports with its data.
    ///
    /// # Panics
    /// As [`EtcdSetup::start`].
    pub fn restart(&mut self) {
        self.try_restart().unwrap_or_else(|message| panic!("{message}"));
    }

    /// The same as [`restart`](Self::restart).
    ///
    /// # Errors
    /// What the server said last, when it does not start.
    pub fn try_restart(&mut self) -> Result<(), String> {
        self.kill();
        self.launch();
        self.becomes_ready()
    }

    /// Kills the process, puts the data of a snapshot in the place of its own, and starts it.
    ///
    /// # Panics
    /// When the snapshot cannot be restored, and as [`EtcdSetup::start`].
    pub fn restore(&mut self, snapshot: &Path) {
        self.kill();
        fs::remove_dir_all(self.data_folder()).expect("nobody writes in the directory of a killed server");
        let peers = self.peer_url();
        let mut command = Command::new(installed("etcdctl"));
        command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(snapshot);
        command.args(["--name", &self.name, "--initial-cluster", &self.members]);
        command.args(["--initial-advertise-peer-urls", &peers, "--data-dir"]).arg(self.data_folder());
        let output = command.output().expect("what is installed can be started");
        assert!(output.status.success(), "etcdctl: {}", String::from_utf8_lossy(&output.stderr));
        self.launch();
        self.wait_until_ready();
    }

    fn new(name: &str, ports: Ports, members: &str, setup: &EtcdSetup) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let certificates = setup.has_tls().then(|| Certificates::new(directory.path()));
        let (name, members, setup) = (name.to_owned(), members.to_owned(), setup.clone());
        Self { process: None, name, ports, members, setup, certificates, login: None, directory }
    }

    fn launch(&mut self) {
        let mut command = Process::bound(&installed("etcd"));
        command.stdout(log_to(&self.log_file())).stderr(log_to(&self.log_file()));
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let clients = format!("{scheme}://{}", self.address());
        let peers = self.peer_url();
        let metrics = format!("http://{}", self.ports.metrics.address());
        command.args(["--name", &self.name, "--data-dir"]).arg(self.data_folder());
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--listen-metrics-urls", &metrics, "--initial-cluster", &self.members]);
        command.args(["--initial-cluster-state", "new", "--logger", "zap", "--log-outputs", "stderr"]);
        self.setup.apply_to(&mut command, self.certificates.as_ref());
        self.process = Some(Process::start_bound(command));
    }

    fn wait_until_ready(&mut self) {
        self.becomes_ready().unwrap_or_else(|message| panic!("{message}"));
    }

    fn becomes_ready(&mut self) -> Result<(), String> {
        let is_ready = holds_within(LONGEST_WAIT, || self.has_ended() || self.is_healthy());
        if is_ready && !self.has_ended() {
            return Ok(());
        }
        Err(format!("etcd does not start; it said:\n{}", self.log()))
    }

    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(Process::has_ended)
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was not killed")
    }

    fn peer_url(&self) -> String {
        peer_url(&self.ports)
    }

    fn data_folder(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

fn peer_url(ports: &Ports) -> String {
    format!("http://{}", ports.peers.address())
}
