//! A real server, a home whose locks are on it, and a proxy in front of it that fails as told.
//!
//! Whoever is to suffer goes through the proxy; everybody else goes straight to the server.

use std::net::SocketAddr;

use fencepost_testkit::proxy::{Mode, Proxy};
use serde_json::Value;

use crate::support::{Home, Running, eventually, json};

/// A server that keeps locks, as the tests need it.
pub(crate) trait Server: Sized {
    /// The kind of its locks.
    const KIND: &'static str;

    /// The shortest ttl that a busy machine keeps a lease by, in seconds.
    const TTL: u64 = 1;

    /// The ttl while faults come from all sides.
    const STORM_TTL: &'static str = "1s";

    fn begin() -> Self;

    fn address(&self) -> SocketAddr;

    /// The URL of the locks of a server that is reached there.
    fn url_at(address: SocketAddr) -> String;

    /// Lets it take connections and answer nothing.
    fn stop(&self);

    fn go_on(&self);

    /// Whether somebody has the lock, as a holder or a rest.
    fn has_place(&self, lock: &str) -> bool;

    /// Asserts that of all locks nothing is left but what the backend's README names.
    #[track_caller]
    fn assert_nothing_is_left(&self);

    /// Asserts that nothing of the lock `demo` is left whose runner was killed.
    #[track_caller]
    fn assert_given_back(&self) {
        self.assert_nothing_is_left();
    }

    /// Asserts that what is left of runs that were killed anywhere ends by itself.
    #[track_caller]
    fn assert_nothing_lasts(&self) {
        self.assert_nothing_is_left();
    }

    /// Disturbs it in a way of its own; `chance` is below 20.
    fn disturb(&self, chance: u64) {
        if chance == 0 {
            self.stop();
        }
    }
}

/// A server, the proxy in front of it, and a home whose locks are on the server.
pub(crate) struct Scene<S> {
    pub(crate) home: Home,
    pub(crate) server: S,
    pub(crate) proxy: Proxy,
}

impl<S: Server> Scene<S> {
    pub(crate) fn new() -> Self {
        Self::of(S::begin())
    }

    pub(crate) fn of(server: S) -> Self {
        let (home, proxy) = (Home::on(&S::url_at(server.address())), Proxy::start(server.address()));
        Self { home, server, proxy }
    }

    /// The server's URL.
    pub(crate) fn url(&self) -> String {
        S::url_at(self.server.address())
    }

    /// The server's URL by way of the proxy.
    pub(crate) fn through(&self) -> String {
        S::url_at(self.proxy.address())
    }

    /// The server's URL with one option more.
    pub(crate) fn url_with(&self, option: &str) -> String {
        let url = self.url();
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}{option}")
    }

    /// Another home whose locks are on the server.
    pub(crate) fn another_home(&self) -> Home {
        Home::on(&self.url())
    }

    /// Has the server know all that it keeps for good, so that nothing takes two round trips.
    pub(crate) fn warm_up(&self) {
        let script = "fencepost run -n demo -- true || true";
        self.home.run(["run", "demo", "--", "sh", "-c", script]).exits(0);
    }

    /// A holder of `demo` whose command ends when the file `stop` is there.
    pub(crate) fn start_holder(&self, args: &[&str]) -> Running {
        start_holder(&self.home, args)
    }

    /// Ends the command of [`start_holder`](Self::start_holder).
    #[track_caller]
    pub(crate) fn end(&self, holder: Running) {
        self.home.write("stop", "");
        holder.ends().exits(0);
    }

    pub(crate) fn status(&self, lock: &str) -> Value {
        json(&self.home.run(["status", "--json", lock]))
    }

    pub(crate) fn waiters(&self, lock: &str) -> usize {
        self.status(lock)["waiters"].as_array().unwrap().len()
    }

    pub(crate) fn has_place(&self, lock: &str) -> bool {
        self.server.has_place(lock)
    }

    /// Resets all connections to the proxy, and with them what it has held back.
    pub(crate) fn reset_connections(&self) {
        self.proxy.set(Mode::Cut);
        self.proxy.set(Mode::Pass);
    }

    /// Waits until the holder that writes `events` has been heard by the server twice from now on.
    pub(crate) fn await_renewals(&self) {
        await_renewals(&self.home);
    }

    /// Holders of these locks, which are different ones and shown as they are.
    pub(crate) fn hold_each_of(&self, names: &[&str]) -> Vec<Running> {
        let holders = names.iter().map(|name| self.home.start(["run", name, "--", "sleep", "60"])).collect();
        let list = || json(&self.home.run(["list", "--json"]).exits(0));
        eventually("all holders", || list().as_array().unwrap().len() == names.len());
        let list = list();
        let listed: Vec<_> =
            list.as_array().unwrap().iter().map(|state| state["lock"].as_str().unwrap()).collect();
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        assert_eq!(listed, sorted);
        for name in names {
            assert_eq!(self.status(name)["lock"], *name);
            self.home.run(["run", "-n", name, "--", "true"]).exits(75);
        }
        holders
    }

    #[track_caller]
    pub(crate) fn assert_nothing_is_left(&self) {
        self.server.assert_nothing_is_left();
    }
}

/// A holder of `demo` whose command writes its token to `held`, and ends when the file `stop` is there.
pub(crate) fn start_holder(home: &Home, args: &[&str]) -> Running {
    let script = "echo $FENCEPOST_TOKEN >held; while [ ! -e stop ]; do sleep 0.02; done";
    let args = args.iter().copied().chain(["demo", "--", "sh", "-c", script]);
    let run = home.start(["run"].into_iter().chain(args));
    home.await_line("held");
    run
}

pub(crate) fn await_renewals(home: &Home) {
    let renewals = || home.read("events").matches("\"renewed\"").count();
    let before = renewals();
    // The first ones may have been sent, or been proved, before now.
    eventually("renewals", || renewals() >= before + 4);
}
