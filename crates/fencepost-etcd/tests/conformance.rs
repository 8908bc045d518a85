//! The suite that every backend runs, on one real node.

use fencepost_core::{Clock, Locks};
use fencepost_etcd::EtcdBackend;
use fencepost_testkit::Harness;
use fencepost_testkit::servers::EtcdServer;

struct Node(EtcdServer);

impl Harness for Node {
    fn start() -> Self {
        Self(EtcdServer::start())
    }

    fn locks(&self) -> Locks {
        at(&self.0.url())
    }

    fn address(&self) -> Option<String> {
        Some(self.0.url())
    }

    fn from_address(address: &str) -> Locks {
        at(address)
    }
}

fn at(url: &str) -> Locks {
    let url = url.parse().expect("an address is a URL");
    Locks::new(EtcdBackend::from_url(&url, Clock::system()).expect("the URL names servers"))
}

fencepost_testkit::conformance!(Node, if etcd_server);
