//! The faults: what is done to a worker, to its links, or to the servers of the lock, and where each of them applies.

use std::fmt;
use std::str::FromStr;

use crate::pattern::{Kind, Pattern, UNLOCKED_AND_FENCED};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing.
    None,
    /// The holder's process is stopped for longer than its lease.
    Pause,
    /// The holder's process is killed, while its write is under way.
    Crash,
    /// The holder is cut off from the servers of the lock, while its write is under way.
    Partition,
    /// The wall clock of the servers is set forward.
    Clock,
    /// The servers are killed, and started again with what they have kept.
    ServerRestart,
    /// The servers lose what they knew of the lock.
    DataLoss,
}

/// How a holder is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// Nothing passes, and nobody is told.
    Blackhole,
    /// Connections are reset, and new ones refused.
    Cut,
    /// Requests arrive, and their replies do not.
    RepliesLost,
    /// Everything arrives, later than the lease is long.
    Slow,
}

/// How servers lose what they knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// They are started again with nothing.
    Emptied,
    /// A copy that was made before the grant takes their place.
    OldCopy,
}

impl Fault {
    /// All of them, from the mildest to the worst.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Pause,
        Self::Crash,
        Self::Partition,
        Self::Clock,
        Self::ServerRestart,
        Self::DataLoss,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pause => "pause",
            Self::Crash => "crash",
            Self::Partition => "partition",
            Self::Clock => "clock",
            Self::ServerRestart => "server-restart",
            Self::DataLoss => "data-loss",
        }
    }

    /// Whether it is done to the servers of the lock, which are others afterwards.
    pub(crate) const fn is_of_servers(self) -> bool {
        matches!(self, Self::Clock | Self::ServerRestart | Self::DataLoss)
    }

    /// Why it cannot happen to a pattern, where it cannot.
    pub(crate) fn inapplicable(self, pattern: Pattern) -> Option<&'static str> {
        let needs_servers = self.is_of_servers() || self == Self::Partition;
        match pattern.kind {
            _ if pattern == UNLOCKED_AND_FENCED => {
                Some("without a lock there is no token that a fence could check")
            }
            Kind::None if needs_servers => Some("without a lock there is no server that could fail"),
            Kind::File if needs_servers => {
                Some("a lock in a directory of this host has no server and no network")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|fault| fault.name() == text).ok_or_else(|| {
            format!("there is no fault {text:?}; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

impl Partition {
    /// What is done, after "its link to the servers of the lock".
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::Blackhole => "swallows everything",
            Self::Cut => "is cut",
            Self::RepliesLost => "swallows the replies",
            Self::Slow => "is slower than the lease is long",
        }
    }
}

impl Loss {
    /// What is done, after "the servers of the lock".
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::Emptied => "are started again with nothing",
            Self::OldCopy => "are replaced by a copy that is older than the grant",
        }
    }
}
