//! A Redis server: started in one of several ways, stopped, killed, restarted with or without its data, and asked.
//!
//! It keeps its port and its directory over a restart. Invariant: the server that answers is the one that was started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use tempfile::TempDir;

use super::certificates::Certificates;
use super::clock::SteppedClock;
use super::resp::{RedisClient, Reply};
use super::{LONGEST_WAIT, holds_within, installed, log_to, wait_until};
use crate::port::Port;
use crate::process::Process;

/// How a Redis server is to be started.
#[derive(Clone, Debug, Default)]
pub struct RedisSetup {
    arguments: Vec<String>,
    has_tls: bool,
    has_own_clock: bool,
}

impl RedisSetup {
    /// Adds arguments of `redis-server`: `["--appendonly", "yes"]`. Those that come later count.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Serves TLS as well, on a port of its own.
    pub fn tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// Gives the server a wall clock that the test can step.
    pub fn own_clock(mut self) -> Self {
        self.has_own_clock = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When it is not installed, or ends instead of answering; the message then holds what it said.
    pub fn start(self) -> RedisServer {
        self.try_start().unwrap_or_else(|message| panic!("{message}"))
    }

    /// The same, for a program that has users: a server that does not start is no panic.
    ///
    /// # Errors
    /// What the server said last.
    ///
    /// # Panics
    /// When it is not [installed](super::is_installed).
    pub fn try_start(self) -> Result<RedisServer, String> {
        RedisServer::from_setup(self)
    }
}

/// A running Redis server, or one that was killed and can be restarted.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped first: the directory is removed when nobody writes in it any more.
    process: Option<Process>,
    port: Port,
    arguments: Vec<String>,
    tls: Option<(Port, Certificates)>,
    clock: Option<SteppedClock>,
    directory: TempDir,
}

impl RedisServer {
    /// A server that keeps nothing over a restart and asks for no password.
    ///
    /// # Panics
    /// As [`RedisSetup::start`].
    pub fn start() -> Self {
        RedisSetup::default().start()
    }

    /// A server with further arguments: `["--appendonly", "yes"]`, `["--requirepass", "secret"]`.
    ///
    /// # Panics
    /// As [`RedisSetup::start`].
    pub fn start_with(arguments: &[&str]) -> Self {
        RedisSetup::default().arguments(arguments).start()
    }

    /// Several servers that know nothing of each other.
    ///
    /// # Panics
    /// As [`RedisSetup::start`].
    pub fn start_several(count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::start()).collect()
    }

    /// The port without TLS.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `redis://127.0.0.1:PORT`, without a password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// The port with TLS.
    ///
    /// # Panics
    /// When the server has none.
    pub fn tls_port(&self) -> u16 {
        self.tls().0.number()
    }

    /// `rediss://127.0.0.1:PORT`, without a password.
    ///
    /// # Panics
    /// When the server has no TLS.
    pub fn tls_url(&self) -> String {
        format!("rediss://{}", self.tls().0.address())
    }

    /// The certificates of a server with TLS; a client is to trust their authority.
    ///
    /// # Panics
    /// When the server has no TLS.
    pub fn certificates(&self) -> &Certificates {
        &self.tls().1
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

    /// Kills the process if it runs, and starts it on the same port with what its persistence has kept.
    ///
    /// # Panics
    /// As [`RedisSetup::start`].
    pub fn restart(&mut self) {
        self.try_restart().unwrap_or_else(|message| panic!("{message}"));
    }

    /// The same as [`restart`](Self::restart).
    ///
    /// # Errors
    /// What the server said last, when it does not start.
    pub fn try_restart(&mut self) -> Result<(), String> {
        self.kill();
        self.launch()
    }

    /// Kills the process if it runs, and starts it on the same port without any data.
    ///
    /// # Panics
    /// As [`RedisSetup::start`].
    pub fn restart_empty(&mut self) {
        self.try_restart_empty().unwrap_or_else(|message| panic!("{message}"));
    }

    /// The same as [`restart_empty`](Self::restart_empty).
    ///
    /// # Errors
    /// What the server said last, when it does not start.
    pub fn try_restart_empty(&mut self) -> Result<(), String> {
        self.kill();
        let emptied =
            fs::remove_dir_all(self.data_folder()).and_then(|()| fs::create_dir(self.data_folder()));
        emptied.map_err(|error| format!("the data of a Redis cannot be removed: {error}"))?;
        self.launch()
    }

    /// Sends a command on a new connection and gives the reply.
    ///
    /// # Panics
    /// When no reply comes.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Reply {
        let reply = self.client().and_then(|mut client| client.command(arguments));
        reply.unwrap_or_else(|error| panic!("the Redis server {} does not answer: {error}", self.pid()))
    }

    /// A new connection, on which the password has been given.
    ///
    /// # Errors
    /// Those of the connection, and when the server does not answer in a few seconds.
    pub fn client(&self) -> io::Result<RedisClient> {
        let mut client = RedisClient::connect(self.port.address(), LONGEST_REPLY)?;
        if let Some(password) = self.password() {
            client.command(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// A field of a section of `INFO`.
    ///
    /// # Panics
    /// When no reply comes.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        field_of(self.command(&["INFO", section]).text(), field)
    }

    /// Makes this server a replica of another one, and waits until it has its data.
    ///
    /// # Panics
    /// When it does not get them.
    pub fn replica_of(&self, primary: &Self) {
        if let Some(password) = primary.password() {
            self.succeed(&["CONFIG", "SET", "masterauth", password]);
        }
        self.succeed(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        wait_until("the replica is linked to its primary", || {
            self.info("replication", "master_link_status").as_deref() == Some("up")
        });
    }

    /// Makes a replica a primary, with what it has received until now.
    ///
    /// # Panics
    /// When no reply comes.
    pub fn promote(&self) {
        self.succeed(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Steps the wall clock forward.
    ///
    /// # Panics
    /// Unless the server has [a clock of its own](RedisSetup::own_clock).
    pub fn step_clock_forward(&mut self, by: Duration) {
        self.clock().step_forward(by);
    }

    /// Steps the wall clock back.
    ///
    /// # Panics
    /// Unless the server has [a clock of its own](RedisSetup::own_clock).
    pub fn step_clock_back(&mut self, by: Duration) {
        self.clock().step_back(by);
    }

    fn from_setup(setup: RedisSetup) -> Result<Self, String> {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        make_folder(&directory.path().join(DATA));
        let tls = setup.has_tls.then(|| (Port::reserve(), Certificates::new(directory.path())));
        let clock = setup.has_own_clock.then(|| SteppedClock::new(directory.path()));
        let (port, arguments) = (Port::reserve(), setup.arguments);
        let mut server = Self { process: None, port, arguments, tls, clock, directory };
        server.launch()?;
        Ok(server)
    }

    fn launch(&mut self) -> Result<(), String> {
        self.process = Some(Process::start_bound(self.launcher()));
        self.wait_until_ready()
    }

    fn launcher(&self) -> Command {
        let mut command = Process::bound(&installed("redis-server"));
        let (log, errors) = (log_to(&self.log_file()), log_to(&self.log_file()));
        command
            .stdout(log)
            .stderr(errors)
            .args(["--bind", "127.0.0.1", "--port"])
            .arg(self.port().to_string());
        command.arg("--dir").arg(self.data_folder()).args(DEFAULTS);
        if let Some((port, certificates)) = &self.tls {
            command.arg("--tls-port").arg(port.number().to_string()).args(["--tls-auth-clients", "no"]);
            command.arg("--tls-cert-file").arg(certificates.certificate());
            command.arg("--tls-key-file").arg(certificates.key());
            command.arg("--tls-ca-cert-file").arg(certificates.authority());
        }
        if let Some(clock) = &self.clock {
            clock.apply_to(&mut command);
        }
        command.args(&self.arguments);
        command
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let is_ready = holds_within(LONGEST_WAIT, || self.has_ended() || self.answers());
        if !is_ready || self.has_ended() {
            return Err(format!("redis-server does not start; it said:\n{}", self.log()));
        }
        let answering = self.info("server", "process_id");
        assert_eq!(
            answering,
            Some(self.pid().to_string()),
            "the server that answers is the one that was started"
        );
        Ok(())
    }

    fn answers(&self) -> bool {
        let reply = self.client().and_then(|mut client| client.command(&["PING"]));
        reply.is_ok_and(|reply| reply == Reply::Text("PONG".to_owned()))
    }

    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(Process::has_ended)
    }

    fn succeed(&self, arguments: &[&str]) {
        let reply = self.command(arguments);
        assert_eq!(reply, Reply::Text("OK".to_owned()), "{arguments:?}");
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was not killed")
    }

    fn tls(&self) -> &(Port, Certificates) {
        self.tls.as_ref().expect("the server was started with TLS")
    }

    fn clock(&mut self) -> &mut SteppedClock {
        self.clock.as_mut().expect("the server was started with a clock of its own")
    }

    /// What follows the argument that sets the password of the default user.
    pub(super) fn password(&self) -> Option<&str> {
        let mut pairs = self.arguments.windows(2).rev();
        pairs.find(|pair| pair[0] == "--requirepass").map(|pair| pair[1].as_str())
    }

    fn data_folder(&self) -> PathBuf {
        self.directory.path().join(DATA)
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

fn make_folder(folder: &Path) {
    fs::create_dir(folder).expect("a folder can be made in a temporary directory");
}

/// A field in an answer to `INFO`.
fn field_of(section: &str, field: &str) -> Option<String> {
    let mut fields = section.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
}

/// The folder in the server's directory that holds its data and nothing else.
const DATA: &str = "data";
/// Nothing is kept on disk, and a replica is served at once instead of after five seconds.
const DEFAULTS: [&str; 4] = ["--save", "", "--repl-diskless-sync-delay", "0"];
/// Longer than a command takes on a busy machine.
const LONGEST_REPLY: Duration = Duration::from_secs(10);
