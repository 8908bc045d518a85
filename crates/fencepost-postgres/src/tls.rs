//! TLS as `sslmode` says, with libpq's meaning of each.

#[cfg(feature = "tls")]
use std::sync::Arc;

use fencepost_core::{Error, ErrorKind, Result};
use tokio_postgres::config::{ChannelBinding, SslMode};

use crate::endpoint::{self, Endpoint, Host};
#[cfg(feature = "tls")]
use crate::socket::{Socket, beside};

/// How a connection is encrypted.
#[derive(Clone)]
pub(crate) struct Transport {
    mode: SslMode,
    channel_binding: ChannelBinding,
    #[cfg(feature = "tls")]
    with: Option<(Arc<rustls::ClientConfig>, String)>,
}

/// What makes a connection an encrypted one.
#[cfg(feature = "tls")]
pub(crate) type Connector =
    <tokio_postgres_rustls::MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::TlsConnect;

impl Transport {
    /// The transport to a host. A socket of the same host is never encrypted.
    ///
    /// # Errors
    /// `InvalidArgument` where a certificate cannot be read, `Unsupported` where this build has no TLS.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "certificates are read beside"))]
    pub(crate) async fn to(endpoint: &Endpoint, host: &Host) -> Result<Self> {
        let mode = match host {
            Host::Socket { .. } => SslMode::Disable,
            Host::Network { .. } => mode(endpoint.tls.mode),
        };
        let channel_binding = match endpoint.tls.channel_binding {
            endpoint::ChannelBinding::Disable => ChannelBinding::Disable,
            endpoint::ChannelBinding::Prefer => ChannelBinding::Prefer,
            endpoint::ChannelBinding::Require => ChannelBinding::Require,
        };
        #[cfg(feature = "tls")]
        {
            let Host::Network { name, .. } = host else {
                return Ok(Self { mode, channel_binding, with: None });
            };
            if mode == SslMode::Disable {
                return Ok(Self { mode, channel_binding, with: None });
            }
            let tls = endpoint.tls.clone();
            let config = beside(move || verify::config(&tls)).await;
            let config = config
                .map_err(|error| crate::failure::unavailable("no thread is left").caused_by(error))??;
            Ok(Self { mode, channel_binding, with: Some((config, name.clone())) })
        }
        #[cfg(not(feature = "tls"))]
        match mode {
            SslMode::Require => {
                let what = format!("this build of fencepost has no TLS to talk to {host}");
                Err(Error::new(ErrorKind::Unsupported, "connect", what))
            }
            _ => Ok(Self { mode: SslMode::Disable, channel_binding }),
        }
    }

    /// Says so to the client library.
    pub(crate) fn apply_to(&self, config: &mut tokio_postgres::Config) {
        config.ssl_mode(self.mode).channel_binding(self.channel_binding);
    }

    /// What encrypts, where something does.
    #[cfg(feature = "tls")]
    pub(crate) fn connector(&self) -> Option<Connector> {
        use tokio_postgres::tls::MakeTlsConnect;
        let (config, name) = self.with.as_ref()?;
        let mut maker = tokio_postgres_rustls::MakeRustlsConnect::new(config.as_ref().clone());
        // It cannot fail: the name is read when it is used.
        MakeTlsConnect::<Socket>::make_tls_connect(&mut maker, name).ok()
    }
}

/// What is only allowed is taken where it is to be had, which is never weaker.
fn mode(mode: endpoint::SslMode) -> SslMode {
    match mode {
        endpoint::SslMode::Disable => SslMode::Disable,
        endpoint::SslMode::Allow | endpoint::SslMode::Prefer => SslMode::Prefer,
        endpoint::SslMode::Require | endpoint::SslMode::VerifyCa | endpoint::SslMode::VerifyFull => {
            SslMode::Require
        }
    }
}

#[cfg(feature = "tls")]
mod verify;

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "connect", what)
}
