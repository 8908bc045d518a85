//! `run`, `status` and `list` with locks in a Postgres database.
//!
//! What it does as other servers do is in `on_servers/`.

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

use std::net::SocketAddr;

use fencepost_testkit::servers::PostgresServer;

use crate::scene::Server;
use crate::support::{Home, all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
type Scene = crate::scene::Scene<PostgresServer>;

impl Scene {
    /// A home whose locks are at the server's URL with these options.
    fn with(options: &str) -> Self {
        let mut scene = Self::new();
        scene.home = Home::on(&scene.url_with(options));
        scene
    }

    /// The server's process behind the session that holds the lock.
    fn holding(&self, lock: &str) -> Option<u32> {
        holding(&self.server, lock)
    }

    /// The number of sessions that fencepost has on the server.
    fn sessions(&self) -> u64 {
        sessions(&self.server)
    }
}

impl Server for PostgresServer {
    const KIND: &'static str = "postgres";

    fn begin() -> Self {
        Self::start()
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port()).into()
    }

    fn url_at(address: SocketAddr) -> String {
        format!("postgres://postgres@{address}/postgres")
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn go_on(&self) {
        Self::go_on(self);
    }

    fn has_place(&self, lock: &str) -> bool {
        holding(self, lock).is_some()
    }

    /// After a moment nobody has a session, and with it a lock or a place in a queue.
    fn assert_nothing_is_left(&self) {
        eventually("no session", || sessions(self) == 0);
        assert_eq!(self.query("select count(*) from pg_locks where locktype = 'advisory'"), "0");
    }
}

fn holding(server: &PostgresServer, lock: &str) -> Option<u32> {
    let pid = server.query(&format!(
        "select k.pid from pg_locks k join fencepost.lock l on l.id = k.objid
         where k.classid = {LOCK} and k.objsubid = 2 and k.granted and l.name = '{lock}'"
    ));
    (!pid.is_empty()).then(|| pid.parse().unwrap())
}

fn sessions(server: &PostgresServer) -> u64 {
    number(&server.query(
        "select count(*) from pg_stat_activity where application_name = 'fencepost' and pid <> pg_backend_pid()",
    ))
}

/// The first part of the keys of locks.
const LOCK: u32 = 1_717_923_427;
