//! Signals that locks have changed, for who watches them.
//!
//! The server tells a watcher which keys were touched (`CLIENT TRACKING … BCAST`), on a connection of the watcher's own. No script does
//! anything for that, so it costs nothing where nobody watches. A renewal touches the lock's record as well; so the watcher looks at
//! what was touched, and a record that is what it was is no change.
//! <https://redis.io/docs/latest/develop/reference/client-side-caching/>

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{Clock, Result};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::stream::{BoxStream, unfold};
use futures_util::{FutureExt, StreamExt};

use crate::connection::{Broken, Connection, Listener};
use crate::resp::Reply;
use crate::server::Server;

/// How long changes gather, so that one signal stands for all of them.
const GATHER: Duration = Duration::from_millis(20);

/// How many records are looked at in one command.
const BATCH: usize = 500;

/// Signals of changes to any lock of a server; `None` where the server does not let this user watch. A lease that runs out without a
/// release is signalled when the server removes it, which may be late.
///
/// # Cancel safety
/// Dropping it, or the stream, closes the connection.
pub(crate) async fn signals(server: &Server) -> Result<Option<BoxStream<'static, ()>>> {
    let (sender, touched) = unbounded();
    let Some(connection) = server.granting().watch(Arc::new(Touched(sender))).await? else { return Ok(None) };
    let watcher = Watcher { clock: server.clock().clone(), connection, touched, seen: HashMap::new() };
    let next = |mut watcher: Watcher| async move { watcher.change().await.map(|()| ((), watcher)) };
    Ok(Some(unfold(watcher, next).boxed()))
}

/// Passes on which keys were touched.
struct Touched(UnboundedSender<String>);

impl Listener for Touched {
    fn hear(&self, key: &str) {
        if is_lock(key) || is_queue(key) {
            // A watcher that has just gone wants to know nothing.
            drop(self.0.unbounded_send(key.to_owned()));
        }
    }

    fn broken(&self) {
        self.0.close_channel();
    }
}

fn is_lock(key: &str) -> bool {
    key.starts_with("fencepost:{") && key.ends_with("}:l")
}

fn is_queue(key: &str) -> bool {
    key.starts_with("fencepost:{") && key.ends_with("}:q")
}

struct Watcher {
    clock: Clock,
    connection: Connection,
    touched: UnboundedReceiver<String>,
    /// What was there when it was touched last.
    seen: HashMap<String, Reply>,
}

impl Watcher {
    /// Waits for a change; `None` when the connection is gone.
    async fn change(&mut self) -> Option<()> {
        loop {
            let first = self.touched.next().await?;
            self.clock.sleep(GATHER).await;
            let mut touched = BTreeSet::from([first]);
            while let Some(Some(key)) = self.touched.next().now_or_never() {
                touched.insert(key);
            }
            if self.look(touched).await.ok()? {
                return Some(());
            }
        }
    }

    /// Whether any of what was touched is not what it was.
    async fn look(&mut self, touched: BTreeSet<String>) -> Result<bool, Broken> {
        let (locks, queues): (Vec<String>, Vec<String>) = touched.into_iter().partition(|key| is_lock(key));
        let mut has_changed = false;
        for keys in locks.chunks(BATCH) {
            let mut words: Vec<&[u8]> = vec![b"MGET"];
            words.extend(keys.iter().map(String::as_bytes));
            let records = self.connection.call(&words).await?;
            for (key, record) in keys.iter().zip(records.list()) {
                has_changed |= self.note(key, record);
            }
        }
        for key in &queues {
            let queue = self.connection.call(&[b"ZRANGE", key.as_bytes(), b"0", b"-1"]).await?;
            has_changed |= self.note(key, &queue);
        }
        Ok(has_changed)
    }

    /// Takes note of what is there; whether that is a change.
    fn note(&mut self, key: &str, there: &Reply) -> bool {
        if *there == Reply::Null || *there == Reply::List(Vec::new()) {
            self.seen.remove(key);
            return true;
        }
        self.seen.insert(key.to_owned(), there.clone()).as_ref() != Some(there)
    }
}
