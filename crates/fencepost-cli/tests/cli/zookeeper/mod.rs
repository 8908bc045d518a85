//! `run`, `status` and `list` with locks on a ZooKeeper: a real server, and a proxy in front of it that fails as told.
//!
//! Whoever is to suffer goes through the proxy; everybody else goes straight to the server.

mod access;
mod ending;
mod killed;
mod locks;
mod looking;
mod network;
mod refusing;
mod storm;

use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::ZooKeeperServer;
use serde_json::Value;

use crate::support::{Home, Running, all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
struct Scene {
    home: Home,
    server: ZooKeeperServer,
    proxy: Proxy,
}

impl Scene {
    fn new() -> Self {
        let server = ZooKeeperServer::start();
        let (home, proxy) = (Home::on(&server.url()), Proxy::start(server.address()));
        Self { home, server, proxy }
    }

    /// The server's URL by way of the proxy.
    fn through(&self) -> String {
        format!("zookeeper://{}", self.proxy.address())
    }

    /// Has the lock's own node there, so that nothing takes two round trips.
    fn warm_up(&self) {
        self.home.run(["run", "demo", "--", "true"]).exits(0);
    }

    /// The places in the queue of a lock.
    fn queue(&self, lock: &str) -> Vec<String> {
        let mut client = self.server.client();
        let queue = client.children(&format!("/fencepost/{lock}")).unwrap_or_default();
        client.close().unwrap();
        queue
    }

    /// A holder whose command ends when the file `stop` is there.
    fn start_holder(&self, args: &[&str]) -> Running {
        let script = "echo $FENCEPOST_TOKEN >held; while [ ! -e stop ]; do sleep 0.02; done";
        let args = args.iter().copied().chain(["demo", "--", "sh", "-c", script]);
        let run = self.home.start(["run"].into_iter().chain(args));
        self.home.await_line("held");
        run
    }

    /// Ends the command of [`start_holder`](Self::start_holder).
    #[track_caller]
    fn end(&self, holder: Running) {
        self.home.write("stop", "");
        holder.ends().exits(0);
    }

    fn status(&self, lock: &str) -> Value {
        json(&self.home.run(["status", "--json", lock]))
    }

    /// Resets all connections to the proxy, and with them what it has held back.
    fn reset_connections(&self) {
        self.proxy.set(Mode::Cut);
        self.proxy.set(Mode::Pass);
    }

    /// Waits until the holder that writes `events` has been heard by the server from now on.
    fn await_renewals(&self) {
        let renewals = || self.home.read("events").matches("\"renewed\"").count();
        let before = renewals();
        // The first ones may be from what was proved before now.
        eventually("renewals", || renewals() >= before + 4);
    }

    /// Asserts that after a moment no session is left, and with it no place in a queue.
    #[track_caller]
    fn assert_nothing_is_left(&self) {
        eventually("no session", || self.server.counted("zk_global_sessions") == 0);
        eventually("no node of a session", || self.server.counted("zk_ephemerals_count") == 0);
    }
}
