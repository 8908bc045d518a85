//! How an etcd server is to be started.

use std::process::Command;

use super::{EtcdServer, Ports, peer_url};
use crate::servers::certificates::Certificates;

/// How an etcd server is to be started.
#[derive(Clone, Debug, Default)]
pub struct EtcdSetup {
    arguments: Vec<String>,
    has_tls: bool,
    asks_for_certificates: bool,
}

impl EtcdSetup {
    /// Adds arguments of `etcd`: `["--election-timeout", "1000"]`. Those that come later count.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Serves clients by TLS alone.
    pub fn tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// The same, and asks them for a certificate of the same authority.
    pub fn client_certificates(mut self) -> Self {
        self.asks_for_certificates = true;
        self.tls()
    }

    /// Starts one node and waits until it answers.
    ///
    /// # Panics
    /// When it is not installed, or ends instead of answering; the message then holds what it said.
    pub fn start(self) -> EtcdServer {
        self.try_start().unwrap_or_else(|message| panic!("{message}"))
    }

    /// The same, for a program that has users: a server that does not start is no panic.
    ///
    /// # Errors
    /// What the server said last.
    ///
    /// # Panics
    /// When it is not [installed](crate::servers::is_installed).
    pub fn try_start(self) -> Result<EtcdServer, String> {
        let ports = Ports::reserve();
        let members = format!("a={}", peer_url(&ports));
        let mut server = EtcdServer::new("a", ports, &members, &self);
        server.launch();
        server.becomes_ready().map(|()| server)
    }

    pub(super) fn has_tls(&self) -> bool {
        self.has_tls
    }

    pub(super) fn apply_to(&self, command: &mut Command, certificates: Option<&Certificates>) {
        command.args(DEFAULTS);
        if let Some(certificates) = certificates {
            command.arg("--cert-file").arg(certificates.certificate());
            command.arg("--key-file").arg(certificates.key());
        }
        if let Some(certificates) = certificates.filter(|_| self.asks_for_certificates) {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(certificates.authority());
        }
        command.args(&self.arguments);
    }
}

/// Nothing waits for the disk, and no login for a hash that is slow on purpose. By its election timeout the shortest lease is a
/// second.
const DEFAULTS: [&str; 7] =
    ["--unsafe-no-fsync", "--heartbeat-interval", "50", "--election-timeout", "500", "--bcrypt-cost", "4"];
