//! What holders of a lock leave beside its token for those to come.

use fencepost_core::{Error, ErrorKind, Grant, LockName, Result};
use tokio_postgres::types::{ToSql, Type};

use crate::schema::missing_rights;
use crate::session::Session;

/// What stands in the logbook of a lock, if anything does.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn read(session: &Session, name: &LockName) -> Result<Option<Vec<u8>>> {
    let rows = session.client().query_typed(READ, &[(&name.as_str(), Type::TEXT)]).await;
    Ok(rows.map_err(|error| missing_rights(&error))?.first().map(|row| row.get(0)))
}

/// Writes the logbook of the lock with that id, if the session holds it by that grant. Whether it does. The session that holds the lock
/// is the one that writes, so nobody else can have been granted it before this is committed.
///
/// # Cancel safety
/// A dropped call may or may not have written it, and writes nothing once the session is gone.
///
/// # Errors
/// `Indeterminate` when a standby that was to have it may not have it.
pub(crate) async fn write(session: &Session, id: i32, grant: &Grant, content: &[u8]) -> Result<bool> {
    let token = i64::try_from(grant.token.get()).unwrap_or(i64::MAX);
    let holder = grant.holder.to_string();
    let warned = session.connection.warnings();
    let values: [(&(dyn ToSql + Sync), Type); 4] =
        [(&id, Type::INT4), (&token, Type::INT8), (&holder, Type::TEXT), (&content, Type::BYTEA)];
    let written = session.client().execute_typed(WRITE, &values).await;
    let written = written.map_err(|error| missing_rights(&error))?;
    if session.connection.warnings() != warned {
        let what = "the server warned when it committed it";
        return Err(Error::new(ErrorKind::Indeterminate, "write the logbook", what));
    }
    Ok(written == 1)
}

const READ: &str =
    "select b.content from fencepost.lock l join fencepost.logbook b on b.id = l.id where l.name = $1";

const WRITE: &str = "insert into fencepost.logbook as b (id, content)
    select $1, $4 where fencepost.holder_of($1, $2, $3) = fencepost.held_by($1)
    on conflict (id) do update set content = excluded.content";
