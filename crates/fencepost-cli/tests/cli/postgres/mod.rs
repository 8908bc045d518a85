//! `run`, `status` and `list` with locks in a Postgres database: a real server, and a proxy in front of it that fails as told.
//!
//! Whoever is to suffer goes through the proxy; everybody else goes straight to the server.

mod crowds;
mod killed;
mod locks;
mod looking;
mod lost;
mod network;
mod poolers;
mod reaching;
mod refusing;
mod stopped;
mod storm;

use fencepost_testkit::proxy::Proxy;
use fencepost_testkit::servers::PostgresServer;
use serde_json::Value;

use crate::support::{Home, Running, all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
struct Scene {
    home: Home,
    server: PostgresServer,
    proxy: Proxy,
}

impl Scene {
    fn new() -> Self {
        Self::of(PostgresServer::start())
    }

    fn of(server: PostgresServer) -> Self {
        let home = Home::on(&server.url());
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into());
        Self { home, server, proxy }
    }

    /// A home whose locks are at the server's URL with these options.
    fn with(options: &str) -> Self {
        let mut scene = Self::new();
        scene.home = Home::on(&format!("{}?{options}", scene.server.url()));
        scene
    }

    /// The server's URL by way of the proxy.
    fn through(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.proxy.address())
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

    fn waiters(&self, lock: &str) -> usize {
        self.status(lock)["waiters"].as_array().unwrap().len()
    }

    /// The server's process behind the session that holds the lock.
    fn holding(&self, lock: &str) -> Option<u32> {
        let pid = self.server.query(&format!(
            "select k.pid from pg_locks k join fencepost.lock l on l.id = k.objid
             where k.classid = {LOCK} and k.objsubid = 2 and k.granted and l.name = '{lock}'"
        ));
        (!pid.is_empty()).then(|| pid.parse().unwrap())
    }

    /// The number of sessions that fencepost has on the server.
    fn sessions(&self) -> u64 {
        number(&self.server.query(
            "select count(*) from pg_stat_activity where application_name = 'fencepost' and pid <> pg_backend_pid()",
        ))
    }

    /// Asserts that after a moment nobody has a session, and with it a lock or a place in a queue.
    #[track_caller]
    fn assert_nothing_is_left(&self) {
        eventually("no session", || self.sessions() == 0);
        assert_eq!(self.server.query("select count(*) from pg_locks where locktype = 'advisory'"), "0");
    }

    /// Ends the command of [`start_holder`](Self::start_holder).
    #[track_caller]
    fn end(&self, holder: Running) {
        self.home.write("stop", "");
        holder.ends().exits(0);
    }
}

/// The first part of the keys of locks.
const LOCK: u32 = 1_717_923_427;
