//! One Redis, which writes down what it is told, and a copy of it that can be made to take its place.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fencepost_testkit::servers::{RedisServer, RedisSetup, Reply};

use super::surroundings::{expect_clock, has_clock};
use super::{Done, LockServers, QUARANTINE, pass};
use crate::fault::Loss;

/// One Redis.
#[derive(Debug)]
pub(super) struct OneRedis {
    server: RedisServer,
    /// A copy that has stopped to follow it.
    copy: Option<RedisServer>,
}

impl OneRedis {
    pub(super) fn start() -> Result<Self, String> {
        Ok(Self { server: start()?, copy: None })
    }
}

impl LockServers for OneRedis {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![address(&self.server)]
    }

    fn url(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("redis://{}?{QUARANTINE}", hosts.join(","))
    }

    fn copy(&mut self) -> Done {
        let copy = start()?;
        follow_for_a_moment(&copy, &self.server)?;
        self.copy = Some(copy);
        Ok(())
    }

    fn step_clock(&mut self, by: Duration) -> Done {
        expect_clock()?;
        self.server.step_clock_forward(by);
        Ok(())
    }

    fn step_clock_back(&mut self, by: Duration) -> Done {
        self.server.step_clock_back(by);
        Ok(())
    }

    fn restart(&mut self, after: Duration) -> Done {
        self.server.kill();
        pass(after);
        self.server.try_restart()
    }

    fn lose(&mut self, how: Loss) -> Done {
        match (how, self.copy.take()) {
            (Loss::OldCopy, Some(copy)) => {
                self.server = copy;
                Ok(())
            }
            _ => self.server.try_restart_empty(),
        }
    }
}

/// A server that writes down what it is told, with a clock of its own where one can be made.
pub(super) fn start() -> Result<RedisServer, String> {
    let setup = RedisSetup::default().arguments(&["--appendonly", "yes", "--repl-diskless-load", "disabled"]);
    if has_clock() { setup.own_clock().try_start() } else { setup.try_start() }
}

/// Makes a copy of what a server knows now, and of nothing that comes.
fn follow_for_a_moment(copy: &RedisServer, server: &RedisServer) -> Done {
    let port = server.port().to_string();
    ask(copy, &["REPLICAOF", "127.0.0.1", &port])?;
    let is_linked = || ask(copy, &["INFO", "replication"]).is_ok_and(|text| text.contains(LINKED));
    if !crate::crew::holds_within(LINKING, is_linked) {
        return Err("the copy of a Redis does not follow it".to_owned());
    }
    ask(copy, &["REPLICAOF", "NO", "ONE"]).map(drop)
}

fn ask(server: &RedisServer, words: &[&str]) -> Result<String, String> {
    let reply = server.client().and_then(|mut client| client.command(words));
    match reply.map_err(|error| format!("a Redis does not answer: {error}"))? {
        Reply::Error(why) => Err(format!("a Redis refuses {}: {why}", words.join(" "))),
        Reply::Text(text) => Ok(text),
        _ => Ok(String::new()),
    }
}

pub(super) fn address(server: &RedisServer) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, server.port()).into()
}

const LINKED: &str = "master_link_status:up";
const LINKING: Duration = Duration::from_secs(10);
