//! Signals that locks may have changed: a watch on the keys of all of them.
//!
//! Invariant: signals that have ceased to come end, also those of a member that stands still.

use std::time::Duration;

use fencepost_core::{NamePrefix, Result, until};
use futures_util::stream::{BoxStream, StreamExt, unfold};

use crate::failure::unavailable;
use crate::keys::Names;
use crate::server::{ONCE, Server, TRY_MOST};
use crate::watch::{Heard, Subject, Watch};

/// How long nothing is heard before a member is asked whether it is still there.
const SILENT_MOST: Duration = Duration::from_secs(5);

/// Signals that begin now: what changes after this is signalled.
///
/// # Cancel safety
/// Dropping it, or the signals, ends the watch.
///
/// # Errors
/// `Unavailable` when no member begins a watch.
pub(crate) async fn signals(server: &Server, prefix: &NamePrefix) -> Result<BoxStream<'static, ()>> {
    let names = Names::of(server.root(), prefix);
    for _ in 0..=server.members().count() {
        // Whoever does not answer is not asked for a watch.
        is_there(server).await?;
        if let Some(watch) = begun(server, &names).await {
            let next = |(server, watch)| Box::pin(next(server, watch));
            return Ok(unfold((server.clone(), watch), next).boxed());
        }
    }
    Err(unavailable("no member of etcd begins a watch").during("watch the locks"))
}

async fn begun(server: &Server, names: &Names) -> Option<Watch> {
    let begin = async {
        let mut watch = server.members().watch_for(Subject::Locks(names.clone())).await.ok()?;
        (watch.next().await == Some(Heard::Begun)).then_some(watch)
    };
    until(server.clock(), Some(server.clock().now().after(TRY_MOST)), Box::pin(begin)).await.flatten()
}

async fn next(server: Server, mut watch: Watch) -> Option<((), (Server, Watch))> {
    loop {
        let soon = server.clock().now().after(SILENT_MOST);
        match until(server.clock(), Some(soon), watch.next()).await {
            Some(Some(Heard::Changed)) => return Some(((), (server, watch))),
            Some(Some(Heard::Begun)) => {}
            Some(None) => return None,
            // A member that does not answer is left, and with it ends the watch.
            None => is_there(&server).await.ok()?,
        }
    }
}

async fn is_there(server: &Server) -> Result<()> {
    Box::pin(server.learn_offset(ONCE)).await.map(drop).map_err(crate::members::Failed::error)
}
