//! The patterns that are put to the test: a kind of lock, and whether the writes under it are fenced.
//!
//! The kinds are one table; a new one is a line in it and its servers in `servers/`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::fault::{Loss, Partition};

/// What protects the workers from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The lock.
    pub kind: Kind,
    /// Whether the protected system checks the token.
    pub is_fenced: bool,
}

/// Where the lock is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nowhere: there is no lock.
    None,
    /// In a directory of this host.
    File,
    /// On one Redis.
    Redis,
    /// On five independent ones.
    Redlock,
    /// In a Postgres database.
    Postgres,
    /// In etcd.
    Etcd,
    /// In `ZooKeeper`.
    Zookeeper,
}

/// What the lab must know of a kind of lock.
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    /// A program of its servers, and the package that has it.
    pub(crate) program: Option<(&'static str, &'static str)>,
    /// Short, so that a round takes a second or two, and not so short that a busy machine loses leases.
    pub(crate) ttl: Duration,
    /// How much longer than two leases it takes at most until somebody else has the lock, if anybody gets it.
    pub(crate) recovery: Duration,
    /// The links that can be told from an idle one by its servers.
    pub(crate) partitions: &'static [Partition],
    pub(crate) losses: &'static [Loss],
}

impl Kind {
    /// All of them, from the cheapest to the strongest.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|facts| facts.kind)
    }

    /// Its name, as a URL of a backend begins.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    pub(crate) fn facts(self) -> &'static Facts {
        FACTS.iter().find(|facts| facts.kind == self).expect("every kind is in the table")
    }

    /// Whether this build can hold such a lock.
    pub(crate) fn is_built_in(self) -> bool {
        self == Self::None || fencepost::profiles().iter().any(|profile| profile.backend == self.name())
    }
}

impl Pattern {
    /// Every kind, each without and with the fence.
    pub fn all() -> Vec<Self> {
        let both = |kind| [false, true].map(|is_fenced| Self { kind, is_fenced });
        // Without a lock there is no token.
        Kind::all().flat_map(both).filter(|pattern| *pattern != UNLOCKED_AND_FENCED).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        f.write_str(if self.is_fenced { "+fence" } else { "" })
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, is_fenced) = text.strip_suffix("+fence").map_or((text, false), |name| (name, true));
        let kind = Kind::all().find(|kind| kind.name() == name).ok_or_else(|| {
            let names: Vec<_> = Kind::all().map(Kind::name).collect();
            format!("there is no pattern {text:?}; there are {}, each also with +fence", names.join(", "))
        })?;
        Ok(Self { kind, is_fenced })
    }
}

pub(crate) const UNLOCKED_AND_FENCED: Pattern = Pattern { kind: Kind::None, is_fenced: true };

const TTL: Duration = Duration::from_millis(800);
/// A quarantine, and what a busy machine adds.
const RECOVERY: Duration = Duration::from_millis(2500);
const EVERY: &[Partition] = &[Partition::Blackhole, Partition::Cut, Partition::RepliesLost, Partition::Slow];

const EMPTIED: &[Loss] = &[Loss::Emptied];
const BOTH: &[Loss] = &[Loss::Emptied, Loss::OldCopy];

const FACTS: &[Facts] = &[
    Facts {
        kind: Kind::None,
        name: "none",
        program: None,
        ttl: TTL,
        recovery: RECOVERY,
        partitions: EVERY,
        losses: EMPTIED,
    },
    Facts {
        kind: Kind::File,
        name: "file",
        program: None,
        ttl: TTL,
        recovery: RECOVERY,
        partitions: EVERY,
        losses: EMPTIED,
    },
    Facts {
        kind: Kind::Redis,
        name: "redis",
        program: Some(("redis-server", "redis-server")),
        ttl: TTL,
        recovery: RECOVERY,
        partitions: EVERY,
        losses: BOTH,
    },
    Facts {
        kind: Kind::Redlock,
        name: "redlock",
        program: Some(("redis-server", "redis-server")),
        ttl: TTL,
        recovery: RECOVERY,
        partitions: EVERY,
        losses: EMPTIED,
    },
    Facts {
        kind: Kind::Postgres,
        name: "postgres",
        program: Some(("postgres", "postgresql")),
        ttl: Duration::from_secs(1),
        recovery: RECOVERY,
        // The kernel at the lab's end of a link answers for a silent client, so a server never misses one there.
        partitions: &[Partition::Cut],
        losses: BOTH,
    },
    Facts {
        kind: Kind::Etcd,
        name: "etcd",
        program: Some(("etcd", "etcd-server")),
        ttl: Duration::from_secs(2),
        recovery: Duration::from_secs(5),
        partitions: EVERY,
        losses: EMPTIED,
    },
    Facts {
        kind: Kind::Zookeeper,
        name: "zookeeper",
        program: Some(("java", "default-jre-headless")),
        ttl: Duration::from_secs(4),
        recovery: Duration::from_secs(8),
        partitions: EVERY,
        losses: EMPTIED,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_read_back_from_their_names() {
        for pattern in Pattern::all() {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
    }

    #[test]
    fn unknown_pattern_is_told_what_there_is() {
        let error = "redis+fences".parse::<Pattern>().unwrap_err();
        assert!(error.contains("redlock") && error.contains("+fence"), "{error}");
    }
}
