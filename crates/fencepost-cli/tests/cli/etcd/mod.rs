//! `run`, `status`, `list` and `revoke` with locks in etcd: a node or three.
//!
//! What it does as other servers do is in `on_servers/`.

mod cluster;
mod killed;
mod locks;
mod lost;
mod moving;
mod refusing;
mod stopped;

use std::net::SocketAddr;

use fencepost_testkit::servers::EtcdServer;

use crate::scene::Server;
use crate::support::{all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
type Scene = crate::scene::Scene<EtcdServer>;

impl Server for EtcdServer {
    const KIND: &'static str = "etcd";

    fn begin() -> Self {
        Self::start()
    }

    fn address(&self) -> SocketAddr {
        Self::address(self)
    }

    fn url_at(address: SocketAddr) -> String {
        format!("etcd://{address}")
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn go_on(&self) {
        Self::go_on(self);
    }

    fn has_place(&self, lock: &str) -> bool {
        !self.keys(&format!("/fencepost/{lock}/q/")).is_empty()
    }

    /// The offset is left, and no lease lasts.
    fn assert_nothing_is_left(&self) {
        eventually("the offset alone", || {
            self.keys("/").iter().all(|key| key == "/fencepost/.offset" || key.contains("/r/"))
        });
    }

    fn assert_nothing_lasts(&self) {
        self.assert_nothing_is_left();
        eventually("no lease", || self.control(&["lease", "list"]).lines().count() == 1);
    }

    fn disturb(&self, chance: u64) {
        if chance < 2 {
            self.stop();
        }
    }
}
