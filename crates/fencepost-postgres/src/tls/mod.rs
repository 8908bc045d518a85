//! TLS as `sslmode` says, with libpq's meaning of each.

#[cfg(not(feature = "tls"))]
mod none;
#[cfg(feature = "tls")]
mod verify;

use fencepost_core::Result;
use tokio_postgres::config::{ChannelBinding, SslMode};

use crate::endpoint::{self, Endpoint, Host};

#[cfg(not(feature = "tls"))]
pub(crate) use none::Connector;
#[cfg(not(feature = "tls"))]
use none::Encryption;
#[cfg(feature = "tls")]
pub(crate) use verify::Connector;
#[cfg(feature = "tls")]
use verify::Encryption;

/// How a connection is encrypted.
#[derive(Clone)]
pub(crate) struct Transport {
    mode: SslMode,
    channel_binding: ChannelBinding,
    encryption: Option<Encryption>,
}

impl Transport {
    /// The transport to a host. A socket of the same host is never encrypted.
    ///
    /// # Errors
    /// `InvalidArgument` where a certificate cannot be read, `Unsupported` where this build has no TLS.
    pub(crate) async fn to(endpoint: &Endpoint, host: &Host) -> Result<Self> {
        let channel_binding = match endpoint.tls.channel_binding {
            endpoint::ChannelBinding::Disable => ChannelBinding::Disable,
            endpoint::ChannelBinding::Prefer => ChannelBinding::Prefer,
            endpoint::ChannelBinding::Require => ChannelBinding::Require,
        };
        let encryption = match host {
            Host::Network { name, .. } if mode(endpoint) != SslMode::Disable => {
                Encryption::to(endpoint, name).await?
            }
            _ => None,
        };
        let mode = if encryption.is_some() { mode(endpoint) } else { SslMode::Disable };
        Ok(Self { mode, channel_binding, encryption })
    }

    /// Says so to the client library.
    pub(crate) fn apply_to(&self, config: &mut tokio_postgres::Config) {
        config.ssl_mode(self.mode).channel_binding(self.channel_binding);
    }

    /// What encrypts, where something does.
    pub(crate) fn connector(&self) -> Option<Connector> {
        self.encryption.as_ref().and_then(Encryption::connector)
    }
}

/// What is only allowed is taken where it is to be had, which is never weaker.
fn mode(endpoint: &Endpoint) -> SslMode {
    match endpoint.tls.mode {
        endpoint::SslMode::Disable => SslMode::Disable,
        endpoint::SslMode::Allow | endpoint::SslMode::Prefer => SslMode::Prefer,
        endpoint::SslMode::Require | endpoint::SslMode::VerifyCa | endpoint::SslMode::VerifyFull => {
            SslMode::Require
        }
    }
}
