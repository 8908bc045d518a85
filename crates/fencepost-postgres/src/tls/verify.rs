//! Who a server has to be: nobody in particular, somebody whom an authority vouches for, or the one that was asked for.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use fencepost_core::{Error, ErrorKind, Result};
use fencepost_net::{Socket, beside};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::endpoint::{Endpoint, Identity, Roots, SslMode, Tls};
use crate::failure::unavailable;

/// What makes a connection an encrypted one.
pub(crate) type Connector = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;

/// Encryption with one server.
#[derive(Clone)]
pub(super) struct Encryption {
    maker: MakeRustlsConnect,
    name: String,
}

impl Encryption {
    pub(super) async fn to(endpoint: &Endpoint, name: &str) -> Result<Option<Self>> {
        let tls = endpoint.tls.clone();
        let config = if tls.roots == Roots::None && tls.identity.is_none() {
            // It reads no file.
            config(&tls)?
        } else {
            let config = beside(move || config(&tls)).await;
            config.map_err(|error| unavailable("no thread is left").caused_by(error))??
        };
        Ok(Some(Self { maker: MakeRustlsConnect::new(config), name: name.to_owned() }))
    }

    pub(super) fn connector(&self) -> Option<Connector> {
        // It cannot fail: the name is read when it is used.
        MakeTlsConnect::<Socket>::make_tls_connect(&mut self.maker.clone(), &self.name).ok()
    }
}

/// The configuration for `tls`. Blocks while it reads certificates.
fn config(tls: &Tls) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?;
    let authorities = match roots(&tls.roots)? {
        None => None,
        Some(roots) => {
            let built =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
            Some(built.map_err(|error| wrong(error.to_string()))?)
        }
    };
    let verifier =
        Arc::new(Verifier { authorities, looks_at_name: tls.mode == SslMode::VerifyFull, provider });
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match &tls.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let (certificates, key) = read_identity(identity)?;
            let fits = builder.with_client_auth_cert(certificates, key);
            fits.map_err(|error| wrong(format!("{} does not fit: {error}", identity.key.display())))
        }
    }
}

fn roots(roots: &Roots) -> Result<Option<RootCertStore>> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::None => return Ok(None),
        Roots::System => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Roots::File(file) => {
            for certificate in read_certificates(file)? {
                store.add(certificate).map_err(|error| unreadable(file, error))?;
            }
        }
    }
    if store.is_empty() {
        let whose = match roots {
            Roots::File(file) => format!("{} holds no certificate", file.display()),
            _ => "the system trusts no certificates".to_owned(),
        };
        return Err(wrong(whose));
    }
    Ok(Some(store))
}

fn read_identity(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificates = read_certificates(&identity.certificate)?;
    let found = std::fs::metadata(&identity.key).map_err(|error| unreadable(&identity.key, error))?;
    // One of root's may be readable by its group, as libpq has it.
    let forbidden = if found.uid() == 0 { 0o027 } else { 0o077 };
    if found.mode() & forbidden != 0 {
        let what = format!("the key {} can be read by others", identity.key.display());
        return Err(wrong(what).hint("take their permissions away: chmod 600"));
    }
    let key =
        PrivateKeyDer::from_pem_file(&identity.key).map_err(|error| unreadable(&identity.key, error))?;
    Ok((certificates, key))
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<std::result::Result<Vec<_>, _>>();
    read().map_err(|error| unreadable(file, error))
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "connect", what)
}

fn unreadable(file: &Path, error: impl std::fmt::Display) -> Error {
    wrong(format!("{} cannot be read: {error}", file.display()))
}

/// Verifies a server as far as the mode asks for. The channel itself is always verified.
#[derive(Debug)]
struct Verifier {
    /// Who may vouch for the server; with nobody it may be anyone, as libpq has it without a root certificate.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    looks_at_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        let verified =
            authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last: everything else was in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.looks_at_name => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
