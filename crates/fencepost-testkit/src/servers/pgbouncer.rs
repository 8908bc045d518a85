//! A `PgBouncer` in front of a Postgres server: clients share its few sessions, for as long as its mode says.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::postgres::programs::{bound, give_to_user};
use super::postgres::{PostgresServer, psql};
use super::{LONGEST_WAIT, holds_within, installed, log_to};
use crate::port::Port;
use crate::process::Process;

/// For how long a client has a session of the server to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// As long as it is connected.
    Session,
    /// For one transaction.
    Transaction,
    /// For one statement.
    Statement,
}

/// A running pooler, or one that was killed and can be restarted.
#[derive(Debug)]
pub struct PgBouncer {
    // Dropped first: the directory is removed when nobody writes in it any more.
    process: Option<Process>,
    port: Port,
    directory: TempDir,
}

impl PgBouncer {
    /// A pooler in front of `server`, with further settings: `["default_pool_size=1"]`.
    ///
    /// It asks nobody for a password, and whoever comes is the superuser `postgres`.
    ///
    /// # Panics
    /// When it is not installed, or ends instead of answering; the message then holds what it said.
    pub fn start(server: &PostgresServer, mode: PoolMode, settings: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        give_to_user(directory.path());
        let mut pooler = Self { process: None, port: Port::reserve(), directory };
        let file = pooler.settings_of(server, mode, settings);
        fs::write(pooler.directory.path().join(SETTINGS), file).expect("a file can be made there");
        pooler.launch();
        pooler
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.port.address())
    }

    /// The number of the process.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// What it has said since it was first started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
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

    /// Kills the process. Until it is restarted, connections to its port are refused.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the process if it runs, and starts it on the same port.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    fn settings_of(&self, server: &PostgresServer, mode: PoolMode, settings: &[&str]) -> String {
        let (connection, port) = (server.connection_to_any_database(), self.port());
        format!(
            "[databases]\n* = {connection}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {}\n{}\n",
            name_of(mode),
            settings.join("\n"),
        )
    }

    fn launch(&mut self) {
        self.process = Some(Process::start_bound(self.launcher()));
        let is_ready =
            holds_within(LONGEST_WAIT, || self.has_ended() || psql(&self.url(), "SELECT 1").is_ok());
        let is_running = is_ready && !self.has_ended();
        assert!(is_running, "pgbouncer does not start; it said:\n{}", self.log());
    }

    fn launcher(&self) -> Command {
        let folder = self.directory.path();
        let mut command = bound(&installed("pgbouncer"), folder);
        let log = folder.join("log");
        command.stdout(log_to(&log)).stderr(log_to(&log)).arg(folder.join(SETTINGS));
        command
    }

    fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(Process::has_ended)
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the pooler was not killed")
    }
}

fn name_of(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Session => "session",
        PoolMode::Transaction => "transaction",
        PoolMode::Statement => "statement",
    }
}

/// The name of the file with the settings.
const SETTINGS: &str = "pgbouncer.ini";
