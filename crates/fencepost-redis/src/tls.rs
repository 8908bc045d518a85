//! TLS with the certificates that the system trusts; `SSL_CERT_FILE` names others.

use std::sync::Arc;

use fencepost_core::{Error, ErrorKind, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// A client that talks to `host`.
pub(crate) fn client(host: &str) -> Result<ClientConnection> {
    let wrong = |what: String| Error::new(ErrorKind::InvalidArgument, "connect", what);
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| wrong(format!("{host:?} is no name that a certificate can have")))?;
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let hint = "install the package ca-certificates, or name a file in SSL_CERT_FILE";
        return Err(wrong("the system trusts no certificates".to_owned()).hint(hint));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), name).map_err(|error| wrong(error.to_string()))
}
