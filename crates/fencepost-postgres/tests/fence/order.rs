//! Who waits for whom: writers under the mark, a seal that would raise it, and the writers that come after it.

use fencepost_testkit::servers::PostgresClient;

use crate::stage::{GOOD, NONE, Stage, UNSEALED, assert_code, code};

const ADD: &str = "update account set total = total + 1 where id = 1";
const SEAL: &str = "select fencepost.seal('ledger/1', 11, 'c')";

/// A session that is inside a transaction in which it has written.
fn writing(stage: &Stage, stamps: &str, id: u32) -> PostgresClient {
    let mut session = stage.session(stamps);
    session.query(&format!("begin; update account set total = total + 1 where id = {id}")).unwrap();
    session
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn write_that_waits_behind_a_newer_seal_is_refused() {
    let stage = Stage::new();
    let mut newer = stage.session_of("postgres", UNSEALED);
    newer.query(&format!("begin; {SEAL}; {ADD}")).unwrap();
    let mut older = stage.session(GOOD);
    older.send(ADD);
    stage.wait_for_waiters(1);
    newer.query("commit").unwrap();
    assert_code(&older.receive(), "FP002");
    assert_eq!(stage.total(), "1");
}

/// A seal that is rolled back has sealed nothing.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn write_that_waits_behind_a_seal_that_fails_is_accepted() {
    let stage = Stage::new();
    let mut newer = stage.session_of("postgres", NONE);
    newer.query(&format!("begin; {SEAL}")).unwrap();
    let mut older = stage.session(GOOD);
    older.send(ADD);
    stage.wait_for_waiters(1);
    newer.query("rollback").unwrap();
    assert_code(&older.receive(), "ok");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn seal_waits_for_the_writers_under_the_mark() {
    let stage = Stage::new();
    let mut older = writing(&stage, GOOD, 1);
    let mut newer = stage.session_of("postgres", NONE);
    newer.send(SEAL);
    stage.wait_for_waiters(1);
    older.query(&format!("{ADD}; commit")).unwrap();
    assert_code(&newer.receive(), "ok");
    assert_eq!(
        newer.query("select sum(total) from account").unwrap(),
        "2",
        "it reads what was written before"
    );
    assert_code(&older.query(ADD), "FP002");
}

/// Otherwise writers that overlap each other could keep a seal waiting for ever.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn writer_that_comes_later_waits_behind_a_seal() {
    let stage = Stage::new();
    let mut older = writing(&stage, GOOD, 1);
    let mut newer = stage.session_of("postgres", NONE);
    newer.send(SEAL);
    stage.wait_for_waiters(1);
    let mut late = stage.session(GOOD);
    late.send("update account set total = total + 1 where id = 2");
    stage.wait_for_waiters(2);
    older.query("commit").unwrap();
    assert_code(&newer.receive(), "ok");
    assert_code(&late.receive(), "FP002");
    assert_eq!(stage.total(), "1");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn writers_of_one_holder_go_on_side_by_side_while_a_seal_waits() {
    let stage = Stage::new();
    let mut writers: Vec<_> = (1..=4).map(|id| writing(&stage, GOOD, id)).collect();
    let mut newer = stage.session_of("postgres", NONE);
    newer.send(SEAL);
    stage.wait_for_waiters(1);
    for (id, writer) in (1..).zip(&mut writers) {
        let again = format!("update account set total = total + 1 where id = {id}");
        assert_code(&writer.query(&again), "ok");
    }
    for writer in &mut writers {
        assert_code(&writer.query("commit"), "ok");
    }
    assert_code(&newer.receive(), "ok");
    assert_eq!(stage.total(), "8");
}

/// The lost update that a fence without a seal lets through: the reading came before the last write of the old holder.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn reading_after_the_seal_loses_no_update_and_one_before_it_does() {
    for (is_sealed_first, expected) in [(true, "1"), (false, "1")] {
        let stage = Stage::new();
        let (mut older, mut newer) = (stage.session(GOOD), stage.session_of("postgres", UNSEALED));
        let read =
            |session: &mut PostgresClient| session.query("select total from account where id = 1").unwrap();
        if is_sealed_first {
            newer.query(SEAL).unwrap();
        }
        let seen: i64 = read(&mut newer).parse().unwrap();
        let late = older.query(ADD);
        newer.query(SEAL).unwrap();
        newer.query(&format!("update account set total = {} where id = 1", seen + 1)).unwrap();
        assert_code(&late, if is_sealed_first { "FP002" } else { "ok" });
        // Where the late write was accepted, the total should be 2.
        assert_eq!(stage.total(), expected);
    }
}

/// The control: to ask for the mark and then to write lets a seal come between the two.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn mark_that_is_compared_by_the_client_lets_a_stale_write_in() {
    for is_guarded in [false, true] {
        let stage = Stage::unguarded();
        stage.seal(10, "b").unwrap();
        if is_guarded {
            stage.guard("account", "ledger/1");
        }
        let mut older = stage.session(GOOD);
        let ask = "select token from fencepost.marks('ledger/1', '')";
        assert_eq!(stage.server.query(ask), "10", "the old holder sees its own token");
        let mut newer = stage.session_of("postgres", UNSEALED);
        newer.query(&format!("{SEAL}; update account set total = 5 where id = 1")).unwrap();
        let late = older.query("update account set total = 1 where id = 1");
        assert_eq!(code(&late), if is_guarded { "FP002" } else { "ok" });
        assert_eq!(stage.total(), if is_guarded { "5" } else { "1" });
    }
}
