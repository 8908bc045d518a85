//! One node of `ZooKeeper`. Its own tests are the place for ensembles; here it stands for the service that a worker talks to.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_testkit::servers::{ZooKeeperServer, ZooKeeperSetup, missing_archive};

use super::{Done, LockServers, pass};

/// One node.
#[derive(Debug)]
pub(super) struct OneZooKeeper(ZooKeeperServer);

impl OneZooKeeper {
    pub(super) fn start() -> Result<Self, String> {
        // The server is a program of Java's, in a few archives.
        if let Some((archive, package)) = missing_archive() {
            return Err(format!("{archive} is missing; the package {package} has it"));
        }
        ZooKeeperSetup::default().try_start().map(Self)
    }
}

impl LockServers for OneZooKeeper {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.0.address()]
    }

    fn url(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    fn restart(&mut self, after: Duration) -> Done {
        self.0.kill();
        pass(after);
        self.0.try_restart()
    }
}
