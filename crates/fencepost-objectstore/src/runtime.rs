//! The thread on which the client of the object store runs, since it needs an async runtime and fencepost has none.
//!
//! It is started by the first call, not by a constructor, and is shared by all fences of the process.

use std::future::pending;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use fencepost_core::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

/// Does `work` on the runtime's thread, for whoever waits under any executor.
///
/// # Cancel safety
/// When it is dropped, the work ends at its next await.
pub(crate) async fn run<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    Task(handle()?.spawn(work)).await
}

/// Work that ends with the wish for its result.
struct Task<T>(JoinHandle<Result<T>>);

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0).poll(context).map(|answer| {
            answer.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Unexpected, USE, "its thread has ended").caused_by(error))
            })
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn handle() -> Result<&'static Handle> {
    static HANDLE: OnceLock<std::io::Result<Handle>> = OnceLock::new();
    HANDLE.get_or_init(start).as_ref().map_err(|error| {
        let what = format!("the system refuses a thread or a descriptor: {error}");
        Error::new(ErrorKind::Unavailable, USE, what)
    })
}

fn start() -> std::io::Result<Handle> {
    // The second thread that there can be looks up names and reads files, which blocks.
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("fencepost-objects".to_owned());
    thread.spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

const USE: &str = "use the object store";
