//! `run`, `status` and `list` with locks on one Redis.
//!
//! What it does as other servers do is in `on_servers/`.

mod apart;
mod ending;
mod fences;
mod killed;
mod locks;
mod network;
mod refusing;
mod restarts;
mod stopped;

use std::net::SocketAddr;

use fencepost_testkit::servers::{RedisServer, Reply};

use crate::scene::Server;
use crate::support::{all_end, eventually, json, number};

/// A server, the proxy in front of it, and a home whose locks are on the server.
type Scene = crate::scene::Scene<RedisServer>;

impl Server for RedisServer {
    const KIND: &'static str = "redis";
    const STORM_TTL: &'static str = "400ms";

    fn begin() -> Self {
        Self::start()
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port()).into()
    }

    /// A server that was just started knows of no lock, and would be in quarantine for the first minute.
    fn url_at(address: SocketAddr) -> String {
        format!("redis://{address}?quarantine=off")
    }

    fn stop(&self) {
        Self::stop(self);
    }

    fn go_on(&self) {
        Self::go_on(self);
    }

    fn has_place(&self, lock: &str) -> bool {
        self.command(&["EXISTS", &format!("fencepost:{{{lock}}}:l")]).integer() == 1
    }

    /// Their tokens are left.
    fn assert_nothing_is_left(&self) {
        // What says that an attempt is over outlives it, because a request may still be on its way; and the last place in a
        // queue outlives the queue for some seconds.
        let left = |key: &String| {
            let stays = key.ends_with("}:s") || key.ends_with("}:n") || key.contains("}:x:");
            key.starts_with("fencepost:{") && !stays
        };
        let left: Vec<String> = keys(self).into_iter().filter(left).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_all_expire(self);
    }

    fn assert_nothing_lasts(&self) {
        assert_all_expire(self);
        eventually("nothing held", || !self.has_place("demo"));
    }

    fn disturb(&self, chance: u64) {
        match chance {
            0 => drop(self.command(&["SCRIPT", "FLUSH"])),
            1 => drop(self.command(&["CLIENT", "KILL", "TYPE", "pubsub"])),
            2 => self.stop(),
            _ => {}
        }
    }
}

/// The names of all keys, in order.
fn keys(server: &RedisServer) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let mut keys: Vec<String> = keys.array().iter().map(|key| key.text().to_owned()).collect();
    keys.sort();
    keys
}

/// Asserts that no key is without an expiry but those that the README of the backend names.
#[track_caller]
fn assert_all_expire(server: &RedisServer) {
    let lasting: Vec<String> =
        keys(server).into_iter().filter(|key| server.command(&["PTTL", key]) == Reply::Integer(-1)).collect();
    assert_eq!(lasting, ["fencepost:cfg", "fencepost:inc"]);
}

fn url(server: &RedisServer) -> String {
    RedisServer::url_at(server.address())
}
