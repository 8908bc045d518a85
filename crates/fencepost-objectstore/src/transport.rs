//! HTTP for the client of the object store: TLS by rustls with ring, as everywhere in fencepost.
//!
//! Invariant: no redirection is followed. Some turn a put into a get, whose success would be taken for that of the put.

use std::sync::Arc;
use std::time::Duration;

use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};

/// How long a connection may take.
const CONNECT_MOST: Duration = Duration::from_secs(3);

/// What connects.
#[derive(Debug)]
pub(crate) struct Transport;

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let may_be_plain = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls()?)
            .https_only(!may_be_plain)
            .http1_only()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_MOST)
            .build();
        client.map(HttpClient::new).map_err(failure)
    }
}

fn tls() -> object_store::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config.map_err(failure)?.with_root_certificates(roots).with_no_client_auth())
}

fn failure(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic { store: "HTTP", source: Box::new(error) }
}
