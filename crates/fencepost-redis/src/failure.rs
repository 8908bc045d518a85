//! What goes wrong with a server, in fencepost's words.

use fencepost_core::{Error, ErrorKind, Result};

use crate::connection::Broken;
use crate::resp::Reply;

/// The reply, unless it is a refusal.
pub(crate) fn refuse(reply: Reply) -> Result<Reply> {
    match reply {
        Reply::Refused(what) => Err(refused(&what)),
        reply => Ok(reply),
    }
}

/// What a refusal of the server means.
pub(crate) fn refused(what: &str) -> Error {
    let code = what.split([' ', ':']).next().unwrap_or_default();
    if what.contains("DB index is out of range") {
        return Error::new(ErrorKind::InvalidArgument, "use the URL", format!("Redis says: {what}"));
    }
    let kind = match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" | "-DENIED" => ErrorKind::Denied,
        _ if what.contains("max number of clients") => ErrorKind::Unavailable,
        "LOADING" | "BUSY" | "READONLY" | "MASTERDOWN" | "OOM" | "MISCONF" | "NOREPLICAS" | "UNKILLABLE" => {
            ErrorKind::Unavailable
        }
        // What a script may not do is refused in other words than a command.
        _ if ["NOPERM", "ACL", "The user executing the script can't"]
            .iter()
            .any(|words| what.contains(words)) =>
        {
            ErrorKind::Denied
        }
        _ if ["READONLY", "OOM ", "MISCONF", "NOREPLICAS"].iter().any(|code| what.contains(code)) => {
            ErrorKind::Unavailable
        }
        _ => ErrorKind::Unexpected,
    };
    Error::new(kind, "use the server", format!("Redis says: {what}"))
}

pub(crate) fn unexpected(asked: &str, reply: &Reply) -> Error {
    Error::new(ErrorKind::Unexpected, "use the server", format!("Redis answers {asked} with {reply}"))
}

pub(crate) fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, "connect", what)
}

/// The connection broke; nothing is said about what was sent.
pub(crate) fn lost_touch(broken: &Broken) -> Error {
    Error::new(ErrorKind::Unavailable, "talk to the server", broken.why.clone())
}
