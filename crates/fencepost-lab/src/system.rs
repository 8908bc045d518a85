//! The server of the protected system, which no fault touches: Postgres where it is installed, else a SQLite file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use fencepost::BackendUrl;
use fencepost_testkit::servers::{PostgresServer, PostgresSetup};

use crate::servers::{PLAIN, expect_postgres};

/// Where the protected data lie.
#[derive(Debug)]
pub(crate) struct System {
    url: BackendUrl,
    server: Option<PostgresServer>,
}

impl System {
    /// Starts it.
    ///
    /// # Errors
    /// What a server said that does not start.
    pub(crate) fn start(folder: &Path, is_simple: bool) -> Result<Self, String> {
        if is_simple || expect_postgres(folder).is_err() {
            let url = format!("sqlite:{}", folder.join("protected.db").display());
            let url = url.parse().map_err(|error: fencepost::Error| error.to_string())?;
            return Ok(Self { url, server: None });
        }
        let server = PostgresSetup::default().settings(&["log_min_error_statement=error"]).try_start();
        let server = server.map_err(|why| crate::servers::last_lines(&why))?;
        let url = format!("{}?{PLAIN}", server.url())
            .parse()
            .map_err(|error: fencepost::Error| error.to_string())?;
        Ok(Self { url, server: Some(server) })
    }

    pub(crate) fn url(&self) -> &BackendUrl {
        &self.url
    }

    /// Where a worker's link leads.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|server| (Ipv4Addr::LOCALHOST, server.port()).into())
    }

    /// In words.
    pub(crate) fn describe(&self) -> &'static str {
        if self.server.is_some() { "Postgres" } else { "SQLite" }
    }

    /// Which of these writes the server says it has refused as stale; their authors could not hear it.
    pub(crate) fn refused<'a>(
        &self,
        partition: &str,
        writes: impl Iterator<Item = &'a String>,
    ) -> Vec<String> {
        let Some(server) = &self.server else { return Vec::new() };
        let log = server.log();
        writes.filter(|write| is_refused(&log, partition, write)).cloned().collect()
    }
}

/// An error in the log stands before the statement that it is about.
fn is_refused(log: &str, partition: &str, write: &str) -> bool {
    let needles = ["stale stamp", &format!("'{partition}'"), &format!("'{write}'")];
    let mut errors = log.split("ERROR:").skip(1);
    errors.any(|error| needles.iter().all(|needle| error.contains(needle)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
        LOG:  ready\n\
        ERROR:  fencepost: stale stamp for lock \"a\"\nSTATEMENT:  select check('a'); insert 'w1-3'\n\
        ERROR:  something else\nSTATEMENT:  insert 'a', 'w2-4'\n";

    #[test]
    fn refused_write_is_found_in_the_log_of_the_server() {
        assert!(is_refused(LOG, "a", "w1-3"));
    }

    #[test]
    fn write_that_failed_otherwise_or_elsewhere_is_not_refused() {
        assert!(!is_refused(LOG, "a", "w2-4"));
        assert!(!is_refused(LOG, "a", "w1-33") && !is_refused(LOG, "a", "w1"));
        assert!(!is_refused(LOG, "b", "w1-3"));
    }
}
