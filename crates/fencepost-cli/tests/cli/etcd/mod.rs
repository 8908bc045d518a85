//! `run`, `status`, `list` and `revoke` with locks in etcd: a real node or three, and a proxy in front that fails as told.
//!
//! Whoever is to suffer goes through the proxy; everybody else goes straight to the server.

mod cluster;
mod killed;
mod locks;
mod lost;
mod moving;
mod network;
mod refusing;
mod stopped;
mod storm;

use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::EtcdServer;
use serde_json::Value;

use crate::support::{Home, Running, all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
struct Scene {
    home: Home,
    server: EtcdServer,
    proxy: Proxy,
}

impl Scene {
    fn new() -> Self {
        let server = EtcdServer::start();
        let home = Home::on(&server.url());
        let proxy = Proxy::start(server.address());
        Self { home, server, proxy }
    }

    /// The server's URL by way of the proxy.
    fn through(&self) -> String {
        format!("etcd://{}", self.proxy.address())
    }

    /// Whether somebody has a place in the lock's queue, as a holder, a waiter or a rest.
    fn has_place(&self, lock: &str) -> bool {
        !self.server.keys(&format!("/fencepost/{lock}/q/")).is_empty()
    }

    /// A holder whose command ends when the file `stop` is there.
    fn start_holder(&self, args: &[&str]) -> Running {
        start_holder(&self.home, args)
    }

    fn status(&self, lock: &str) -> Value {
        json(&self.home.run(["status", "--json", lock]))
    }

    /// Resets all connections to the proxy, and with them what it has held back.
    fn reset_connections(&self) {
        self.proxy.set(Mode::Cut);
        self.proxy.set(Mode::Pass);
    }

    /// Waits until the holder that writes `events` has been heard by the server twice from now on.
    fn await_renewals(&self) {
        await_renewals(&self.home);
    }

    /// Asserts that of all locks nothing is left, and no lease lasts.
    #[track_caller]
    fn assert_nothing_is_left(&self) {
        eventually("the offset alone", || {
            self.server.keys("/").iter().all(|key| key == "/fencepost/.offset" || key.contains("/r/"))
        });
    }
}

fn start_holder(home: &Home, args: &[&str]) -> Running {
    let script = "echo $FENCEPOST_TOKEN >held; while [ ! -e stop ]; do sleep 0.02; done";
    let args = args.iter().copied().chain(["demo", "--", "sh", "-c", script]);
    let run = home.start(["run"].into_iter().chain(args));
    home.await_line("held");
    run
}

fn await_renewals(home: &Home) {
    let renewals = || home.read("events").matches("\"renewed\"").count();
    let before = renewals();
    // The first one may have been sent before now.
    eventually("two renewals", || renewals() >= before + 3);
}
