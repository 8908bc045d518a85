//! Behind a pooler that gives each transaction another session: the check travels with the transaction.

use std::process::{Command, Stdio};

use fencepost_core::Fence;
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresClient, psql};

use crate::stage::{LOCK, Stage, assert_code, fence_at, name, stamp};
use crate::transaction::{connect, lease, locks, on_runtime};

const ADD: &str = "update account set total = total + 1 where id = 1";

/// A pooler with one session for all.
fn pooled() -> (Stage, PgBouncer) {
    let stage = Stage::new();
    let pooler = PgBouncer::start(&stage.server, PoolMode::Transaction, &["default_pool_size=1"]);
    (stage, pooler)
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn library_writes_through_a_pooler() {
    let (stage, pooler) = pooled();
    on_runtime(async {
        let (mut client, fence) = (connect(pooler.port()).await, fence_at(&pooler.url()));
        let lease = lease(&locks()).await;
        for _ in 0..3 {
            let transaction = fence.transaction(&mut client, &lease).await.unwrap();
            transaction.execute_typed(ADD, &[]).await.unwrap();
            transaction.commit().await.unwrap();
        }
    });
    assert_eq!(stage.total(), "3");
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn fence_does_all_it_does_through_a_pooler() {
    let (stage, pooler) = pooled();
    let fence = fence_at(&pooler.url());
    assert_eq!(block_on(fence.install(Some(("account", &name(LOCK))))).unwrap().len(), 2);
    block_on(fence.seal(&stamp(LOCK, 11, "c"))).unwrap();
    block_on(fence.check(&stamp(LOCK, 11, "c"))).unwrap();
    block_on(fence.check(&stamp(LOCK, 10, "b"))).unwrap_err();
    assert!(block_on(fence.findings(&name(LOCK))).unwrap().is_empty());
    assert!(block_on(fence.forget(&name(LOCK))).unwrap());
    assert_eq!(stage.mark(), None);
}

/// What one client has checked is no stamp of the next on the same session.
#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn check_in_a_transaction_of_psql_is_good_for_that_transaction_alone() {
    let (stage, pooler) = pooled();
    let check = "select fencepost.check('ledger/1', 10, 'b')";
    psql(&pooler.url(), &format!("begin; {check}; {ADD}; commit")).unwrap();
    let (mut one, mut two) =
        (PostgresClient::connect(&pooler.url()).unwrap(), PostgresClient::connect(&pooler.url()).unwrap());
    assert_code(&one.query(&format!("begin; {check}; {ADD}; commit")), "ok");
    for session in [&mut two, &mut one] {
        assert_code(&session.query(ADD), "FP001");
    }
    stage.seal(11, "c").unwrap();
    assert_code(&one.query(&format!("begin; {check}")), "FP002");
    one.query("rollback").unwrap();
    assert_eq!(stage.total(), "2");
}

const PROGRAM: &str = "
import sys, psycopg
with psycopg.connect(sys.argv[1]) as connection:
    for _ in range(3):
        with connection.transaction():
            connection.execute('select fencepost.check(%s, %s, %s)', ('ledger/1', int(sys.argv[2]), 'b'))
            connection.execute('update account set total = total + 1 where id = 1')
";

/// Whether there is a Python with psycopg 3.
fn has_psycopg() -> bool {
    let python = Command::new(PYTHON).args(["-c", "import psycopg"]).stderr(Stdio::null()).status();
    python.is_ok_and(|status| status.success())
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn check_in_a_transaction_of_psycopg_is_enough_through_a_pooler() {
    if !has_psycopg() {
        assert!(std::env::var_os("CI").is_none(), "psycopg is not installed, and CI must prove this");
        return;
    }
    let (stage, pooler) = pooled();
    let run = |token: &str| {
        let output = Command::new(PYTHON).args(["-c", PROGRAM, &pooler.url(), token]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_accepted, said) = run("10");
    assert!(is_accepted, "{said}");
    let (is_accepted, said) = run("9");
    assert!(!is_accepted && said.contains("stale stamp"), "{said}");
    assert_eq!(stage.total(), "3");
}

/// Debian's own, which its package of psycopg is for.
const PYTHON: &str = "/usr/bin/python3";
