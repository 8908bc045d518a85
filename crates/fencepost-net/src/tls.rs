//! TLS: with the authorities that the system trusts, or a file names; `SSL_CERT_FILE` names others for the system's.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_core::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{Address, Socket, Trust};

type Protocols = Vec<Vec<u8>>;

type Known = HashMap<(Trust, Protocols), Arc<ClientConfig>>;

/// The configuration for `trust`, which is read once a process. Blocks while it reads certificates.
///
/// # Errors
/// `InvalidArgument` where a file cannot be read, or nobody is trusted.
pub fn config(trust: &Trust, protocols: Protocols) -> Result<Arc<ClientConfig>> {
    static CONFIGS: Mutex<Option<Known>> = Mutex::new(None);
    let mut configs = CONFIGS.lock().unwrap_or_else(PoisonError::into_inner);
    let configs = configs.get_or_insert_default();
    let key = (trust.clone(), protocols);
    if let Some(config) = configs.get(&key) {
        return Ok(Arc::clone(config));
    }
    let config = Arc::new(read(&key.0, &key.1)?);
    configs.insert(key, Arc::clone(&config));
    Ok(config)
}

fn read(trust: &Trust, protocols: &Protocols) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots(trust.authorities.as_deref())?);
    let mut config = match &trust.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificates = certificates(certificate)?;
            let read = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
            let fits = builder.with_client_auth_cert(certificates, read);
            fits.map_err(|error| wrong(format!("{} does not fit: {error}", key.display())))?
        }
    };
    config.alpn_protocols.clone_from(protocols);
    Ok(config)
}

fn roots(file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let hint = "install the package ca-certificates, or name a file in SSL_CERT_FILE";
        let is_empty = roots.is_empty();
        return if is_empty { Err(wrong("the system trusts no certificates").hint(hint)) } else { Ok(roots) };
    };
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| unreadable(file, error))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(file, error))?;
    let certificates = read.collect::<std::result::Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| unreadable(file, error))?;
    if certificates.is_empty() {
        return Err(wrong(format!("{} holds no certificate", file.display())));
    }
    Ok(certificates)
}

/// Encrypts a connection to `address`.
pub(crate) async fn encrypt(
    socket: Socket,
    address: &Address,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<Socket>> {
    let name = ServerName::try_from(address.host.clone())
        .map_err(|_| wrong(format!("{:?} is no name that a certificate can have", address.host)))?;
    let encrypted = TlsConnector::from(config).connect(name, socket).await;
    encrypted.map_err(|error| {
        // A peer that is not whom we trust is an answer; everything else may be gone the next time.
        let is_mistrusted = error
            .get_ref()
            .is_some_and(|cause| matches!(cause.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))));
        let kind = if is_mistrusted { ErrorKind::Denied } else { ErrorKind::Unavailable };
        Error::new(kind, "connect", format!("TLS with {address}")).caused_by(error)
    })
}

fn unreadable(file: &Path, error: impl std::fmt::Display) -> Error {
    wrong(format!("{}: {error}", file.display()))
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, "connect", what.into())
}
