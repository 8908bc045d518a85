//! The statements that a session prepares once, at its beginning.

use fencepost_core::Result;
use futures_util::future::try_join_all;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use crate::failure::unexpected;
use crate::schema::missing_rights;

/// The statements of a session, prepared once.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) lock_id: Statement,
    pub(crate) acquire: Statement,
    pub(crate) share: Statement,
    pub(crate) release: Statement,
    pub(crate) stop_sharing: Statement,
    pub(crate) give_up: Statement,
    pub(crate) held_by: Statement,
    pub(crate) limit: Statement,
}

impl Statements {
    pub(crate) async fn prepare(client: &Client) -> Result<Self> {
        let request =
            &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL, Type::BOOL, Type::TEXT, Type::TEXT]
                [..];
        let to_share =
            &[Type::INT4, Type::TEXT, Type::TEXT, Type::BOOL, Type::BOOL, Type::TEXT, Type::TEXT][..];
        let id = &[Type::INT4][..];
        let prepared = try_join_all([
            client.prepare_typed("select fencepost.lock_id($1)", &[Type::TEXT]),
            client.prepare_typed("select fencepost.acquire($1, $2, $3, $4, $5, $6, $7, $8)", request),
            client.prepare_typed("select fencepost.share($1, $2, $3, $4, $5, $6, $7)", to_share),
            client.prepare_typed("select pg_catalog.pg_advisory_unlock(1717923427, $1)", id),
            client.prepare_typed("select fencepost.stop_sharing($1)", id),
            client.prepare_typed("select fencepost.give_up($1, false)", id),
            client.prepare_typed("select fencepost.held_by($1)", id),
            client.prepare_typed(
                "select pg_catalog.set_config('idle_session_timeout', $1, false)",
                &[Type::TEXT],
            ),
        ]);
        let prepared = prepared.await.map_err(|error| missing_rights(&error))?;
        let [lock_id, acquire, share, release, stop_sharing, give_up, held_by, limit] =
            prepared
                .try_into()
                .map_err(|_| unexpected("it prepared other statements than it was asked for"))?;
        Ok(Self { lock_id, acquire, share, release, stop_sharing, give_up, held_by, limit })
    }
}
