//! What goes wrong with an ensemble, in fencepost's words.

use fencepost_core::{Error, ErrorKind, LossReason, Result};

use crate::connection::Broken;
use crate::protocol::{Answer, Code};

/// The lease is not there any more; `reason` says by whose will, where that is known.
pub(crate) fn gone(reason: Option<&str>) -> Error {
    match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => Error::lost(LossReason::Revoked, format!("it was taken away: {reason}")),
        None => Error::lost(LossReason::Expired, "its node is not there any more"),
    }
}

pub(crate) fn expired() -> Error {
    Error::lost(LossReason::SessionEnded, "the ensemble has ended the session")
}

pub(crate) fn closed() -> Error {
    Error::lost(LossReason::SessionEnded, "the session was closed")
}

pub(crate) fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, "connect", what)
}

/// The connection broke; nothing is said about what was sent.
pub(crate) fn lost_touch(broken: &Broken) -> Error {
    Error::new(ErrorKind::Unavailable, "talk to the ensemble", broken.why.clone())
}

/// What a code means that is not expected.
pub(crate) fn refused(code: Code) -> Error {
    let kind = match code {
        Code::NO_AUTH | Code::AUTH_FAILED | Code::INVALID_ACL | Code::LOGIN_NEEDED => ErrorKind::Denied,
        Code::SESSION_EXPIRED => return expired(),
        Code::SESSION_MOVED => ErrorKind::Unavailable,
        _ => ErrorKind::Unexpected,
    };
    let error = Error::new(kind, "use the ensemble", format!("ZooKeeper says {}", code.describe()));
    if kind == ErrorKind::Denied {
        return error
            .hint("what is there belongs to another login; see the option acl, and the nodes' own ACLs");
    }
    error
}

/// The answer, if it is that all went well.
pub(crate) fn fine(answer: Result<Answer, Broken>) -> Result<Answer> {
    let answer = answer.map_err(|broken| lost_touch(&broken))?;
    match answer.code {
        Code::OK => Ok(answer),
        code => Err(refused(code)),
    }
}

/// What cannot be read of an answer.
pub(crate) fn garbled(_: crate::jute::Garbled) -> Error {
    Error::new(ErrorKind::Unexpected, "use the ensemble", "the server's answer is not what it should be")
}
