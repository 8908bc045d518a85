//! The suites that every backend and every fence runs, on a real Redis.

use std::sync::Arc;

use fencepost_core::{Clock, Fence, Locks};
use fencepost_redis::redlock::RedlockBackend;
use fencepost_redis::{RedisBackend, RedisFence};
use fencepost_testkit::servers::RedisServer;
use fencepost_testkit::{FenceHarness, Harness};

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

impl FenceHarness for Redis {
    fn start() -> Self {
        <Self as Harness>::start()
    }

    /// In the quarantine of a server that was just started: a fence is no lock.
    fn fence(&self) -> Arc<dyn Fence> {
        let url = self.0.url().parse().expect("an address is a URL");
        Arc::new(RedisFence::from_url(&url, Clock::system()).expect("the URL names a server"))
    }
}

/// A server that was just started knows of no lock, and would be in quarantine for the first minute.
fn url(server: &RedisServer) -> String {
    format!("{}?quarantine=off", server.url())
}

struct Nodes(Vec<RedisServer>);

impl Harness for Nodes {
    fn start() -> Self {
        Self(RedisServer::start_several(3))
    }

    fn locks(&self) -> Locks {
        Self::from_address(&nodes_url(&self.0))
    }

    fn address(&self) -> Option<String> {
        Some(nodes_url(&self.0))
    }

    fn from_address(address: &str) -> Locks {
        let url = address.parse().expect("an address is a URL");
        Locks::new(RedlockBackend::from_url(&url, Clock::system()).expect("the URL names servers"))
    }
}

fn nodes_url(servers: &[RedisServer]) -> String {
    let nodes: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("redlock://{}?quarantine=off", nodes.join(","))
}

fencepost_testkit::conformance!(redis: Redis, if redis_server);
fencepost_testkit::fence_conformance!(fence: Redis, if redis_server);
fencepost_testkit::conformance!(redlock: Nodes, if redis_server);
