//! One node of etcd. Its own tests are the place for ensembles; here it stands for the service that a worker talks to.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_testkit::servers::{EtcdServer, EtcdSetup};

use super::{Done, LockServers, pass};

/// One node.
#[derive(Debug)]
pub(super) struct OneEtcd(EtcdServer);

impl OneEtcd {
    pub(super) fn start() -> Result<Self, String> {
        EtcdSetup::default().try_start().map(Self)
    }
}

impl LockServers for OneEtcd {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.0.address()]
    }

    fn url(&self, addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("etcd://{}", hosts.join(","))
    }

    fn restart(&mut self, after: Duration) -> Done {
        self.0.kill();
        pass(after);
        self.0.try_restart()
    }
}
