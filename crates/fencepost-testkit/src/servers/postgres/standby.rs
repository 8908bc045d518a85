//! Standbys: servers that follow another one, lag behind it when they are told to, and take over from it.

use super::{LONGEST_WAIT, PostgresServer, holds_within, wait_until};

impl PostgresServer {
    /// A new server that has this one's data, settings and sort of clock, and follows it, asynchronously.
    ///
    /// It reaches this one by its socket, and so follows it again after a restart.
    ///
    /// # Panics
    /// As [`PostgresSetup::start`](super::PostgresSetup::start), and when the data cannot be copied.
    pub fn standby(&self) -> Self {
        self.try_standby().unwrap_or_else(|message| panic!("{message}"))
    }

    /// The same as [`standby`](Self::standby), for a program that has users.
    ///
    /// # Errors
    /// Why the data cannot be copied, or what the new server said.
    pub fn try_standby(&self) -> Result<Self, String> {
        let mut standby = Self::down(self.setup.clone());
        standby.cluster.copy(&self.connection())?;
        standby.launch()?;
        standby.try_follow(self)?;
        Ok(standby)
    }

    /// Has a standby receive from `primary`, now and until it is told otherwise, and waits until it is connected.
    ///
    /// # Panics
    /// When it does not connect within half a minute.
    pub fn follow(&self, primary: &Self) {
        self.try_follow(primary).unwrap_or_else(|message| panic!("{message}"));
    }

    fn try_follow(&self, primary: &Self) -> Result<(), String> {
        self.receive_from(&primary.connection())?;
        // Until it has looked at its settings, it may still be connected to another one.
        let question =
            format!("SELECT status FROM pg_stat_wal_receiver WHERE sender_port = {}", primary.port());
        self.comes_to(&question, "streaming", "the standby is connected to its primary")
    }

    /// Has a standby receive nothing any more, so that it misses what is committed from now on, also when it is
    /// promoted.
    ///
    /// # Panics
    /// When it does not cut the connection within half a minute.
    pub fn stop_receiving(&self) {
        self.try_stop_receiving().unwrap_or_else(|message| panic!("{message}"));
    }

    /// The same as [`stop_receiving`](Self::stop_receiving).
    ///
    /// # Errors
    /// That it does not cut the connection.
    pub fn try_stop_receiving(&self) -> Result<(), String> {
        self.receive_from("")?;
        self.comes_to("SELECT count(*) FROM pg_stat_wal_receiver", "0", "the standby receives nothing")
    }

    /// Has a standby show nothing new, while it goes on to receive. A promotion ends the pause and loses nothing.
    ///
    /// # Panics
    /// When it does not pause within half a minute.
    pub fn pause_replay(&self) {
        self.execute("SELECT pg_wal_replay_pause()");
        wait_until("the replay is paused", || {
            self.query("SELECT pg_get_wal_replay_pause_state()") == "paused"
        });
    }

    /// Waits until a standby shows all that was committed on `primary` when this was called.
    ///
    /// # Panics
    /// When it does not within half a minute.
    pub fn wait_for_replay(&self, primary: &Self) {
        let position = primary.query("SELECT pg_current_wal_flush_lsn()");
        let question = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'");
        wait_until("the standby has what the primary has", || self.query(&question) == "t");
    }

    /// Makes a standby a primary, with what it has received until now.
    ///
    /// # Panics
    /// When it is none, or stays one for a minute.
    pub fn promote(&self) {
        self.try_promote().unwrap_or_else(|message| panic!("{message}"));
    }

    /// The same as [`promote`](Self::promote).
    ///
    /// # Errors
    /// That it is none, or stays one.
    pub fn try_promote(&self) -> Result<(), String> {
        match self.try_query("SELECT pg_promote()")?.as_str() {
            "t" => Ok(()),
            _ => Err("the standby was not promoted".to_owned()),
        }
    }

    fn receive_from(&self, connection: &str) -> Result<(), String> {
        self.try_query(&format!("ALTER SYSTEM SET primary_conninfo = '{connection}'"))?;
        self.try_query("SELECT pg_reload_conf()").map(drop)
    }

    /// Waits until a question has an answer.
    fn comes_to(&self, question: &str, answer: &str, what: &str) -> Result<(), String> {
        if holds_within(LONGEST_WAIT, || self.try_query(question).as_deref() == Ok(answer)) {
            return Ok(());
        }
        Err(format!("within {LONGEST_WAIT:?} it was not seen that {what}"))
    }
}
