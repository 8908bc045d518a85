//! What is written about a holder or a waiter, and how it is read back.
//!
//! A lock's record is `1|holder|token|state|since|rest until|process|owner`, and the owner is JSON: the name as the user gave it,
//! and a label for people. Only the scripts write records; they never look into the owner.

use std::fmt::Write;

use fencepost_core::{FencingToken, HolderId, LockName};
use serde::{Deserialize, Serialize};

/// The part of a record that is for people.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) name: LockName,
    pub(crate) label: String,
}

impl Owner {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("two strings can be written as JSON")
    }
}

/// The process and the owner, as they stand in a record; each attempt writes it, and copies nothing for it.
pub(crate) fn owned_by(process: &str, name: &LockName, label: &str) -> String {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        name: &'a LockName,
        label: &'a str,
    }
    let mut text = Vec::with_capacity(process.len() + name.as_str().len() + label.len() + 32);
    text.extend_from_slice(process.as_bytes());
    text.push(b'|');
    serde_json::to_writer(&mut text, &Borrowed { name, label }).expect("two strings can be written as JSON");
    String::from_utf8(text).expect("JSON is text")
}

/// Whether a lock is held, as its record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    /// Kept for the waiter whose turn it is.
    Reserved,
    Rests,
    /// Those who share it are written beside it.
    Shared,
}

/// A lock's record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) state: State,
    pub(crate) holder: Option<HolderId>,
    pub(crate) token: Option<FencingToken>,
    pub(crate) since_micros: Option<u64>,
    pub(crate) owner: Option<Owner>,
}

impl Record {
    /// Reads a record; `None` where it is none of ours.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut fields = text.splitn(8, '|');
        if fields.next() != Some("1") {
            return None;
        }
        let (holder, token) = (fields.next()?, fields.next()?);
        let state = match fields.next()? {
            "held" => State::Held,
            "resv" => State::Reserved,
            "rest" => State::Rests,
            "read" => State::Shared,
            _ => return None,
        };
        Some(Self {
            state,
            holder: holder.parse().ok(),
            token: token.parse().ok(),
            since_micros: fields.next().and_then(|since| since.parse().ok()),
            owner: fields.nth(2).and_then(|owner| serde_json::from_str(owner).ok()),
        })
    }
}

/// How the record begins while `holder` has the lock with `token`.
pub(crate) fn beginning(holder: HolderId, token: FencingToken) -> String {
    // Room for what holders and tokens take, which is asked for twice a lease.
    let mut beginning = String::with_capacity(64);
    write!(beginning, "1|{holder}|{token}|held|").expect("a string takes any text");
    beginning
}

/// How the record begins where a node of a quorum has the lock for `holder`, and its token was not written.
pub(crate) fn beginning_without_token(holder: HolderId) -> String {
    format!("1|{holder}||held|")
}

/// What is written about a waiter: `alive until|since|mode|process|owner`.
pub(crate) fn read_waiter(text: &str) -> Option<(u64, Owner)> {
    let mut fields = text.splitn(5, '|').skip(1);
    let since = fields.next()?.parse().ok()?;
    Some((since, serde_json::from_str(fields.nth(2)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDER: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn record_of_a_holder_is_read() {
        let owner = owned_by("ffee", &"a|b".parse().unwrap(), "ann@host: x|y");
        let text = format!("1|{HOLDER}|42|held|17|0|{owner}");
        assert!(
            text.ends_with(
                &Owner { name: "a|b".parse().unwrap(), label: "ann@host: x|y".to_owned() }.to_json()
            )
        );
        let record = Record::read(&text).unwrap();
        assert_eq!(record.state, State::Held);
        assert_eq!(record.holder, HOLDER.parse().ok());
        assert_eq!(record.since_micros, Some(17));
        assert_eq!(record.owner.unwrap().name.as_str(), "a|b");
        let holder = HOLDER.parse().unwrap();
        assert!(text.starts_with(&beginning(holder, FencingToken::try_from(42).unwrap())));
    }

    #[test]
    fn foreign_records_are_none() {
        for text in ["", "x", "2|a|b|held|", "1|a|b|other|"] {
            assert!(Record::read(text).is_none(), "{text:?}");
        }
    }
}
