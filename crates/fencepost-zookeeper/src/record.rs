//! What is written into nodes, as JSON: into that of a lock, and into the places of its queue.
//!
//! Invariant: what cannot be read counts as empty, and is never a reason to believe in a lease.

use fencepost_core::{FencingToken, LockName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What the node of a lock, or of all locks, holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LockRecord {
    /// The name as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<LockName>,
    /// What is added to the number of the transaction that made a place, to give the token of its grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// From which lease the lock rests, and until when by the wall clock of its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rest: Option<Rest>,
    /// Which lease was taken away last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<Revocation>,
}

/// A lock stays taken after its release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) token: FencingToken,
    pub(crate) until_micros: u64,
}

/// A lease was taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Revocation {
    /// The node of its place.
    pub(crate) node: String,
    pub(crate) reason: String,
}

impl LockRecord {
    pub(crate) fn read(bytes: &[u8]) -> Self {
        read(bytes)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        bytes(self)
    }

    /// The token of a place that was made by this transaction.
    pub(crate) fn token(&self, made_by: i64) -> Option<FencingToken> {
        let made_by = u64::try_from(made_by).ok()?;
        self.offset?.checked_add(made_by)?.try_into().ok()
    }
}

/// What a place in a queue holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlaceRecord {
    pub(crate) label: String,
    /// When it was asked for, in microseconds since 1970.
    pub(crate) asked: u64,
    /// The session's time-out, in milliseconds.
    pub(crate) ttl_ms: u64,
    /// How long the lock is to be kept at least, from the grant, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_least_ms: Option<u64>,
    /// What was granted, once it has been for a moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) granted: Option<Granted>,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Granted {
    pub(crate) token: FencingToken,
    pub(crate) at_micros: u64,
}

impl PlaceRecord {
    pub(crate) fn read(bytes: &[u8]) -> Self {
        read(bytes)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        bytes(self)
    }

    /// Until when the lock is to rest after its release, where that was asked for. A grant that is not written down yet may be of this
    /// moment.
    pub(crate) fn rest(&self, token: FencingToken, now_micros: u64) -> Option<Rest> {
        let from = self.granted.map_or(now_micros, |granted| granted.at_micros);
        let until_micros = from.saturating_add(self.at_least_ms?.saturating_mul(1_000));
        Some(Rest { token, until_micros })
    }
}

fn read<T: DeserializeOwned + Default>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes).unwrap_or_default()
}

fn bytes(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("texts and numbers can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_unknown_is_passed_over() {
        let record = LockRecord { name: "ledger/1".parse().ok(), offset: Some(7), ..LockRecord::default() };
        assert_eq!(record.bytes(), br#"{"name":"ledger/1","offset":7}"#);
        assert_eq!(LockRecord::read(&record.bytes()), record);
        assert_eq!(LockRecord::read(b"").offset, None);
        assert_eq!(LockRecord::read(br#"{"offset":7,"later":1}"#).offset, Some(7));
    }

    #[test]
    fn token_is_the_offset_and_the_transaction() {
        let record = LockRecord { offset: Some(40), ..LockRecord::default() };
        assert_eq!(record.token(2).unwrap().get(), 42);
        assert_eq!(LockRecord::default().token(2), None);
        assert_eq!(LockRecord { offset: Some(FencingToken::MAX), ..record }.token(1), None);
    }
}
