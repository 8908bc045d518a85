//! `run`, `status` and `list` with locks on one Redis: a real server, and a proxy in front of it that fails as told.
//!
//! Whoever is to suffer goes through the proxy; everybody else goes straight to the server.

mod apart;
mod ending;
mod fences;
mod killed;
mod locks;
mod network;
mod refusing;
mod restarts;
mod stopped;
mod storm;

use fencepost_testkit::proxy::{Mode, Proxy};
use fencepost_testkit::servers::{RedisServer, Reply};
use serde_json::Value;

use crate::support::{Home, Running, all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
struct Scene {
    home: Home,
    server: RedisServer,
    proxy: Proxy,
}

impl Scene {
    fn new() -> Self {
        Self::of(RedisServer::start())
    }

    /// A server that was just started knows of no lock, and would be in quarantine for the first minute.
    fn of(server: RedisServer) -> Self {
        let home = Home::on(&url(&server));
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into());
        Self { home, server, proxy }
    }

    /// The server's URL by way of the proxy.
    fn through(&self) -> String {
        format!("redis://{}?quarantine=off", self.proxy.address())
    }

    /// Has the server know all scripts, so that nothing takes two round trips.
    fn warm_up(&self) {
        let script = "fencepost run -n demo -- true || true";
        self.home.run(["run", "demo", "--", "sh", "-c", script]).exits(0);
    }

    /// Whether there is a record of the lock, be it held, reserved or resting.
    fn has_record(&self, lock: &str) -> bool {
        self.server.command(&["EXISTS", &format!("fencepost:{{{lock}}}:l")]).integer() == 1
    }

    /// The names of all keys, in order.
    fn keys(&self) -> Vec<String> {
        let keys = self.server.command(&["KEYS", "*"]);
        let mut keys: Vec<String> = keys.array().iter().map(|key| key.text().to_owned()).collect();
        keys.sort();
        keys
    }

    /// A holder whose command ends when the file `stop` is there.
    fn start_holder(&self, args: &[&str]) -> Running {
        let script = "echo $FENCEPOST_TOKEN >held; while [ ! -e stop ]; do sleep 0.02; done";
        let args = args.iter().copied().chain(["demo", "--", "sh", "-c", script]);
        let run = self.home.start(["run"].into_iter().chain(args));
        self.home.await_line("held");
        run
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
        let renewals = || self.home.read("events").matches("\"renewed\"").count();
        let before = renewals();
        // The first one may have been sent before now.
        eventually("two renewals", || renewals() >= before + 3);
    }

    /// Asserts that no key is without an expiry but those that the README of the backend names.
    #[track_caller]
    fn assert_all_expire(&self) {
        let lasting: Vec<String> = self
            .keys()
            .into_iter()
            .filter(|key| self.server.command(&["PTTL", key]) == Reply::Integer(-1))
            .collect();
        assert_eq!(lasting, ["fencepost:cfg", "fencepost:inc"]);
    }

    /// Asserts that what is left of all locks is their tokens.
    #[track_caller]
    fn assert_only_tokens_are_left(&self) {
        // What says that an attempt is over outlives it, because a request may still be on its way; and the last place in a
        // queue outlives the queue for some seconds.
        let left = |key: &String| {
            let stays = key.ends_with("}:s") || key.ends_with("}:n") || key.contains("}:x:");
            key.starts_with("fencepost:{") && !stays
        };
        let left: Vec<String> = self.keys().into_iter().filter(left).collect();
        assert!(left.is_empty(), "{left:?}");
        self.assert_all_expire();
    }
}

fn url(server: &RedisServer) -> String {
    format!("{}?quarantine=off", server.url())
}
