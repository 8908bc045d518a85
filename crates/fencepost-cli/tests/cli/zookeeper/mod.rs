//! `run`, `status` and `list` with locks on a ZooKeeper.
//!
//! What it does as other servers do is in `on_servers/`.

mod access;
mod ending;
mod killed;
mod locks;
mod looking;
mod network;
mod refusing;

use std::net::SocketAddr;

use fencepost_testkit::servers::ZooKeeperServer;

use crate::scene::Server;
use crate::support::{all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
type Scene = crate::scene::Scene<ZooKeeperServer>;

impl Scene {
    /// The places in the queue of a lock.
    fn queue(&self, lock: &str) -> Vec<String> {
        queue(&self.server, lock)
    }
}

impl Server for ZooKeeperServer {
    const KIND: &'static str = "zookeeper";
    /// A deadline is less than half of it away.
    const TTL: u64 = 2;

    fn begin() -> Self {
        Self::start()
    }

    fn address(&self) -> SocketAddr {
        Self::address(self)
    }

    fn url_at(address: SocketAddr) -> String {
        format!("zookeeper://{address}")
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn go_on(&self) {
        Self::go_on(self);
    }

    fn has_place(&self, lock: &str) -> bool {
        !queue(self, lock).is_empty()
    }

    /// After a moment no session is left, and with it no place in a queue.
    fn assert_nothing_is_left(&self) {
        eventually("no session", || self.counted("zk_global_sessions") == 0);
        eventually("no node of a session", || self.counted("zk_ephemerals_count") == 0);
    }

    /// The session of whoever was killed ends by itself.
    fn assert_given_back(&self) {
        assert!(!self.has_place("demo"));
    }

    fn assert_nothing_lasts(&self) {
        eventually("nothing is left", || !self.has_place("demo"));
        self.assert_nothing_is_left();
    }
}

fn queue(server: &ZooKeeperServer, lock: &str) -> Vec<String> {
    let mut client = server.client();
    let queue = client.children(&format!("/fencepost/{lock}")).unwrap_or_default();
    client.close().unwrap();
    queue
}
