//! The suite that every backend runs, on a real ZooKeeper.

use std::time::Duration;

use fencepost_core::{Clock, Locks};
use fencepost_testkit::Harness;
use fencepost_testkit::servers::ZooKeeperServer;
use fencepost_zookeeper::ZooKeeperBackend;

struct ZooKeeper(ZooKeeperServer);

impl Harness for ZooKeeper {
    fn start() -> Self {
        Self(ZooKeeperServer::start())
    }

    fn locks(&self) -> Locks {
        Self::from_address(&self.0.url())
    }

    /// Half of a ttl is certain after a renewal, so it is twice as long as elsewhere.
    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn address(&self) -> Option<String> {
        Some(self.0.url())
    }

    fn from_address(address: &str) -> Locks {
        let url = address.parse().expect("an address is a URL");
        Locks::new(ZooKeeperBackend::from_url(&url, Clock::system()).expect("the URL names a server"))
    }
}

fencepost_testkit::conformance!(ZooKeeper, if zookeeper_server);
