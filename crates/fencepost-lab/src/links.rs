//! The links of one worker: a proxy before each server of the lock, and one before the protected system.
//!
//! Each worker has its own, so that a fault on them is a fault of that worker alone.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost::BackendUrl;
use fencepost_testkit::proxy::{Mode, Proxy};

use crate::fault::Partition;
use crate::servers::{LockServers, PLAIN};

/// The links of one worker.
#[derive(Debug)]
pub(crate) struct Links {
    to_lock: Vec<Proxy>,
    /// None where the protected system is a file.
    to_sink: Option<Proxy>,
    backend: String,
    sink: String,
}

impl Links {
    pub(crate) fn new(
        servers: &dyn LockServers,
        sink: &BackendUrl,
        sink_address: Option<SocketAddr>,
    ) -> Self {
        let to_lock: Vec<Proxy> = servers.addresses().into_iter().map(Proxy::start).collect();
        let addresses: Vec<SocketAddr> = to_lock.iter().map(Proxy::address).collect();
        let to_sink = sink_address.map(Proxy::start);
        let replaced = |proxy: &Proxy| format!("postgres://postgres@{}/postgres?{PLAIN}", proxy.address());
        let url = to_sink.as_ref().map_or_else(|| sink.expose().to_owned(), replaced);
        Self { to_lock, to_sink, backend: servers.url(&addresses), sink: url }
    }

    /// The URL of the lock.
    pub(crate) fn backend(&self) -> &str {
        &self.backend
    }

    /// The URL of the protected system.
    pub(crate) fn sink(&self) -> &str {
        &self.sink
    }

    /// Whether a link to a server of the lock could fail.
    pub(crate) fn can_be_cut(&self) -> bool {
        !self.to_lock.is_empty()
    }

    /// Whether a write can be held up on its way.
    pub(crate) fn can_hold_a_write(&self) -> bool {
        self.to_sink.is_some()
    }

    /// Cuts the worker off from the servers of the lock.
    pub(crate) fn cut_off(&self, how: Partition, ttl: Duration) {
        let mode = match how {
            Partition::Blackhole => Mode::Blackhole,
            Partition::Cut => Mode::Cut,
            Partition::RepliesLost => Mode::ReplyHole,
            Partition::Slow => Mode::Delay(ttl * 2),
        };
        self.to_lock.iter().for_each(|proxy| proxy.set(mode));
    }

    /// Lets everything pass to the servers of the lock again.
    pub(crate) fn heal(&self) {
        self.to_lock.iter().for_each(|proxy| proxy.set(Mode::Pass));
    }

    /// Leads to other servers from now on; connections to the former ones end.
    pub(crate) fn lead_to(&self, addresses: &[SocketAddr]) {
        for (proxy, address) in self.to_lock.iter().zip(addresses) {
            proxy.redirect(*address);
            proxy.set(Mode::Cut);
            proxy.set(Mode::Pass);
        }
    }

    /// Holds up what the worker sends to the protected system.
    pub(crate) fn hold_writes(&self) {
        self.set_sink(Mode::RequestHole);
    }

    /// Delivers what was held up.
    pub(crate) fn deliver_writes(&self) {
        self.set_sink(Mode::Pass);
    }

    /// Whether something is held up that the worker has sent to the protected system.
    pub(crate) fn holds_a_write(&self) -> bool {
        self.to_sink.as_ref().is_some_and(|proxy| proxy.held_requests() > 0)
    }

    /// Whether everything has been delivered to the protected system, and the connections of a dead worker have ended.
    pub(crate) fn is_quiet(&self) -> bool {
        self.to_sink.as_ref().is_none_or(|proxy| proxy.connections() == 0)
    }

    fn set_sink(&self, mode: Mode) {
        if let Some(proxy) = &self.to_sink {
            proxy.set(mode);
        }
    }
}
