//! A Postgres server: started in one of several ways, stopped, killed, restarted with or without its data, and asked.
//!
//! It keeps its port and its directory over a restart. Invariant: the server that answers is the one that was started.

mod asking;
mod cluster;
mod postmaster;
pub(super) mod programs;
mod psql;
mod setup;
mod standby;
mod template;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

pub use psql::{PostgresClient, psql};
pub use setup::PostgresSetup;

use super::certificates::Certificates;
use super::clock::SteppedClock;
use super::{LONGEST_WAIT, holds_within, log_to, wait_until};
use crate::port::Port;
use cluster::Cluster;
use postmaster::Postmaster;
use programs::{bound, give_to_user, program};

/// A running Postgres server, or one that was killed or shut down and can be restarted.
#[derive(Debug)]
pub struct PostgresServer {
    // Dropped first: the directory is removed when nobody writes in it any more.
    postmaster: Option<Postmaster>,
    port: Port,
    setup: PostgresSetup,
    certificates: Option<Certificates>,
    clock: Option<SteppedClock>,
    cluster: Cluster,
}

impl PostgresServer {
    /// A server that trusts everybody.
    ///
    /// # Panics
    /// As [`PostgresSetup::start`].
    pub fn start() -> Self {
        PostgresSetup::default().start()
    }

    /// A server with settings: `["max_connections=20", "fsync=on"]`.
    ///
    /// # Panics
    /// As [`PostgresSetup::start`].
    pub fn start_with(settings: &[&str]) -> Self {
        PostgresSetup::default().settings(settings).start()
    }

    /// The port of 127.0.0.1, with and without TLS.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`, without a password: the superuser and its database.
    pub fn url(&self) -> String {
        self.url_of("postgres", "postgres")
    }

    /// `postgres://USER@127.0.0.1:PORT/DATABASE`; `user` may hold a password, `user:password`.
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}/{database}", self.port.address())
    }

    /// The folder with the server's socket, on which it trusts everybody.
    pub fn socket_directory(&self) -> &Path {
        self.cluster.path()
    }

    /// The certificates of a server with TLS; a client is to trust their authority.
    ///
    /// # Panics
    /// When the server has no TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("the server was started with TLS")
    }

    /// The number of the first process.
    ///
    /// # Panics
    /// When the server is down.
    pub fn pid(&self) -> u32 {
        self.postmaster().id()
    }

    /// What the server has said since it was first started.
    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// Stops all processes, and waits until they stand still; connections stay open.
    ///
    /// # Panics
    /// When the server is down.
    pub fn stop(&self) {
        self.postmaster().stop();
    }

    /// Lets the stopped processes go on.
    ///
    /// # Panics
    /// When the server is down.
    pub fn go_on(&self) {
        self.postmaster().go_on();
    }

    /// Kills all processes, as a crash does. Until it is restarted, connections to its port are refused.
    pub fn kill(&mut self) {
        if let Some(mut postmaster) = self.postmaster.take() {
            postmaster.kill();
        }
    }

    /// Ends all sessions and writes everything, as an operator does.
    ///
    /// # Panics
    /// When the server is down, or does not end within half a minute.
    pub fn shut_down(&mut self) {
        self.shut_down_by(Signal::INT);
    }

    /// Ends all sessions and writes nothing, so that it recovers at the next start as after a crash.
    ///
    /// # Panics
    /// When the server is down, or does not end within half a minute.
    pub fn shut_down_immediately(&mut self) {
        self.shut_down_by(Signal::QUIT);
    }

    /// Kills the server if it runs, and starts it on the same port, where it recovers what was committed.
    ///
    /// # Panics
    /// As [`PostgresSetup::start`].
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

    /// Shuts the server down, and starts it on the same port, with everything that it had.
    ///
    /// # Panics
    /// As [`shut_down`](Self::shut_down) and [`PostgresSetup::start`].
    pub fn restart_cleanly(&mut self) {
        self.shut_down();
        self.launch().unwrap_or_else(|message| panic!("{message}"));
    }

    /// Kills the server if it runs, and starts it on the same port with new data, in which there is nothing.
    ///
    /// Its `system_identifier` is then its own, while servers that were not emptied mostly share one.
    ///
    /// # Panics
    /// As [`PostgresSetup::start`].
    pub fn restart_empty(&mut self) {
        self.try_restart_empty().unwrap_or_else(|message| panic!("{message}"));
    }

    /// The same as [`restart_empty`](Self::restart_empty).
    ///
    /// # Errors
    /// What the server said last, when it does not start.
    pub fn try_restart_empty(&mut self) -> Result<(), String> {
        self.kill();
        self.cluster.empty();
        self.initialize();
        self.launch()
    }

    /// Kills the process of a session, `pg_backend_pid()`: the server ends all sessions and recovers, and answers again.
    ///
    /// # Panics
    /// When the process is not one of this server, or the server does not recover.
    pub fn kill_session(&mut self, session: u32) {
        self.postmaster().kill_session(session);
        self.wait_until_ready().unwrap_or_else(|message| panic!("{message}"));
    }

    /// Steps the wall clock forward.
    ///
    /// # Panics
    /// Unless the server has [a clock of its own](PostgresSetup::own_clock).
    pub fn step_clock_forward(&mut self, by: Duration) {
        self.clock().step_forward(by);
    }

    /// Steps the wall clock back.
    ///
    /// # Panics
    /// Unless the server has [a clock of its own](PostgresSetup::own_clock).
    pub fn step_clock_back(&mut self, by: Duration) {
        self.clock().step_back(by);
    }

    fn from_setup(setup: PostgresSetup) -> Result<Self, String> {
        let mut server = Self::down(setup);
        server.fill();
        server.launch()?;
        Ok(server)
    }

    /// A server without data that was not started yet.
    fn down(setup: PostgresSetup) -> Self {
        let cluster = Cluster::new();
        let certificates = setup.has_tls.then(|| Certificates::new(cluster.path()));
        if let Some(certificates) = &certificates {
            // Postgres refuses a key that others could read.
            give_to_user(&certificates.key());
        }
        let clock = setup.has_own_clock.then(|| SteppedClock::new(cluster.path()));
        Self { postmaster: None, port: Port::reserve(), setup, certificates, clock, cluster }
    }

    fn initialize(&self) {
        self.cluster.initialize(self.setup.password.as_deref());
    }

    /// Has some data for a first start.
    fn fill(&self) {
        let has_template = self.setup.password.is_none();
        if has_template && template::unpack(self.cluster.path()) {
            return;
        }
        self.initialize();
        if has_template {
            template::pack(self.cluster.path());
        }
    }

    fn launch(&mut self) -> Result<(), String> {
        self.postmaster = Some(Postmaster::start(self.launcher()));
        self.wait_until_ready()
    }

    fn launcher(&self) -> Command {
        let mut command = bound(&program("postgres"), self.cluster.path());
        let (log, errors) = (log_to(&self.cluster.log_file()), log_to(&self.cluster.log_file()));
        command.stdout(log).stderr(errors).arg("-D").arg(self.cluster.data());
        command.arg("-p").arg(self.port().to_string());
        if let Some(clock) = &self.clock {
            clock.apply_to(&mut command);
        }
        for setting in self.own_settings().iter().chain(&self.setup.settings) {
            command.args(["-c", setting]);
        }
        command
    }

    fn own_settings(&self) -> Vec<String> {
        let mut settings: Vec<String> = DEFAULTS.iter().map(ToString::to_string).collect();
        settings.push(format!("unix_socket_directories={}", self.cluster.path().display()));
        if let Some(certificates) = &self.certificates {
            settings.push("ssl=on".to_owned());
            settings.push(format!("ssl_cert_file={}", certificates.certificate().display()));
            settings.push(format!("ssl_key_file={}", certificates.key().display()));
        }
        settings
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let mut answering = None;
        let is_over = holds_within(LONGEST_WAIT, || {
            answering = self.answering();
            answering.is_some() || self.has_ended()
        });
        if !is_over || answering.is_none() {
            return Err(format!("postgres does not start; it said:\n{}", self.log()));
        }
        let started = Some(self.pid().to_string());
        assert_eq!(answering, started, "the server that answers is the one that was started");
        Ok(())
    }

    /// The number of the server that answers, if one does.
    fn answering(&self) -> Option<String> {
        // Asking costs more than looking.
        let state = self.cluster.state();
        let says_so = state.get(7).is_some_and(|state| state == "ready" || state == "standby");
        says_so
            .then(|| self.try_query("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)").ok())?
    }

    fn has_ended(&mut self) -> bool {
        self.postmaster.as_mut().is_none_or(Postmaster::has_ended)
    }

    fn shut_down_by(&mut self, signal: Signal) {
        let mut postmaster = self.postmaster.take().expect(RUNS);
        assert!(postmaster.shut_down(signal, LONGEST_WAIT), "the server ends; it said:\n{}", self.log());
    }

    fn postmaster(&self) -> &Postmaster {
        self.postmaster.as_ref().expect(RUNS)
    }

    fn clock(&mut self) -> &mut SteppedClock {
        self.clock.as_mut().expect("the server was started with a clock of its own")
    }
}

const RUNS: &str = "the server was not killed or shut down";
/// Nothing waits for a disk, and whatever shared memory a killed server leaves lies in its directory.
const DEFAULTS: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "max_connections=100",
    "dynamic_shared_memory_type=mmap",
    "log_destination=stderr",
    // A standby that lost its primary tries again so often; after five seconds otherwise.
    "wal_retrieve_retry_interval=100ms",
    // A standby that received nothing for a while finds what it missed.
    "wal_keep_size=256MB",
];
