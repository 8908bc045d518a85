//! The suite that every backend runs, on a real Postgres, with both policies for a holder that is stopped.

use fencepost_core::{Clock, Locks};
use fencepost_postgres::PostgresBackend;
use fencepost_testkit::Harness;
use fencepost_testkit::servers::PostgresServer;

struct Hold(PostgresServer);

impl Harness for Hold {
    fn start() -> Self {
        Self(PostgresServer::start())
    }

    fn locks(&self) -> Locks {
        at(&self.0.url())
    }

    fn address(&self) -> Option<String> {
        Some(self.0.url())
    }

    fn from_address(address: &str) -> Locks {
        at(address)
    }
}

struct Expire(PostgresServer);

impl Expire {
    fn url(&self) -> String {
        format!("{}?on_pause=expire", self.0.url())
    }
}

impl Harness for Expire {
    fn start() -> Self {
        Self(PostgresServer::start())
    }

    fn locks(&self) -> Locks {
        at(&self.url())
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    fn from_address(address: &str) -> Locks {
        at(address)
    }
}

fn at(url: &str) -> Locks {
    let url = url.parse().expect("an address is a URL");
    Locks::new(PostgresBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
}

fencepost_testkit::conformance!(hold: Hold, if postgres_server);
fencepost_testkit::conformance!(expire: Expire, if postgres_server);
