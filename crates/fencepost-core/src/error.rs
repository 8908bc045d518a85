//! The one error type: what kind, during what, for which lock, why, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::name::LockName;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it was, and so what the caller may conclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was to be done once in its period has been done, or begun, in it or in a later one.
    AlreadyDone,
    /// Somebody else holds the lock, or the store grants nothing yet. Trying later may help.
    Contended,
    /// The store refused access.
    Denied,
    /// The store may or may not have done it. The clean-up has begun, and the ttl bounds what is left.
    Indeterminate,
    /// The caller asked for something that makes no sense.
    InvalidArgument,
    /// The lease is gone, or may be.
    Lost,
    /// A fence has seen a greater token.
    Stale,
    /// The store cannot be reached, and it has done nothing.
    Unavailable,
    /// The store answered something that it should not, or fencepost has a bug.
    Unexpected,
    /// The backend cannot do this.
    Unsupported,
}

impl ErrorKind {
    /// How an attempt that failed so has ended, in the word of the reports of `fencepost run`.
    pub fn outcome(self) -> &'static str {
        match self {
            Self::AlreadyDone => "already_done",
            Self::Contended => "not_acquired",
            Self::Denied => "denied",
            Self::Lost => "lost",
            Self::Stale => "stale",
            _ => "unavailable",
        }
    }
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// It was not renewed in time.
    Deadline,
    /// The store gave it to somebody else, or no longer knows it.
    Expired,
    /// Somebody took it away by force.
    Revoked,
    /// What the lock is kept in was replaced or removed.
    Replaced,
    /// The session that carried it has ended.
    SessionEnded,
    /// A fence has refused its token: somebody else holds the lock by now.
    Refused,
    /// What renewed it has ended by a bug.
    KeeperDied,
}

impl LossReason {
    /// The reason as one word for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Replaced => "replaced",
            Self::SessionEnded => "session_ended",
            Self::Refused => "refused",
            Self::KeeperDied => "keeper_died",
        }
    }
}

/// A failure. Cheap to clone; prints as one line that says what failed, on which lock, and why.
#[derive(Clone)]
pub struct Error(Arc<Content>);

#[derive(Clone)]
struct Content {
    kind: ErrorKind,
    operation: &'static str,
    lock: Option<LockName>,
    context: String,
    hint: Option<String>,
    loss: Option<LossReason>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure of `kind` to do `operation` (a verb phrase: "acquire", "read the token record"), because of `context`.
    pub fn new(kind: ErrorKind, operation: &'static str, context: impl Into<String>) -> Self {
        let context = context.into();
        Self(Arc::new(Content { kind, operation, lock: None, context, hint: None, loss: None, source: None }))
    }

    /// A lease that is lost for `reason`.
    pub fn lost(reason: LossReason, context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Lost, "keep the lease", context).with(|content| content.loss = Some(reason))
    }

    /// Adds the lock that it was about.
    pub fn on(self, lock: &LockName) -> Self {
        self.with(|content| content.lock = Some(lock.clone()))
    }

    /// Changes what was tried.
    pub fn during(self, operation: &'static str) -> Self {
        self.with(|content| content.operation = operation)
    }

    /// Adds what to do about it.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.with(|content| content.hint = Some(hint))
    }

    /// Adds what caused it.
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.with(|content| content.source = Some(Arc::new(source)))
    }

    fn with(mut self, change: impl FnOnce(&mut Content)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was tried.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The lock that it was about.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.lock.as_ref()
    }

    /// What to do about it, where that is known.
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Why a lease was lost, where it was.
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.0.loss
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lock) = &self.0.lock {
            write!(f, "{lock}: ")?;
        }
        write!(f, "cannot {}: {}", self.0.operation, self.0.context)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        match &self.0.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_says_what_where_and_why() {
        let name: LockName = "ledger/1".parse().unwrap();
        let error = Error::new(ErrorKind::Denied, "open the lock file", "/x/ledger%2F1.lock")
            .on(&name)
            .caused_by(std::io::Error::from_raw_os_error(13));
        assert_eq!(
            error.to_string(),
            "ledger/1: cannot open the lock file: /x/ledger%2F1.lock: Permission denied (os error 13)"
        );
    }
}
