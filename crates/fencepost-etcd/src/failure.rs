//! What goes wrong with a member, what is tried next, and what it means in fencepost's words.

use fencepost_core::{Error, ErrorKind};

use crate::grpc::{Code, Refusal};

/// How one try of a call has failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unsent(String),
    /// It was sent, and its answer will not come.
    Broken(String),
    /// The server has answered, and refuses.
    Refused {
        /// Which member.
        at: String,
        /// What it says.
        refusal: Refusal,
    },
    /// There is no sense in trying another member.
    Final(Error),
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask another member.
    Elsewhere,
    /// Log in again, and ask the same one.
    LogIn,
    /// Nothing: it is an answer.
    GiveUp,
}

impl Failure {
    /// What to do after it.
    pub(crate) fn next(&self) -> Next {
        match self {
            Self::Unsent(_) | Self::Broken(_) => Next::Elsewhere,
            Self::Final(_) => Next::GiveUp,
            Self::Refused { refusal, .. } => after(refusal),
        }
    }

    /// Whether the server may carry it out, or may have.
    pub(crate) fn is_doubtful(&self) -> bool {
        match self {
            Self::Unsent(_) | Self::Final(_) => false,
            Self::Broken(_) => true,
            // A member without a leader, or with too much to do, has proposed nothing; one whose proposal timed out has.
            Self::Refused { refusal, .. } => {
                let is_unproposed =
                    ["no leader", "too many requests"].map(|text| refusal.message.contains(text));
                after(refusal) == Next::Elsewhere && !is_unproposed.contains(&true)
            }
        }
    }

    /// Whether the server has answered, and any other one would say the same.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. }) && self.next() == Next::GiveUp
    }

    /// Whether the server says that this lease does not exist.
    pub(crate) fn is_lease_not_found(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. }
            if refusal.code == Code::NotFound && refusal.message.contains("lease not found"))
    }

    /// Whether the server says that there already is such a lease.
    pub(crate) fn is_lease_taken(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.message.contains("lease already exists"))
    }

    /// Whether the server asks nobody for a password.
    pub(crate) fn is_open_to_all(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.message.contains("authentication is not enabled"))
    }

    /// The failure in fencepost's words.
    pub(crate) fn error(self) -> Error {
        match self {
            Self::Unsent(what) | Self::Broken(what) => match what.strip_prefix("cannot connect: ") {
                Some(why) => Error::new(ErrorKind::Unavailable, "connect", why),
                None => Error::new(ErrorKind::Unavailable, "talk to etcd", what),
            },
            Self::Refused { at, refusal } => refused(&at, &refusal),
            Self::Final(error) => error,
        }
    }
}

fn after(refusal: &Refusal) -> Next {
    let says = |text| refusal.message.contains(text);
    match refusal.code {
        Code::Unauthenticated => Next::LogIn,
        Code::InvalidArgument if says("revision of auth store is old") || says("user name is empty") => {
            Next::LogIn
        }
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::DeadlineExceeded => {
            Next::Elsewhere
        }
        // It is behind with what was agreed on, and takes nothing new until it has caught up.
        Code::ResourceExhausted if says("too many requests") => Next::Elsewhere,
        // A learner, or a member that was removed.
        Code::FailedPrecondition if says("learner") => Next::Elsewhere,
        _ => Next::GiveUp,
    }
}

fn refused(at: &str, refusal: &Refusal) -> Error {
    let says = |text| refusal.message.contains(text);
    let error = |kind| Error::new(kind, "use etcd", format!("{at} says: {refusal}"));
    match refusal.code {
        Code::InvalidArgument if says("user name is empty") => error(ErrorKind::Denied)
            .hint("etcd asks for a login; write it before the host: etcd://user:password@host"),
        Code::InvalidArgument if says("authentication failed") => {
            error(ErrorKind::Denied).hint("the user and the password are those of the URL, percent-encoded")
        }
        Code::PermissionDenied => error(ErrorKind::Denied).hint(
            "grant the user's role readwrite on the keys of fencepost: \
             etcdctl role grant-permission ROLE readwrite --prefix=true /fencepost/",
        ),
        Code::Unauthenticated => error(ErrorKind::Denied),
        Code::ResourceExhausted if says("database space exceeded") => error(ErrorKind::Unavailable)
            .hint("compact and defragment etcd, then disarm the alarm: etcdctl alarm disarm"),
        Code::Unimplemented => Error::new(
            ErrorKind::Unsupported,
            "use etcd",
            format!("{at} does not know what fencepost asks for, which etcd 3.4 does: {refusal}"),
        ),
        _ if after(refusal) == Next::Elsewhere || refusal.code == Code::ResourceExhausted => {
            error(ErrorKind::Unavailable)
        }
        _ => error(ErrorKind::Unexpected),
    }
}

/// etcd cannot be used now.
pub(crate) fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, "connect", what)
}

/// etcd answered what it should not.
pub(crate) fn unexpected(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unexpected, "use etcd", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: Code, message: &str) -> Failure {
        let refusal = Refusal { code, message: message.to_owned() };
        Failure::Refused { at: "h:1".to_owned(), refusal }
    }

    #[test]
    fn refusals_say_what_to_do_next() {
        for (code, message, next, kind, is_doubtful) in [
            (Code::Unavailable, "etcdserver: no leader", Next::Elsewhere, ErrorKind::Unavailable, false),
            (
                Code::Unavailable,
                "etcdserver: request timed out",
                Next::Elsewhere,
                ErrorKind::Unavailable,
                true,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                Next::Elsewhere,
                ErrorKind::Unavailable,
                false,
            ),
            (Code::Unknown, "transport", Next::Elsewhere, ErrorKind::Unavailable, true),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Next::LogIn, ErrorKind::Denied, false),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                Next::LogIn,
                ErrorKind::Unexpected,
                false,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", Next::LogIn, ErrorKind::Denied, false),
            (Code::PermissionDenied, "etcdserver: permission denied", Next::GiveUp, ErrorKind::Denied, false),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Next::GiveUp,
                ErrorKind::Unavailable,
                false,
            ),
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                Next::GiveUp,
                ErrorKind::Unexpected,
                false,
            ),
            (Code::Unimplemented, "unknown service", Next::GiveUp, ErrorKind::Unsupported, false),
        ] {
            let failure = said(code, message);
            assert_eq!((failure.next(), failure.is_doubtful()), (next, is_doubtful), "{message}");
            assert_eq!(failure.error().kind(), kind, "{message}");
        }
        assert!(said(Code::NotFound, "etcdserver: requested lease not found").is_lease_not_found());
    }
}
