//! What a test asks of a server: always as the superuser and by the socket, whatever is in the way of others.

use super::PostgresServer;
use super::psql::{PostgresClient, psql};

impl PostgresServer {
    /// Runs SQL as the superuser on a new connection; several statements are one transaction.
    ///
    /// # Panics
    /// When the server refuses it or does not answer.
    pub fn execute(&self, sql: &str) {
        self.query(sql);
    }

    /// Runs SQL as the superuser on a new connection, and gives the rows as lines, the fields separated by `|`.
    ///
    /// # Panics
    /// When the server refuses it or does not answer.
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs SQL as the superuser on a new connection, and gives the rows as lines, the fields separated by `|`.
    ///
    /// # Errors
    /// What `psql` says about the connection or about the SQL.
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        psql(&self.connection(), sql)
    }

    /// A session of the superuser that stays open.
    ///
    /// # Errors
    /// What `psql` says about the connection.
    pub fn client(&self) -> Result<PostgresClient, String> {
        PostgresClient::connect(&self.connection())
    }

    /// Makes a database, which then has [a URL](Self::url_of).
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn create_database(&self, name: &str) {
        self.execute(&format!("CREATE DATABASE {name}"));
    }

    /// Ends the session of this process, `pg_backend_pid()`, as an operator does, and waits until it is gone.
    ///
    /// # Panics
    /// When there is none, or it does not end within half a minute.
    pub fn terminate(&self, session: u32) {
        let ended = self.query(&format!("SELECT pg_terminate_backend({session}, 30000)"));
        assert_eq!(ended, "t", "the session was there and has ended");
    }

    /// How libpq reaches the server by its socket.
    pub(super) fn connection(&self) -> String {
        format!("{} dbname=postgres", self.connection_to_any_database())
    }

    /// The same, without the database.
    pub(in crate::servers) fn connection_to_any_database(&self) -> String {
        format!("host={} port={} user=postgres", self.cluster.path().display(), self.port())
    }
}
