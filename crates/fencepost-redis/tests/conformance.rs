//! The suite that every backend runs, on a real Redis.

use fencepost_core::{Clock, Locks};
use fencepost_redis::RedisBackend;
use fencepost_testkit::Harness;
use fencepost_testkit::servers::RedisServer;

struct Redis(RedisServer);

impl Harness for Redis {
    fn start() -> Self {
        Self(RedisServer::start())
    }

    fn locks(&self) -> Locks {
        Self::from_address(&url(&self.0))
    }

    fn address(&self) -> Option<String> {
        Some(url(&self.0))
    }

    fn from_address(address: &str) -> Locks {
        let url = address.parse().expect("an address is a URL");
        Locks::new(RedisBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
    }
}

/// A server that was just started knows of no lock, and would be in quarantine for the first minute.
fn url(server: &RedisServer) -> String {
    format!("{}?quarantine=off", server.url())
}

fencepost_testkit::conformance!(redis: Redis, if redis_server);
