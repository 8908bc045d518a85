//! TLS with the certificates that the system trusts; `SSL_CERT_FILE` names others.

use std::sync::{Arc, Mutex};

use fencepost_core::{Error, ErrorKind, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::session::lock;

/// A client that talks to `host`. Blocks while it reads the certificates, once a process.
pub(crate) fn client(host: &str) -> Result<ClientConnection> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| wrong(format!("{host:?} is no name that a certificate can have")))?;
    ClientConnection::new(config()?, name).map_err(|error| wrong(error.to_string()))
}

fn config() -> Result<Arc<ClientConfig>> {
    static CONFIG: Mutex<Option<Arc<ClientConfig>>> = Mutex::new(None);
    let mut config = lock(&CONFIG);
    if let Some(config) = &*config {
        return Ok(Arc::clone(config));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let hint = "install the package ca-certificates, or name a file in SSL_CERT_FILE";
        return Err(wrong("the system trusts no certificates".to_owned()).hint(hint));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let built = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::clone(config.insert(Arc::new(built))))
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "connect", what)
}
