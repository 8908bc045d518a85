//! The suite that every backend runs, on a real Postgres, with both policies for a holder that is stopped.

use std::sync::Arc;

use fencepost_core::{Clock, Fence, Locks};
use fencepost_postgres::{PostgresBackend, PostgresFence};
use fencepost_testkit::servers::PostgresServer;
use fencepost_testkit::{FenceHarness, Harness};

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

struct Fenced(PostgresServer);

impl FenceHarness for Fenced {
    fn start() -> Self {
        Self(PostgresServer::start())
    }

    fn fence(&self) -> Arc<dyn Fence> {
        let url = self.0.url().parse().expect("an address is a URL");
        Arc::new(PostgresFence::from_url(&url, Clock::system()).expect("the URL names a server"))
    }
}

fencepost_testkit::fence_conformance!(Fenced, if postgres_server);
