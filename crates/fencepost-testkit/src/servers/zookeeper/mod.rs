//! A `ZooKeeper` server: alone, or one member of an ensemble; started, stopped, killed, restarted, and asked.
//!
//! It keeps its port and its directory over a restart. Invariant: the server that answers is the one that was started.

mod client;
mod ensemble;
mod java;

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, iter};

use tempfile::TempDir;

pub use client::{ZooKeeperClient, ZooKeeperNode, ZooKeeperStay};
pub use ensemble::ZooKeeperEnsemble;
pub use java::missing_archive;

use super::certificates::Certificates;
use super::{LONGEST_WAIT, holds_within, log_to};
use crate::port::Port;
use crate::process::Process;

/// How a `ZooKeeper` server is to be started.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperSetup {
    settings: Vec<String>,
    has_tls: bool,
    memory_mib: Option<u32>,
}

impl ZooKeeperSetup {
    /// Gives it so much memory for its nodes: more than the little that a test needs.
    pub fn memory_mib(mut self, most: u32) -> Self {
        self.memory_mib = Some(most);
        self
    }

    /// Adds lines of the file with the settings: `["tickTime=1000"]`. Those that come later count.
    pub fn settings(mut self, settings: &[&str]) -> Self {
        self.settings.extend(settings.iter().map(ToString::to_string));
        self
    }

    /// Serves TLS as well, on a port of its own.
    pub fn tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// Starts the server and waits until it serves.
    ///
    /// # Panics
    /// When it is not installed, or ends instead of serving; the message then holds what it said.
    pub fn start(self) -> ZooKeeperServer {
        self.try_start().unwrap_or_else(|message| panic!("{message}"))
    }

    /// The same, for a program that has users: a server that does not start is no panic.
    ///
    /// # Errors
    /// What the server said last.
    ///
    /// # Panics
    /// When it is not installed.
    pub fn try_start(self) -> Result<ZooKeeperServer, String> {
        let mut server = self.prepare(Port::reserve(), 0);
        server.launch();
        server.becomes_ready().map(|()| server)
    }

    /// Three servers that elect a leader.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn start_ensemble(self) -> ZooKeeperEnsemble {
        ZooKeeperEnsemble::from_setup(&self)
    }

    /// A server that is not started yet; `id` is its number in an ensemble.
    fn prepare(self, port: Port, id: usize) -> ZooKeeperServer {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let tls = self.has_tls.then(|| (Port::reserve(), Certificates::new(directory.path())));
        let Self { settings, memory_mib, .. } = self;
        ZooKeeperServer { process: None, port, tls, settings, memory_mib, id, directory }
    }
}

/// A running `ZooKeeper` server, or one that was killed and can be restarted.
#[derive(Debug)]
pub struct ZooKeeperServer {
    // Dropped first: the directory is removed when nobody writes in it any more.
    process: Option<Process>,
    port: Port,
    tls: Option<(Port, Certificates)>,
    settings: Vec<String>,
    memory_mib: Option<u32>,
    id: usize,
    directory: TempDir,
}

impl ZooKeeperServer {
    /// A server with a tick of a fifth of a second, which gives sessions from two ticks to a minute.
    ///
    /// # Panics
    /// As [`ZooKeeperSetup::start`].
    pub fn start() -> Self {
        ZooKeeperSetup::default().start()
    }

    /// The port without TLS.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `zookeeper://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// `zookeeper://127.0.0.1:PORT?tls=on&ca=FILE`.
    ///
    /// # Panics
    /// When the server has no TLS.
    pub fn tls_url(&self) -> String {
        let (port, certificates) = self.tls();
        format!("zookeeper://{}?tls=on&ca={}", port.address(), certificates.authority().display())
    }

    /// The port with TLS.
    ///
    /// # Panics
    /// When the server has none.
    pub fn tls_port(&self) -> u16 {
        self.tls().0.number()
    }

    /// The number of the process.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn pid(&self) -> u32 {
        self.process().id()
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

    /// Kills the process, as a crash does. Until it is restarted, connections to its port are refused.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the process if it runs, and starts it on the same port with its data. Waits until it serves.
    ///
    /// # Panics
    /// As [`ZooKeeperSetup::start`].
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

    /// A new session that asks for half a minute.
    ///
    /// # Panics
    /// When the server does not welcome it.
    pub fn client(&self) -> ZooKeeperClient {
        let client = ZooKeeperClient::connect(self.address(), Duration::from_secs(30), LONGEST_WAIT);
        client.unwrap_or_else(|error| panic!("the server {} does not answer: {error}", self.pid()))
    }

    /// The answer to a word of four letters: `srvr`, `mntr`, `cons`.
    ///
    /// # Errors
    /// Those of the connection, and when the server does not answer in a moment.
    pub fn ask(&self, word: &str) -> io::Result<String> {
        ask(self.address(), word)
    }

    /// A number that the server counts, by the name in its answer to `mntr`.
    ///
    /// # Panics
    /// When it does not answer, or counts nothing of that name.
    pub fn counted(&self, name: &str) -> u64 {
        let answer = self.ask("mntr").expect("a running server answers");
        let fields = answer.lines().filter_map(|line| line.split_once('\t'));
        let mut found = fields.filter(|(field, _)| *field == name).map(|(_, value)| value);
        let value = found.next_back().unwrap_or_else(|| panic!("there is no {name} in {answer}"));
        value.split('.').next().and_then(|number| number.parse().ok()).expect("it is a number")
    }

    /// Whether it leads its ensemble.
    pub fn leads(&self) -> bool {
        self.process.is_some() && self.ask("srvr").is_ok_and(|answer| answer.contains("Mode: leader"))
    }

    fn launch(&mut self) {
        let data = self.directory.path().join("data");
        fs::create_dir_all(&data).expect("a folder can be made in a temporary directory");
        fs::write(data.join("myid"), self.id.to_string()).expect("a file can be made there");
        let mut lines = self.settings.clone();
        if let Some((port, certificates)) = &self.tls {
            lines.extend(tls_settings(port, certificates, self.directory.path()));
        }
        let file = self.directory.path().join("zoo.cfg");
        fs::write(&file, settings(&data, &self.port, &lines)).expect("a file can be made there");
        let mut command = java::command(&file, self.memory_mib);
        command.stdout(log_to(&self.log_file())).stderr(log_to(&self.log_file()));
        self.process = Some(Process::start_bound(command));
    }

    fn wait_until_ready(&mut self) {
        self.becomes_ready().unwrap_or_else(|message| panic!("{message}"));
    }

    fn becomes_ready(&mut self) -> Result<(), String> {
        let is_ready = holds_within(LONGEST_WAIT, || self.has_ended() || self.serves());
        if !is_ready || self.has_ended() {
            return Err(format!("ZooKeeper does not start; it said:\n{}", self.log()));
        }
        let answer = self.ask("conf").map_err(|error| format!("ZooKeeper does not answer: {error}"))?;
        let data = format!("dataDir={}", self.directory.path().join("data").display());
        assert!(answer.contains(&data), "the server that answers is the one that was started: {answer}");
        Ok(())
    }

    fn serves(&self) -> bool {
        self.ask("srvr").is_ok_and(|answer| answer.contains("Mode:"))
    }

    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(Process::has_ended)
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was not killed")
    }

    fn tls(&self) -> &(Port, Certificates) {
        self.tls.as_ref().expect("the server was started with TLS")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

/// The file with the settings. Of lines for the same setting the last one counts.
fn settings(data: &Path, port: &Port, lines: &[String]) -> String {
    let mut text = String::new();
    for line in DEFAULTS.iter().copied().chain(lines.iter().map(String::as_str)) {
        text.push_str(line);
        text.push('\n');
    }
    let address = port.address();
    let _ = writeln!(text, "dataDir={}", data.display());
    let _ = writeln!(text, "clientPort={}\nclientPortAddress={}", address.port(), address.ip());
    text
}

/// Netty serves TLS, and wants the key and the certificate in one file.
fn tls_settings(port: &Port, certificates: &Certificates, folder: &Path) -> Vec<String> {
    let store = folder.join("store.pem");
    let parts = [certificates.key(), certificates.certificate()];
    let texts = parts.iter().map(|part| fs::read_to_string(part).expect("a certificate can be read"));
    fs::write(&store, texts.collect::<String>()).expect("a file can be made there");
    let line = |name: &str, value: String| format!("{name}={value}");
    iter::once("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned())
        .chain([
            line("secureClientPort", port.number().to_string()),
            line("secureClientPortAddress", port.address().ip().to_string()),
            line("ssl.keyStore.location", store.display().to_string()),
            line("ssl.keyStore.type", "PEM".to_owned()),
            line("ssl.trustStore.location", certificates.authority().display().to_string()),
            line("ssl.trustStore.type", "PEM".to_owned()),
            line("ssl.clientAuth", "none".to_owned()),
        ])
        .collect()
}

/// Asks a server by a word of four letters. A connection that is made before the server is ready is never answered.
fn ask(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, LONGEST_REPLY)?;
    stream.set_read_timeout(Some(LONGEST_REPLY))?;
    stream.write_all(word.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

const DEFAULTS: [&str; 7] = [
    "tickTime=200",
    "minSessionTimeout=400",
    "maxSessionTimeout=60000",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=*",
    "preAllocSize=64",
];
/// Longer than a server that serves takes to answer.
const LONGEST_REPLY: Duration = Duration::from_secs(1);
