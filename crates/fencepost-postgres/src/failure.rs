//! What goes wrong with a server, in fencepost's words.

use fencepost_core::{Error, ErrorKind};
use tokio_postgres::error::{DbError, SqlState};

/// What a failure of the client library means. One that is not the server's word says that the connection is gone.
pub(crate) fn failure(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(refusal) => refused(refusal),
        None => lost_touch(error),
    }
}

/// What a refusal of the server means.
fn refused(refusal: &DbError) -> Error {
    let code = refusal.code();
    let what = said(refusal);
    let error = |kind| Error::new(kind, "use the database", format!("Postgres says: {what}"));
    match code.code() {
        "28P01" => error(ErrorKind::Denied)
            .hint("the password is that of the URL, of PGPASSWORD, or of ~/.pgpass, in this order"),
        "28000" | "42501" => error(ErrorKind::Denied),
        // A pooler says so in words of its own.
        "08P01" if what.contains("authentication failed") => error(ErrorKind::Denied),
        "3D000" => error(ErrorKind::InvalidArgument)
            .hint("name a database that exists: postgres://user@host/DATABASE"),
        "53300" => error(ErrorKind::Unavailable)
            .hint("a holder and a waiter take a connection each; raise max_connections, or run fewer"),
        // It starts, it ends, it recovers, or somebody ended the session.
        "57P01" | "57P02" | "57P03" | "57P05" | "57014" => error(ErrorKind::Unavailable),
        // Out of memory, disk or the like; a lock that could not be waited for; a session that is gone.
        _ if ["53", "55", "08", "58"].iter().any(|class| code.code().starts_with(class)) => {
            error(ErrorKind::Unavailable)
        }
        "42704"
            if what.contains("client_connection_check_interval") || what.contains("idle_session_timeout") =>
        {
            Error::new(ErrorKind::Unsupported, "connect", "it needs PostgreSQL 14 or newer")
        }
        _ => error(ErrorKind::Unexpected),
    }
}

/// A refusal as one line.
pub(crate) fn said(refusal: &DbError) -> String {
    match refusal.detail() {
        Some(detail) => format!("{} ({detail})", refusal.message()),
        None => refusal.message().to_owned(),
    }
}

/// Whether the server said `code`.
pub(crate) fn is(error: &tokio_postgres::Error, code: &SqlState) -> bool {
    error.code() == Some(code)
}

fn lost_touch(error: &tokio_postgres::Error) -> Error {
    use std::error::Error as _;
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    // The library has words of its own where it could not log in.
    if why.contains("password missing") {
        return Error::new(ErrorKind::Denied, "connect", "the server asks for a password, and there is none")
            .hint("set PGPASSWORD, or add a line to ~/.pgpass");
    }
    if error.to_string().starts_with("authentication error") {
        return Error::new(ErrorKind::Denied, "connect", why);
    }
    if error.to_string().starts_with("error performing TLS handshake") {
        return Error::new(ErrorKind::Unavailable, "connect", format!("TLS: {why}"));
    }
    let is_broken =
        error.is_closed() || error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
    if !is_broken {
        return unexpected(why);
    }
    Error::new(ErrorKind::Unavailable, "talk to the server", why)
}

/// The server cannot be used now.
pub(crate) fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, "connect", what)
}

/// The server answered what it should not.
pub(crate) fn unexpected(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unexpected, "use the database", what)
}
