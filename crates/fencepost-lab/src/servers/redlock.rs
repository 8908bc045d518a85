//! Five Redis that know nothing of each other. What is done, is done to a majority: a minority changes nothing.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_testkit::servers::RedisServer;

use super::redis::{address, start};
use super::surroundings::expect_clock;
use super::{Done, LockServers, QUARANTINE, pass};
use crate::fault::Loss;

/// Five Redis.
#[derive(Debug)]
pub(super) struct FiveRedis(Vec<RedisServer>);

impl FiveRedis {
    pub(super) fn start() -> Result<Self, String> {
        (0..NODES).map(|_| start()).collect::<Result<_, _>>().map(Self)
    }

    fn majority(&mut self) -> impl Iterator<Item = &mut RedisServer> {
        self.0.iter_mut().take(NODES / 2 + 1)
    }
}

impl LockServers for FiveRedis {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(address).collect()
    }

    fn url(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("redlock://{}?{QUARANTINE}", hosts.join(","))
    }

    fn step_clock(&mut self, by: Duration) -> Done {
        expect_clock()?;
        self.majority().for_each(|server| server.step_clock_forward(by));
        Ok(())
    }

    fn step_clock_back(&mut self, by: Duration) -> Done {
        self.majority().for_each(|server| server.step_clock_back(by));
        Ok(())
    }

    fn restart(&mut self, after: Duration) -> Done {
        self.majority().for_each(RedisServer::kill);
        pass(after);
        self.majority().try_for_each(RedisServer::try_restart)
    }

    fn lose(&mut self, _: Loss) -> Done {
        self.majority().try_for_each(RedisServer::try_restart_empty)
    }
}

const NODES: usize = 5;
