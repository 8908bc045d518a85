//! The keys of one lock, and that of all.

use fencepost_core::{HolderId, LockName, Mode, NamePrefix};

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

    /// Where those queue who want the lock: the first holds it, and where that is a reader, all readers up to the first writer.
    pub(crate) fn queue(&self) -> String {
        format!("{}q/", self.root)
    }

    /// Where those lie whom somebody waits for who came later: a writer for all, a reader for writers.
    pub(crate) fn ahead_of(&self, mode: Mode) -> String {
        match mode {
            Mode::Exclusive => self.queue(),
            Mode::Shared => format!("{}q/{WRITER}", self.root),
        }
    }

    /// Where the places of all readers lie.
    pub(crate) fn readers(&self) -> String {
        format!("{}q/{READER}", self.root)
    }

    /// The place in the queue that a lease keeps.
    ///
    /// The name is that of the lease, which is used again, and not of the holder: etcd remembers every name until it is
    /// compacted, and goes through all of them to find those that are there.
    pub(crate) fn place(&self, mode: Mode, lease: i64) -> String {
        let mark = if mode == Mode::Exclusive { WRITER } else { READER };
        format!("{}q/{mark}{lease:016x}", self.root)
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

/// The keys of locks whose names may begin with something.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    root: String,
    /// What their spelling begins with, unless they are so long that it is a hash.
    begins: String,
}

/// What a spelling begins with that is a hash.
const HASHED: &str = "h~";

impl Names {
    pub(crate) fn of(root: &str, prefix: &NamePrefix) -> Self {
        let spelled = prefix.as_str().parse().map(|name: LockName| name.canonical()).unwrap_or_default();
        // All names that begin with so much are hashed, too.
        let begins = if spelled.starts_with(HASHED) { HASHED.to_owned() } else { spelled };
        Self { root: root.to_owned(), begins }
    }

    /// The range that their keys lie in, among others.
    pub(crate) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        (self.root.clone().into_bytes(), end_of_names(&self.root))
    }

    /// Whether a key belongs to one of them, as far as can be told.
    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        let name =
            std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(&self.root)?.split_once('/'));
        name.is_some_and(|(name, _)| name.starts_with(&self.begins) || name.starts_with(HASHED))
    }
}

/// What the names of places begin with.
const WRITER: &str = "x-";
const READER: &str = "r-";

/// Beside whom whoever has this place holds the lock; `None` where it is no place in a queue but a foreign key.
pub(crate) fn mode_of(key: &[u8]) -> Option<Mode> {
    let (_, place) = std::str::from_utf8(key).ok()?.rsplit_once("/q/")?;
    let (mark, lease) = place.split_at_checked(WRITER.len())?;
    let is_lease = lease.len() == 16 && i64::from_str_radix(lease, 16).is_ok();
    match mark {
        WRITER if is_lease => Some(Mode::Exclusive),
        READER if is_lease => Some(Mode::Shared),
        _ => None,
    }
}

/// The end of the range of all keys that begin with `prefix`.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A prefix of ours ends in a slash or a dash, which have successors.
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
    fn keys_of_names_that_begin_so_are_told_apart() {
        let long = "x".repeat(300);
        let name = |name: &str| Keys::of("/x/", &name.parse().unwrap()).place(Mode::Shared, 7);
        for (prefix, key, is_inside) in [
            ("", name("orders"), true),
            ("", offset("/x/"), false),
            ("ord", name("orders"), true),
            ("orders/", name("orders/7"), true),
            ("orders/", name("orders"), false),
            (".o", name(".orders"), true),
            ("é", name("éa"), true),
            ("h~", name("h~a"), true),
            // Hashed, so it may be any.
            ("x", name(&long), true),
            (&*long, name(&long), true),
            (&*long, name("x"), false),
        ] {
            assert_eq!(
                Names::of("/x/", &NamePrefix::new(prefix)).contain(key.as_bytes()),
                is_inside,
                "{prefix} {key}"
            );
        }
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
        for (lease, mode) in [(1, Mode::Exclusive), (i64::MAX, Mode::Exclusive), (1, Mode::Shared)] {
            assert_eq!(mode_of(keys.place(mode, lease).as_bytes()), Some(mode));
        }
        let ours = "0123456789abcdef";
        for name in
            ["", "x-1", "zzz", "é", ours, &format!("y-{ours}"), &format!("x-{ours}/"), &format!("r{ours}")]
        {
            assert_eq!(mode_of(format!("/fencepost/a/q/{name}").as_bytes()), None, "{name}");
        }
        assert_eq!(mode_of(b"/fencepost/a/s"), None);
        assert_eq!(mode_of(&[0xff, 0xfe]), None);
    }

    #[test]
    fn reader_waits_for_writers_and_a_writer_for_all() {
        let keys = Keys::of("/fencepost/", &"a".parse().unwrap());
        for (waits, mode, is_waited_for) in [
            (Mode::Exclusive, Mode::Exclusive, true),
            (Mode::Exclusive, Mode::Shared, true),
            (Mode::Shared, Mode::Exclusive, true),
            (Mode::Shared, Mode::Shared, false),
        ] {
            let (prefix, place) = (keys.ahead_of(waits), keys.place(mode, 7));
            let is_inside = (prefix.as_bytes()..&end_of(&prefix)).contains(&place.as_bytes());
            assert_eq!(is_inside, is_waited_for, "{waits:?} {mode:?}");
        }
    }
}
