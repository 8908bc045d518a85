//! `PostgresFence::transaction`: the check and the writes of a client that somebody else has made, in one transaction.

use fencepost_core::{Clock, ErrorKind, Fence, Lease, Locks, MemoryBackend};
use fencepost_postgres::PostgresFence;
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls};

use crate::stage::{LOCK, Stage, assert_kind, stamp};

const ADD: &str = "update account set total = total + 1 where id = 1";

/// A client as an application has it.
pub(crate) async fn connect(port: u16) -> Client {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut config = Config::new();
    config.user("postgres").dbname("postgres");
    let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Runs on the runtime of an application.
pub(crate) fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A lease from somewhere else; its token is far above the mark.
pub(crate) async fn lease(locks: &Locks) -> Lease {
    locks.lock(LOCK).unwrap().acquire().await.unwrap()
}

pub(crate) fn locks() -> Locks {
    Locks::new(MemoryBackend::new(Clock::system()))
}

fn later(lease: &Lease) -> fencepost_core::Stamp {
    stamp(LOCK, lease.token().get() + 1, "later")
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn guarded_table_takes_the_writes_of_a_fenced_transaction() {
    let stage = Stage::new();
    on_runtime(async {
        let (mut client, fence, lease) =
            (connect(stage.server.port()).await, stage.fence(), lease(&locks()).await);
        client.execute(ADD, &[]).await.unwrap_err();
        for _ in 0..2 {
            let transaction = fence.transaction(&mut client, &lease).await.unwrap();
            assert_eq!(transaction.execute(ADD, &[]).await.unwrap(), 1);
            transaction.commit().await.unwrap();
        }
        client.execute(ADD, &[]).await.unwrap_err();
        assert_eq!(stage.mark().unwrap().token, lease.token());
    });
    assert_eq!(stage.total(), "2");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stale_lease_begins_no_transaction() {
    let stage = Stage::new();
    on_runtime(async {
        let (mut client, fence, lease) =
            (connect(stage.server.port()).await, stage.fence(), lease(&locks()).await);
        fence.seal(&later(&lease)).await.unwrap();
        let error = fence.transaction(&mut client, &lease).await.unwrap_err();
        assert_kind(&error, ErrorKind::Stale);
        client.query_one("select 1", &[]).await.expect("the client is as it was");
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn transaction_of_a_lost_lease_is_rolled_back() {
    let stage = Stage::new();
    on_runtime(async {
        let locks = locks();
        let (mut client, fence, lease) =
            (connect(stage.server.port()).await, stage.fence(), lease(&locks).await);
        let transaction = fence.transaction(&mut client, &lease).await.unwrap();
        transaction.execute(ADD, &[]).await.unwrap();
        locks.revoke(LOCK, lease.token(), "it is needed elsewhere").await.unwrap();
        lease.lost().await;
        assert_kind(&transaction.commit().await.unwrap_err(), ErrorKind::Lost);
        let error = fence.transaction(&mut client, &lease).await.unwrap_err();
        assert_kind(&error, ErrorKind::Lost);
    });
    assert_eq!(stage.total(), "0");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn transaction_that_is_dropped_is_rolled_back() {
    let stage = Stage::new();
    on_runtime(async {
        let (mut client, fence, lease) =
            (connect(stage.server.port()).await, stage.fence(), lease(&locks()).await);
        let transaction = fence.transaction(&mut client, &lease).await.unwrap();
        transaction.execute(ADD, &[]).await.unwrap();
        drop(transaction);
        client.query_one("select 1", &[]).await.expect("the client goes on");
        fence.seal(&later(&lease)).await.expect("and holds up nobody");
    });
    assert_eq!(stage.total(), "0");
}

/// The server ends such a transaction without a word, whatever is asked of it.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn transaction_in_which_a_statement_failed_is_not_said_to_be_committed() {
    let stage = Stage::new();
    on_runtime(async {
        let (mut client, fence, lease) =
            (connect(stage.server.port()).await, stage.fence(), lease(&locks()).await);
        let transaction = fence.transaction(&mut client, &lease).await.unwrap();
        transaction.execute(ADD, &[]).await.unwrap();
        transaction.execute("insert into account values (1)", &[]).await.unwrap_err();
        transaction.commit().await.expect_err("its writes are gone");
        let transaction = fence.transaction(&mut client, &lease).await.unwrap();
        transaction.execute(ADD, &[]).await.unwrap();
        transaction.commit().await.expect("the client goes on");
    });
    assert_eq!(stage.total(), "1");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn newer_seal_ends_a_transaction_that_stays_open() {
    let stage = Stage::new();
    on_runtime(async {
        let (mut client, fence, lease) =
            (connect(stage.server.port()).await, stage.fence(), lease(&locks()).await);
        let transaction = fence.transaction(&mut client, &lease).await.unwrap();
        transaction.execute(ADD, &[]).await.unwrap();
        let other: PostgresFence = stage.fence();
        other.seal(&later(&lease)).await.unwrap();
        assert_kind(&transaction.commit().await.unwrap_err(), ErrorKind::Unavailable);
    });
    assert_eq!(stage.total(), "0");
}
