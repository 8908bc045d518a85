//! The schema `fencepost`: whether it is there, and making it where the role may.

use fencepost_core::{Error, ErrorKind, Result};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::failure::{failure, is};

/// The version of the schema that this build works with.
pub(crate) const VERSION: i32 = 2;

/// What makes the schema. It can be run again and changes nothing then.
pub(crate) const SQL: &str = concat!(
    "begin;\n",
    // Two who install at once do so one after the other.
    "select pg_catalog.pg_advisory_xact_lock(1717923430, 0);\n",
    "create schema if not exists fencepost;\n",
    include_str!("../sql/lock.sql"),
    include_str!("../sql/fence.sql"),
    "commit;\n",
);

/// Makes sure that the schema is there.
///
/// # Errors
/// `Denied` where it is not and the role may not make it; `Unsupported` where a newer fencepost has made it.
pub(crate) async fn ensure(client: &Client, is_there: bool) -> Result<()> {
    if is_there {
        let version = client.query_opt("select version from fencepost.installation", &[]).await;
        let version = version.map_err(|error| missing_rights(&error))?;
        match version.map(|row| row.get::<_, i32>(0)) {
            Some(VERSION) => return Ok(()),
            Some(other) if other > VERSION => {
                let what =
                    format!("the schema fencepost has version {other}, and this build knows {VERSION}");
                return Err(Error::new(ErrorKind::Unsupported, "use the database", what)
                    .hint("use the newer fencepost that has made it"));
            }
            _ => {}
        }
    }
    install(client).await
}

/// Makes the schema, or brings it up to this version.
///
/// # Errors
/// `Denied` where the role may not.
pub(crate) async fn install(client: &Client) -> Result<()> {
    let installed = client.batch_execute(SQL).await;
    if let Err(error) = installed {
        // The transaction is still open, and everything in it would be refused.
        let _ = client.batch_execute("rollback").await;
        return Err(missing_rights(&error));
    }
    Ok(())
}

/// What an error means for somebody who comes without the rights that a lock needs.
pub(crate) fn missing_rights(error: &tokio_postgres::Error) -> Error {
    let meant = failure(error);
    if is(error, &SqlState::INSUFFICIENT_PRIVILEGE) {
        return meant.hint(
            "the role may not make or use the schema fencepost; \
             `fencepost fence install --dry-run URL` prints the SQL for whoever may, with the rights that it grants",
        );
    }
    meant
}
