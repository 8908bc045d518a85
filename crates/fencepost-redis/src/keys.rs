//! The keys on a server. Braces keep those of one lock in one slot of a cluster, should there ever be one.

use std::ops::Deref;
use std::sync::Arc;

use fencepost_core::LockName;

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

/// The key of a lock's record, by which the scripts know the lock's other keys. Clones share it: each lease and each waiter has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockKey(Arc<str>);

impl LockKey {
    pub(crate) fn of(name: &LockName) -> Self {
        Self(format!("fencepost:{{{}}}:l", name.canonical()).into())
    }

    /// Where holders leave something for those to come.
    pub(crate) fn logbook(&self) -> String {
        format!("{}b", self.0.trim_end_matches('l'))
    }
}

impl Deref for LockKey {
    type Target = str;

    fn deref(&self) -> &str {
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
