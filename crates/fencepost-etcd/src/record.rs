//! What is written about a holder or a waiter, and how it is read back.

use std::time::Duration;

use fencepost_core::{FencingToken, HolderId, LockName, Mode};
use serde::{Deserialize, Serialize};

use crate::generated::KeyValue;
use crate::keys;

/// The value of a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The lock, as the user gave it.
    pub(crate) name: LockName,
    pub(crate) label: String,
    pub(crate) holder: HolderId,
    /// Since when it waits or holds: microseconds since 1970.
    pub(crate) since: u64,
    /// The token is the revision that made the place, and this.
    pub(crate) offset: i64,
    /// Until when the lock rests without a holder: microseconds since 1970, for those who look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rests_until: Option<u64>,
}

impl Record {
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers can be written as JSON")
    }
}

/// A place in a queue, as it is found on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: Vec<u8>,
    /// Beside whom its holder holds the lock.
    pub(crate) mode: Mode,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) lease: i64,
    /// What is written there, where it was asked for.
    pub(crate) record: Option<Record>,
}

impl Place {
    /// `None` where a key is none of ours. What is not tied to a lease would never go away by itself, and no place of ours is so.
    pub(crate) fn read(found: &KeyValue) -> Option<Self> {
        if found.lease == 0 {
            return None;
        }
        Some(Self {
            key: found.key.clone(),
            mode: keys::mode_of(&found.key)?,
            created: found.create_revision,
            modified: found.mod_revision,
            lease: found.lease,
            record: serde_json::from_slice(&found.value).ok(),
        })
    }

    /// Who has it, where that was asked for.
    pub(crate) fn holder(&self) -> Option<HolderId> {
        self.record.as_ref().map(|record| record.holder)
    }

    /// The token of whoever has this place, once it is its turn.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        token(self.created, self.record.as_ref()?.offset)
    }
}

/// The token of a place.
pub(crate) fn token(created: i64, offset: i64) -> Option<FencingToken> {
    let sum = u64::try_from(created.checked_add(offset)?).ok()?;
    FencingToken::try_from(sum).ok()
}

/// An offset as it is kept on the server, and by what change of the key; nothing and 0 where there is no such key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) offset: i64,
    pub(crate) modified: i64,
}

impl Kept {
    /// What is found in a key. What somebody else wrote there counts as nothing, and is written over.
    pub(crate) fn read(found: Option<&KeyValue>) -> Self {
        let Some(found) = found else { return Self::default() };
        let text = std::str::from_utf8(&found.value).unwrap_or_default();
        let offset = text.parse().ok().filter(|offset| *offset >= 0).unwrap_or_default();
        Self { offset, modified: found.mod_revision }
    }
}

/// Microseconds as etcd's numbers are.
pub(crate) fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// Microseconds of a duration.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lease: i64) -> KeyValue {
        let record = Record {
            name: "a/b".parse().unwrap(),
            label: "ann@host".to_owned(),
            holder: "000102030405060708090a0b0c0d0e0f".parse().unwrap(),
            since: 17,
            offset: 1_000,
            rests_until: None,
        };
        KeyValue {
            key: b"/fencepost/a%2Fb/q/x-0001020304050607".to_vec(),
            create_revision: 5,
            mod_revision: 6,
            value: record.to_json(),
            lease,
        }
    }

    #[test]
    fn place_of_ours_is_read() {
        let place = Place::read(&found(7)).unwrap();
        assert_eq!((place.created, place.modified, place.lease), (5, 6, 7));
        assert_eq!(place.token().map(FencingToken::get), Some(1_005));
        assert_eq!(place.record.unwrap().name.as_str(), "a/b");
    }

    #[test]
    fn key_without_a_lease_is_foreign() {
        assert_eq!(Place::read(&found(0)), None);
    }

    #[test]
    fn what_is_no_offset_counts_as_nothing() {
        for (text, offset) in [("1700000000000000", 1_700_000_000_000_000), ("", 0), ("x", 0), ("-1", 0)] {
            let found = KeyValue { value: text.into(), mod_revision: 9, ..KeyValue::default() };
            assert_eq!(Kept::read(Some(&found)), Kept { offset, modified: 9 });
        }
        assert_eq!(Kept::read(None), Kept::default());
    }

    #[test]
    fn sum_beyond_the_greatest_token_is_none() {
        assert_eq!(token(i64::MAX, 1), None);
        assert_eq!(token(0, 0), None);
    }
}
