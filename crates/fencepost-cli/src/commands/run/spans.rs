//! The spans of a run, on their way to a collector of OpenTelemetry, where the environment names one.
//!
//! Begun after the guardian was forked, because it starts a thread, and ended after the locks were given back: a collector that is
//! away delays no lock.

use std::sync::Arc;

use fencepost::Lock;
use fencepost::tracing::Spans;
use fencepost::tracing::otlp::{self, Export};

use crate::printer::Printer;

/// As all programs that send to a collector have it.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// Begins to export, if the environment says where to.
pub(super) fn begin(printer: Printer) -> Option<Export> {
    let endpoint = std::env::var(ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty())?;
    let service = std::env::var(SERVICE).unwrap_or_else(|_| "fencepost".to_owned());
    let begun = otlp::install(&endpoint, &service);
    begun.map_err(|error| printer.warn(format_args!("{ENDPOINT}: {error}"))).ok()
}

/// The lock, with spans of its attempts and leases.
pub(super) fn observed(lock: Lock) -> Lock {
    lock.observer(Arc::new(Spans))
}

/// Sends what is left.
pub(super) fn finish(export: Option<Export>, printer: Printer) {
    if let Some(Err(error)) = export.map(Export::finish) {
        printer.warn(error);
    }
}
