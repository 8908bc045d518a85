//! An HTTP service that takes results of jobs, and refuses those of a holder that was paused past its lease.
//!
//! `PUT /results/LOCK` needs the stamp of the lock. The layer refuses early; the check that counts is in `publish`, in the
//! same step as the write. Try it with `cargo run -p fencepost --features http --example axum_fence`.

use std::fs;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::put;
use axum::{Extension, Router};
use fencepost::http::{FencingLayer, status_of};
use fencepost::{BackendUrl, Error, ErrorKind, Fence, LockName, Result, Stamp};
use percent_encoding::percent_decode_str;

/// The service whose results, and marks, lie in the directory of `url`.
pub(crate) fn service(url: BackendUrl, fence: Arc<dyn Fence>) -> Router {
    let layer = FencingLayer::lock_from(fence, lock_of);
    Router::new().route("/results/{lock}", put(publish)).route_layer(layer).with_state(Arc::new(url))
}

/// The lock that protects what a request changes: its path says that, and never its stamp.
fn lock_of(request: &Parts) -> Result<LockName> {
    let name = request.uri.path().trim_start_matches("/results/");
    let name = percent_decode_str(name).decode_utf8().map_err(|_| {
        Error::new(ErrorKind::InvalidArgument, "read the lock of the request", "the path is not UTF-8")
    })?;
    name.parse()
}

/// Makes the body the current result of the lock, if the stamp is the sealed one even now.
async fn publish(
    State(url): State<Arc<BackendUrl>>,
    Extension(stamp): Extension<Stamp>,
    body: Bytes,
) -> std::result::Result<String, (StatusCode, String)> {
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    fs::write(file.path(), body).map_err(failed)?;
    let published = fencepost::publish(&url, &stamp, file.path()).await;
    published.map_err(|error| (status_of(&error), error.to_string()))?;
    Ok(format!("published under {}\n", stamp.token))
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes it so")]
fn failed(error: std::io::Error) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let url: BackendUrl = "file:/var/lib/results".parse()?;
    let fence = fencepost::fence(&url)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, service(url, fence)).await?;
    Ok(())
}
