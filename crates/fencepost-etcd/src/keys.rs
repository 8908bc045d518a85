//! The keys of one lock, and that of all.

use fencepost_core::{HolderId, LockName};

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    root: String,
}

impl Keys {
    /// The keys of a lock below `root`, which ends in a slash. A canonical name holds none, so no lock lies in another.
    pub(crate) fn of(root: &str, name: &LockName) -> Self {
        Self { root: format!("{root}{}/", name.canonical()) }
    }

    /// Where those queue who want the lock; the first holds it.
    pub(crate) fn queue(&self) -> String {
        format!("{}q/", self.root)
    }

    /// The place in the queue of one attempt. All modes have one letter, so far there is one.
    pub(crate) fn place(&self, holder: HolderId) -> String {
        format!("{}q/x-{holder}", self.root)
    }

    /// What tokens of this lock alone were lifted by.
    pub(crate) fn lifted(&self) -> String {
        format!("{}s", self.root)
    }

    /// Why a lease was revoked.
    pub(crate) fn reason(&self, holder: HolderId) -> String {
        format!("{}r/{holder}", self.root)
    }
}

/// What the tokens of all locks are above their revisions by. No canonical name begins with a dot.
pub(crate) fn offset(root: &str) -> String {
    format!("{root}.offset")
}

/// The holder whose place in a queue `key` is; `None` where it is a foreign key.
pub(crate) fn holder_of(key: &[u8]) -> Option<HolderId> {
    let key = std::str::from_utf8(key).ok()?;
    let (_, place) = key.rsplit_once("/q/x-")?;
    place.parse().ok()
}

/// The end of the range of all keys that begin with `prefix`.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A prefix of ours ends in a slash, which has a successor.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_lock_lie_in_no_other() {
        let of = |name: &str| Keys::of("/fencepost/", &name.parse().unwrap());
        assert_eq!(of("a").queue(), "/fencepost/a/q/");
        assert_eq!(of("a/q/b").queue(), "/fencepost/a%2Fq%2Fb/q/");
        assert_eq!(of(".offset").queue(), "/fencepost/%2Eoffset/q/");
        assert_eq!(end_of("/fencepost/a/q/"), b"/fencepost/a/q0");
    }

    #[test]
    fn foreign_keys_are_no_places() {
        let holder = "000102030405060708090a0b0c0d0e0f";
        let place = format!("/fencepost/a/q/x-{holder}");
        assert_eq!(holder_of(place.as_bytes()), holder.parse().ok());
        for key in ["/fencepost/a/q/", "/fencepost/a/q/x-1", "/fencepost/a/s", "/fencepost/a/q/zzz"] {
            assert_eq!(holder_of(key.as_bytes()), None, "{key}");
        }
        assert_eq!(holder_of(&[0xff, 0xfe]), None);
    }
}
