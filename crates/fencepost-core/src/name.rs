//! Names of locks, and their spelling inside a store.
//!
//! Invariant: two different names never have the same canonical spelling (short of a SHA-256 collision), and the
//! spelling is safe as a file name, a Redis key, an etcd key and a ZooKeeper node.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};

/// The longest name, in bytes of UTF-8.
const LONGEST: usize = 1024;

/// The longest canonical spelling that is not a hash; a file name has 255 bytes.
const LONGEST_SPELLED_OUT: usize = 200;

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-');

/// The name of a lock: 1 to 1024 bytes of UTF-8 without control characters. Clones share it.
///
/// # Examples
/// ```
/// use fencepost_core::LockName;
///
/// let name: LockName = "ledger/2026-11".parse()?;
/// assert_eq!(name.canonical(), "ledger%2F2026-11");
/// # Ok::<(), fencepost_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LockName(Arc<str>);

impl LockName {
    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name's spelling in a store's keys, paths and files.
    ///
    /// Every byte outside `[A-Za-z0-9._-]` and a leading `.` is percent-encoded; where that is longer than 200 bytes it
    /// is `h~` and the SHA-256 of the name in hexadecimal.
    pub fn canonical(&self) -> String {
        let mut spelled = Cow::from(utf8_percent_encode(&self.0, ESCAPED)).into_owned();
        if spelled.starts_with('.') {
            spelled.replace_range(..1, "%2E");
        }
        if spelled.len() <= LONGEST_SPELLED_OUT {
            return spelled;
        }
        let hash = Sha256::digest(self.0.as_bytes());
        hash.iter().fold("h~".to_owned(), |spelled, byte| spelled + &format!("{byte:02x}"))
    }
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidArgument, "read the lock's name", what));
        if name.is_empty() {
            return wrong("it is empty".to_owned());
        }
        if name.len() > LONGEST {
            return wrong(format!("it has {} bytes, and {LONGEST} is the most", name.len()));
        }
        if let Some(control) = name.chars().find(|letter| letter.is_control()) {
            return wrong(format!("it contains the control character {control:?}"));
        }
        Ok(Self(name.into()))
    }
}

impl TryFrom<String> for LockName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        name.parse()
    }
}

impl From<LockName> for String {
    fn from(name: LockName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of the names that [`Backend::list`](crate::Backend::list) and [`Fence::marks`](crate::Fence::marks)
/// return; empty for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePrefix(String);

impl NamePrefix {
    /// A prefix of names.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self(prefix.into())
    }

    /// The prefix itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` begins with it.
    pub fn matches(&self, name: &LockName) -> bool {
        name.as_str().starts_with(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(name: &str) -> String {
        name.parse::<LockName>().unwrap().canonical()
    }

    #[test]
    fn awkward_names_are_spelled_out() {
        assert_eq!(canonical("a b/ü"), "a%20b%2F%C3%BC");
        assert_eq!(canonical(".."), "%2E.");
        assert_eq!(canonical("a~b%"), "a%7Eb%25");
    }

    #[test]
    fn long_names_are_hashed() {
        assert_eq!(canonical(&"x".repeat(200)).len(), 200);
        assert_eq!(canonical(&"x".repeat(201)).len(), 66);
        assert!("x".repeat(1025).parse::<LockName>().is_err());
    }

    #[test]
    fn control_characters_are_refused() {
        for name in ["", "a\0b", "a\nb", "\u{7f}", "\u{85}"] {
            assert_eq!(name.parse::<LockName>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_safe_name_or_refused(text in "\\PC{0,300}|.{0,1100}") {
            if let Ok(name) = text.parse::<LockName>() {
                let spelled = name.canonical();
                prop_assert!(!spelled.is_empty() && spelled.len() <= 200 && !spelled.starts_with('.'));
                prop_assert!(spelled.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-%~".contains(&b)));
            }
        }

        #[test]
        fn different_names_are_spelled_differently(one in "[a.%/~ h]{1,8}", other in "[a.%/~ h]{1,8}") {
            prop_assert_eq!(one == other, canonical(&one) == canonical(&other));
        }
    }
}
