//! What a fence needs in a database: whether it is there, and making it.

use fencepost_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension};

use crate::database::Session;

/// The version of the tables that this build works with. The file's own `user_version` is the user's.
const VERSION: i64 = 1;

/// What makes the tables. It can be run again and changes nothing then.
pub(crate) const SQL: &str = include_str!("../sql/schema.sql");

/// Whether the tables are there.
///
/// # Errors
/// `Unsupported` where a newer fencepost has made them.
pub(crate) fn is_there(session: &Session<'_>) -> Result<bool> {
    match session.look(version)? {
        Some(newer) if newer > VERSION => {
            let what = format!("its fence has version {newer}, and this build knows {VERSION}");
            Err(Error::new(ErrorKind::Unsupported, "use the database", what)
                .hint("use the newer fencepost that has made it"))
        }
        version => Ok(version.is_some()),
    }
}

/// Makes sure that the tables are there, inside a change; says whether they were.
///
/// # Errors
/// `Unsupported` where a newer fencepost has made them.
pub(crate) fn ensure(session: &Session<'_>) -> Result<bool> {
    let was_there = is_there(session)?;
    if !was_there {
        session.run(|connection| connection.execute_batch(SQL))?;
    }
    Ok(was_there)
}

fn version(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'fencepost_installation'";
    if !connection.prepare(sql)?.exists([])? {
        return Ok(None);
    }
    let sql = "SELECT version FROM fencepost_installation";
    connection.query_row(sql, [], |row| row.get(0)).optional()
}
