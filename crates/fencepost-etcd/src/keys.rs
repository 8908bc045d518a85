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

    /// The place in the queue that a lease keeps.
    ///
    /// The name is that of the lease, which is used again, and not of the holder: etcd remembers every name until it is
    /// compacted, and goes through all of them to find those that are there.
    pub(crate) fn place(&self, lease: i64) -> String {
        format!("{}q/x-{lease:016x}", self.root)
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

/// Where the holders of a lock leave something for those to come: behind all names, since it may be long, so that whoever reads
/// all places does not read it too. No canonical name begins with a tilde.
pub(crate) fn logbook(root: &str, name: &LockName) -> String {
    format!("{root}~logbook/{}", name.canonical())
}

/// The end of the range that holds the places of all locks.
pub(crate) fn end_of_names(root: &str) -> Vec<u8> {
    format!("{root}~").into_bytes()
}

/// What the tokens of all locks are above their revisions by. No canonical name begins with a dot.
pub(crate) fn offset(root: &str) -> String {
    format!("{root}.offset")
}

/// Whether `key` is a place in a queue, and not a foreign key.
pub(crate) fn is_place(key: &[u8]) -> bool {
    let name = std::str::from_utf8(key).ok().and_then(|key| key.rsplit_once("/q/x-"));
    name.is_some_and(|(_, lease)| lease.len() == 16 && i64::from_str_radix(lease, 16).is_ok())
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
    fn logbooks_lie_behind_the_places_of_all_locks() {
        for name in ["a", "~logbook/a", "zzz", "\u{10ffff}", "_", &"é".repeat(200)] {
            let name = name.parse().unwrap();
            assert!(Keys::of("/x/", &name).queue().into_bytes() < end_of_names("/x/"), "{name}");
            assert!(logbook("/x/", &name).into_bytes() > end_of_names("/x/"), "{name}");
        }
    }

    #[test]
    fn foreign_keys_are_no_places() {
        let keys = Keys::of("/fencepost/", &"a".parse().unwrap());
        for lease in [1, i64::MAX] {
            assert!(is_place(keys.place(lease).as_bytes()));
        }
        for key in ["/fencepost/a/q/", "/fencepost/a/q/x-1", "/fencepost/a/s", "/fencepost/a/q/zzz"] {
            assert!(!is_place(key.as_bytes()), "{key}");
        }
        assert!(!is_place(&[0xff, 0xfe]));
    }
}
