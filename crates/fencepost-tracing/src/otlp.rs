//! The export of spans to a collector of OpenTelemetry: OTLP over HTTP, in protobuf.
//!
//! Spans are sent by a thread of its own, and never by who holds a lock. Invariant: a collector that is away or slow delays nothing;
//! spans are dropped then.

use std::error::Error as StdError;
use std::time::Duration;

use fencepost_core::{Error, ErrorKind, Result};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use crate::TARGET;

/// How long one request to the collector may take, and so the end of the export.
const SEND_MOST: Duration = Duration::from_secs(2);

/// An export that is under way.
#[derive(Debug)]
#[must_use = "what was not sent is lost unless the export is finished"]
pub struct Export(SdkTracerProvider);

/// Begins to export the spans of locks to the collector at `endpoint` (`http://localhost:4318`), as those of `service`. The program
/// must have no global subscriber of tracing; one that has adds [`Export::layer`] to it.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when the endpoint is no URL, or there is a subscriber already.
pub fn install(endpoint: &str, service: &str) -> Result<Export> {
    let export = export(endpoint, service)?;
    let subscriber = tracing_subscriber::registry().with(export.layer());
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| wrong("there is a subscriber already", error))?;
    Ok(export)
}

/// The same, for a subscriber to which [`Export::layer`] is added.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] when the endpoint is no URL.
pub fn export(endpoint: &str, service: &str) -> Result<Export> {
    // In a build with object stores the HTTP client has TLS and panics unless it knows whose, though it is not needed here. If
    // somebody has chosen already, that stays.
    drop(rustls::crypto::ring::default_provider().install_default());
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(SEND_MOST)
        .build()
        .map_err(|error| wrong(endpoint, error))?;
    let resource = Resource::builder().with_service_name(service.to_owned()).build();
    Ok(Export(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()))
}

impl Export {
    /// What a subscriber needs to export the spans of locks, and no others.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = self.0.tracer("fencepost");
        let only_locks = Targets::new().with_target(TARGET, tracing::Level::DEBUG);
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(only_locks)
    }

    /// Sends what has not been sent yet, and ends the export. Waits for a few seconds at most.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the collector did not take it.
    pub fn finish(self) -> Result<()> {
        // The end of the export alone would not say what has become of the spans.
        let sent = self.0.force_flush();
        let ended = self.0.shutdown_with_timeout(SEND_MOST);
        sent.and(ended).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "export the spans", "the collector did not take them")
                .caused_by(error)
        })
    }
}

fn wrong(what: &str, error: impl StdError + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::InvalidArgument, "export spans", what).caused_by(error)
}
