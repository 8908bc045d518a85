//! A build without TLS: what may be unencrypted is.

use fencepost_core::{Error, ErrorKind, Result};
use tokio_postgres::NoTls;

use crate::endpoint::{Endpoint, SslMode};

/// What would make a connection an encrypted one.
pub(crate) type Connector = NoTls;

/// There is none.
#[derive(Clone)]
pub(super) enum Encryption {}

impl Encryption {
    #[expect(clippy::unused_async, reason = "with TLS it has to wait")]
    pub(super) async fn to(endpoint: &Endpoint, name: &str) -> Result<Option<Self>> {
        if endpoint.tls.mode < SslMode::Require {
            return Ok(None);
        }
        let what = format!("this build of fencepost has no TLS to talk to {name}");
        Err(Error::new(ErrorKind::Unsupported, "connect", what))
    }

    pub(super) fn connector(&self) -> Option<Connector> {
        match *self {}
    }
}
