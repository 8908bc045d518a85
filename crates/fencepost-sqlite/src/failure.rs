//! What goes wrong with a database, in fencepost's words.

use std::path::Path;

use fencepost_core::{Error, ErrorKind};
use rusqlite::ErrorCode;
use rustix::io::Errno;

/// What a failure of SQLite on the database `path` means.
pub(crate) fn failure(path: &Path, error: rusqlite::Error) -> Error {
    let shown = path.display();
    let plain = |kind| Error::new(kind, "use the database", shown.to_string());
    let meant = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => busy(path),
        Some(
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied,
        ) => plain(ErrorKind::Denied).hint(WRITABLE),
        Some(ErrorCode::CannotOpen) if !is_open_to_us(path) => plain(ErrorKind::Denied).hint(WRITABLE),
        Some(ErrorCode::CannotOpen) if !path.exists() => plain(ErrorKind::Unavailable)
            .hint("it is the file of the database that is written to: name it, or make it first"),
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed,
        ) => plain(ErrorKind::Unavailable),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => plain(ErrorKind::Unexpected)
            .hint("restore it; a mark that is older than the last seal lets former holders write"),
        _ => plain(ErrorKind::Unexpected),
    };
    meant.caused_by(error)
}

const WRITABLE: &str =
    "SQLite writes the file and makes others beside it: whoever seals needs both the file and its directory";

/// Whether this process may read and write the file and make others beside it. It is not opened for that: closing it would
/// end all locks that this process has on it.
fn is_open_to_us(path: &Path) -> bool {
    // What is not there is not denied either.
    let may = |path: &Path, access| matches!(rustix::fs::access(path, access), Ok(()) | Err(Errno::NOENT));
    let all = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    may(path, all) && path.parent().is_none_or(|directory| may(directory, all | rustix::fs::Access::EXEC_OK))
}

/// Whether somebody else has the database, and trying again may help.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether the stamp was refused by what the fence has put into the database.
pub(crate) fn is_refusal(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(_, Some(said)) if said.starts_with("fencepost FP002"))
}

/// Whether a stamp could not be shown, or there is nothing that it could be shown to.
pub(crate) fn is_unprepared(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(_, Some(said)) if said.starts_with("fencepost FP001"))
}

fn busy(path: &Path) -> Error {
    let what = format!("another process is inside a write transaction on {}", path.display());
    Error::new(ErrorKind::Unavailable, "use the database", what).hint(
        "SQLite has one writer at a time, and nobody can end the transaction of another: end that process",
    )
}
