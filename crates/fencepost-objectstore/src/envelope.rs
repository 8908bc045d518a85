//! What stands in the object of a lock: the mark, and which results are current, in lines of text.
//!
//! Invariant: no two envelopes are equal, since each has a nonce of its own. The ETag of S3 is that of the content, so a
//! condition on it is one on this very envelope.

use std::collections::BTreeMap;
use std::fmt::Write;

use fencepost_core::{Clock, Error, ErrorKind, HolderId, LockName, Mark, Result, StampHolder};

/// The first line, without which an object is somebody else's.
const MAGIC: &str = "fencepost mark";

/// The version of what follows.
const VERSION: &str = "1";

/// The last line, without which a part is missing.
const END: &str = "end";

/// More than any envelope has, so that nobody else's large object is fetched.
pub(crate) const LONGEST: u64 = 1 << 20;

/// What is known of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// The lock, as it was named.
    pub(crate) lock: LockName,
    /// Its mark; none where it was forgotten.
    pub(crate) mark: Option<Mark>,
    /// The current result of each name, as the last part of its key.
    pub(crate) results: BTreeMap<String, String>,
    /// What tells this envelope from every other.
    pub(crate) nonce: String,
}

impl Envelope {
    /// What follows `before` with this mark; the results stay.
    pub(crate) fn following(before: Option<&Self>, lock: &LockName, mark: Option<Mark>) -> Self {
        let results = before.map(|before| before.results.clone()).unwrap_or_default();
        Self { lock: lock.clone(), mark, results, nonce: nonce() }
    }

    /// The text of the object.
    pub(crate) fn text(&self) -> String {
        let token = self.mark.as_ref().map_or(0, |mark| mark.token.get());
        let holder = self.mark.as_ref().map_or("", |mark| mark.holder.as_str());
        let (lock, nonce) = (&self.lock, &self.nonce);
        let mut text =
            format!("{MAGIC} {VERSION}\nlock {lock}\ntoken {token}\nholder {holder}\nnonce {nonce}\n");
        for (name, part) in &self.results {
            writeln!(text, "result {name} {part}").expect("a string takes everything");
        }
        text + END + "\n"
    }

    /// Reads the object that should be that of a lock with the canonical name `key`.
    ///
    /// # Errors
    /// `Unexpected` when it is not; such an object is never written over.
    pub(crate) fn read(body: &[u8], key: &str) -> Result<Self> {
        let text = std::str::from_utf8(body).map_err(|_| damaged("it is no text"))?;
        let mut lines = text.lines();
        match lines.next().and_then(|line| line.strip_prefix(MAGIC)).map(str::trim) {
            Some(VERSION) => {}
            Some(version) => {
                return Err(damaged(format!("its version is {version:?}, and {VERSION:?} is known")));
            }
            None => return Err(damaged("it was not written by fencepost")),
        }
        let mut part = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.map(ToOwned::to_owned).ok_or_else(|| damaged(format!("it has no {name}")))
        };
        let wrong = |error: Error| damaged("its lock has no name").caused_by(error);
        let lock: LockName = part("lock")?.parse().map_err(wrong)?;
        let mark = mark(&part("token")?, part("holder")?)?;
        let nonce = part("nonce")?;
        if lock.canonical() != key {
            return Err(damaged(format!("it is that of the lock {lock}")));
        }
        let results = results(lines, text)?;
        Ok(Self { lock, mark, results, nonce })
    }
}

fn mark(token: &str, holder: String) -> Result<Option<Mark>> {
    if token == "0" {
        return Ok(None);
    }
    let wrong = |error: Error| damaged("its mark is none").caused_by(error);
    let holder = StampHolder::new(holder).map_err(wrong)?;
    Ok(Some(Mark { token: token.parse().map_err(wrong)?, holder }))
}

fn results<'a>(lines: impl Iterator<Item = &'a str>, text: &str) -> Result<BTreeMap<String, String>> {
    let mut results = BTreeMap::new();
    let mut has_ended = false;
    for line in lines {
        let pair = line.strip_prefix("result ").and_then(|rest| rest.split_once(' '));
        match pair {
            Some((name, part)) if !has_ended => {
                results.insert(name.to_owned(), part.to_owned());
            }
            _ if line == END && !has_ended => has_ended = true,
            _ => return Err(damaged(format!("it has the line {line:?}"))),
        }
    }
    if has_ended && text.ends_with('\n') { Ok(results) } else { Err(damaged("its end is missing")) }
}

/// Random text that nobody has had before.
pub(crate) fn nonce() -> String {
    HolderId::draw(&Clock::system()).to_string()
}

fn damaged(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unexpected, "read the object of the lock", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(lock: &str) -> Envelope {
        let mark = Mark { token: 7.try_into().unwrap(), holder: StampHolder::new("a").unwrap() };
        let mut envelope = Envelope::following(None, &lock.parse().unwrap(), Some(mark));
        envelope.results.insert("totals".to_owned(), "7-0a".to_owned());
        envelope
    }

    #[test]
    fn envelope_reads_back() {
        for lock in ["ledger", "ledger/1", " a b", "ü\u{2028}x"] {
            let mut envelope = envelope(lock);
            let read = |envelope: &Envelope| {
                Envelope::read(envelope.text().as_bytes(), &envelope.lock.canonical()).unwrap()
            };
            assert_eq!(read(&envelope), envelope);
            envelope.mark = None;
            assert_eq!(read(&envelope), envelope);
        }
    }

    #[test]
    fn equal_marks_have_different_texts() {
        assert_ne!(envelope("ledger").text(), envelope("ledger").text());
    }

    #[test]
    fn every_part_of_an_envelope_is_damaged() {
        let text = envelope("ledger").text();
        for length in 0..text.len() {
            let error = Envelope::read(&text.as_bytes()[..length], "ledger").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unexpected, "{length}");
        }
    }

    #[test]
    fn objects_of_others_are_no_envelopes() {
        let text = envelope("ledger").text();
        for other in [
            "hello".to_owned(),
            text.replace("mark 1", "mark 2"),
            text.replace("token 7", "token x"),
            text.replace("token 7", "token -1"),
            text.replace("holder a", "holder a b"),
            text.clone() + "more\n",
        ] {
            assert!(Envelope::read(other.as_bytes(), "ledger").is_err(), "{other}");
        }
        assert!(Envelope::read(text.as_bytes(), "other").is_err());
    }
}
