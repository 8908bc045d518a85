//! Signals that locks may have changed: a watch over all that is below the root, on a session of its own.
//!
//! A server before 3.6 knows no such watch, and closes the connection of whoever asks for one: no lease is to hang on that. Invariant: a
//! stream that goes on has missed nothing, so it ends with the connection that has the watch.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fencepost_core::{LockName, NamePrefix, Result};
use futures_channel::mpsc::{Receiver, Sender, channel};
use futures_util::stream::{BoxStream, Stream};

use crate::ensemble::Ensemble;
use crate::failure::{lost_touch, refused};
use crate::nodes;
use crate::protocol::{Code, Request};
use crate::session::{Session, Use};

/// The time-out of the session that has the watch. It carries no lease, so that a long one does no harm, and costs fewer heartbeats.
const WATCHING: Duration = Duration::from_secs(30);

/// Somebody who is told of changes of any lock that begins with a prefix.
pub(crate) struct Onlooker {
    root: String,
    prefix: NamePrefix,
    sender: Sender<()>,
}

impl Onlooker {
    /// Something has become of the node at `path`.
    pub(crate) fn hear(&mut self, path: &str) {
        if self.wants(path) {
            // One that has not been taken yet stands for this change as well.
            let _ = self.sender.try_send(());
        }
    }

    fn wants(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix(&self.root).and_then(|below| below.strip_prefix('/')) else {
            return false;
        };
        let spelled = below.split('/').next().unwrap_or(below);
        // What a hash stands for is not known here.
        nodes::name(spelled).is_none_or(|name: LockName| self.prefix.matches(&name))
    }
}

/// What has been signalled. Dropped, it gives the session back.
struct Signals {
    told: Receiver<()>,
    _used: Use,
}

impl Stream for Signals {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<()>> {
        Pin::new(&mut self.told).poll_next(context)
    }
}

/// Signals that locks whose names begin with `prefix` may have changed; `None` where the server gives none.
///
/// # Cancel safety
/// Dropping the call, or the stream, closes the session.
///
/// # Errors
/// `Unavailable` when no member can be reached.
pub(crate) async fn signals(
    ensemble: &Ensemble,
    prefix: &NamePrefix,
) -> Result<Option<BoxStream<'static, ()>>> {
    let endpoint = ensemble.shared_endpoint();
    let used = Session::begin(ensemble.clock(), &endpoint, WATCHING.min(endpoint.max_ttl));
    // Nobody else is to come to it, so it ends with this use.
    used.session.leave();
    let connection = used.session.connection().await?;
    let root = nodes::root(&endpoint.chroot);
    let (sender, told) = channel(0);
    let onlooker = Onlooker { root: root.clone(), prefix: prefix.clone(), sender };
    used.session.look_on(&connection, onlooker);
    let answer = connection.call(&Request::watch_all_below(&root)).await;
    let answer = answer.map_err(|broken| lost_touch(&broken))?;
    match answer.code {
        Code::OK => Ok(Some(Box::pin(Signals { told, _used: used }))),
        code @ (Code::SESSION_EXPIRED | Code::SESSION_MOVED) => Err(refused(code)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_other_locks_are_no_signal_unless_their_names_are_not_known() {
        let (sender, _told) = channel(0);
        let onlooker =
            Onlooker { root: "/a/fencepost".to_owned(), prefix: NamePrefix::new("ledger/"), sender };
        for path in ["/a/fencepost/ledger%2F1", "/a/fencepost/ledger%2F2/x-0000000001", "/a/fencepost/h~00ff"]
        {
            assert!(onlooker.wants(path), "{path}");
        }
        for path in
            ["/a/fencepost", "/a/fencepost/orders", "/a/fencepost/orders/ledger%2F1", "/fencepost/ledger%2F1"]
        {
            assert!(!onlooker.wants(path), "{path}");
        }
    }
}
