//! The keys of one lock. Braces keep them in one slot of a cluster, should there ever be one.

use std::ops::Deref;
use std::sync::Arc;

use fencepost_core::{HolderId, LockName};

/// The incarnation of the server.
pub(crate) const INCARNATION: &str = "fencepost:inc";

/// What all clients of the server share.
pub(crate) const SETTINGS: &str = "fencepost:cfg";

/// The greatest token that was proposed on a node of a quorum.
pub(crate) const GREATEST: &str = "fencepost:max";

/// What every token of a node of a quorum is above.
pub(crate) const FLOOR: &str = "fencepost:floor";

/// The greatest token on a node of a quorum whose record expires.
pub(crate) const IDLE: &str = "fencepost:idle";

/// The keys of one lock. Clones share them: each lease and each waiter has one.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Arc<Spelled>);

/// The keys of one lock, spelled out.
#[derive(Debug)]
pub(crate) struct Spelled {
    /// The lock's record: a string that always expires.
    pub(crate) lock: String,
    /// The token record.
    pub(crate) token: String,
    /// Who waits, in order.
    pub(crate) queue: String,
    /// Until when each waiter is believed to live.
    pub(crate) waiters: String,
    /// What holders leave for those to come.
    pub(crate) logbook: String,
    /// The last place in the queue that was given.
    pub(crate) places: String,
    tombstone: String,
}

impl Keys {
    pub(crate) fn of(name: &LockName) -> Self {
        let canonical = name.canonical();
        let key = |what| format!("fencepost:{{{canonical}}}:{what}");
        Self(Arc::new(Spelled {
            lock: key("l"),
            token: key("s"),
            queue: key("q"),
            waiters: key("w"),
            logbook: key("b"),
            places: key("n"),
            tombstone: key("x:"),
        }))
    }

    /// Where it is written that an attempt of `holder` is over.
    pub(crate) fn tombstone(&self, holder: HolderId) -> String {
        format!("{}{holder}", self.tombstone)
    }

    /// What every such key begins with.
    pub(crate) fn tombstones(&self) -> &str {
        &self.tombstone
    }
}

impl Deref for Keys {
    type Target = Spelled;

    fn deref(&self) -> &Spelled {
        &self.0
    }
}

/// The key of the mark of a lock, where this Redis is a fence.
pub(crate) fn mark(name: &LockName) -> String {
    format!("fencepost:{{{}}}:f", name.canonical())
}

/// The spelling of the lock's name in the key of a mark.
pub(crate) fn spelled_in_mark(key: &str) -> Option<&str> {
    key.strip_prefix("fencepost:{")?.strip_suffix("}:f")
}

/// Matches the marks of all locks.
pub(crate) const ALL_MARKS: &str = "fencepost:{*}:f";

/// Matches the records of all locks.
pub(crate) const ALL_LOCKS: &str = "fencepost:{*}:l";
