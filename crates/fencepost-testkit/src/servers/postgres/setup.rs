//! How a Postgres server is to be started, as a test says it.

use super::PostgresServer;

/// How a Postgres server is to be started.
///
/// Unless told otherwise it trusts everybody, forgets what it has not written when the machine crashes, and has the
/// defaults of Postgres.
#[derive(Clone, Debug, Default)]
pub struct PostgresSetup {
    pub(super) settings: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) has_tls: bool,
    pub(super) has_own_clock: bool,
}

impl PostgresSetup {
    /// Adds settings: `["max_connections=20", "fsync=on"]`. Those that come later count.
    pub fn settings(mut self, settings: &[&str]) -> Self {
        self.settings.extend(settings.iter().map(ToString::to_string));
        self
    }

    /// Asks for this password of the user `postgres` by SCRAM on TCP.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Serves TLS as well, on the same port.
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
    pub fn start(self) -> PostgresServer {
        self.try_start().unwrap_or_else(|message| panic!("{message}"))
    }

    /// The same, for a program that has users: a server that does not start is no panic.
    ///
    /// # Errors
    /// What the server said last.
    ///
    /// # Panics
    /// When it is not [installed](crate::servers::is_installed).
    pub fn try_start(self) -> Result<PostgresServer, String> {
        PostgresServer::from_setup(self)
    }
}
