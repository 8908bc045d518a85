//! How the command ends: the table of exit codes, and the one place that ends the process.

use fencepost::{Error, ErrorKind};

/// An exit code of `fencepost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const OK: Self = Self(0);
    /// `status`: nobody holds the lock.
    pub(crate) const FREE: Self = Self(1);
    /// `revoke`: the lease was not taken away.
    pub(crate) const NOT_DONE: Self = Self(1);
    /// `doctor`: something serious was found.
    pub(crate) const SERIOUS: Self = Self(1);
    /// `lab`: a fence let something through, or a rule of the locks was broken.
    #[cfg(feature = "lab")]
    pub(crate) const NOT_KEPT: Self = Self(1);
    /// `fence show` and `fence forget`: the lock has no mark.
    pub(crate) const NO_MARK: Self = Self(1);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const UNAVAILABLE: Self = Self(69);
    pub(crate) const BUG: Self = Self(70);
    pub(crate) const NOT_ACQUIRED: Self = Self(75);
    pub(crate) const LOST: Self = Self(76);
    pub(crate) const DENIED: Self = Self(77);
    pub(crate) const CONFIG: Self = Self(78);
    pub(crate) const STALE: Self = Self(79);
    pub(crate) const TIMED_OUT: Self = Self(124);
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// What a shell reports for a process that a signal ended.
    pub(crate) fn signalled(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    /// Ends the process at once; nothing else is run.
    #[expect(clippy::disallowed_methods, reason = "the one place that ends the process")]
    pub(crate) fn leave(self) -> ! {
        std::process::exit(i32::from(self.0))
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error.kind() {
            // What was to be done is done.
            ErrorKind::AlreadyDone => Self::OK,
            ErrorKind::Contended => Self::NOT_ACQUIRED,
            ErrorKind::Denied => Self::DENIED,
            ErrorKind::InvalidArgument | ErrorKind::Unsupported => Self::USAGE,
            ErrorKind::Lost => Self::LOST,
            ErrorKind::Stale => Self::STALE,
            ErrorKind::Unavailable | ErrorKind::Indeterminate => Self::UNAVAILABLE,
            _ => Self::BUG,
        }
    }
}
