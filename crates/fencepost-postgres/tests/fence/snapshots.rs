//! Transactions whose snapshot is older than a seal: a plain look at the mark would show them the one of before.

use crate::stage::{GOOD, NONE, Stage, UNSEALED, assert_code};

const ADD: &str = "update account set total = total + 1 where id = 1";
const LOOK: &str = "select sum(total) from account";

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn writer_whose_snapshot_is_older_than_the_seal_has_to_begin_anew() {
    for level in ["repeatable read", "serializable"] {
        let stage = Stage::new();
        let mut older = stage.session(GOOD);
        older.query(&format!("begin isolation level {level}; {LOOK}")).unwrap();
        stage.seal(11, "c").unwrap();
        assert_code(&older.query(ADD), "40001");
        older.query("rollback").unwrap();
        assert_code(&older.query(&format!("begin isolation level {level}; {ADD}")), "FP002");
        older.query("rollback").unwrap();
        assert_eq!(stage.total(), "0");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn check_whose_snapshot_is_older_than_the_seal_has_to_begin_anew() {
    for level in ["repeatable read", "serializable"] {
        let stage = Stage::new();
        let mut older = stage.session(NONE);
        older.query(&format!("begin isolation level {level}; {LOOK}")).unwrap();
        stage.seal(11, "c").unwrap();
        assert_code(&older.query("select fencepost.check('ledger/1', 10, 'b')"), "40001");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn writer_whose_snapshot_is_older_than_its_own_seal_has_to_begin_anew() {
    for level in ["repeatable read", "serializable"] {
        let stage = Stage::new();
        let mut newer = stage.session(UNSEALED);
        newer.query(&format!("begin isolation level {level}; {LOOK}")).unwrap();
        stage.seal(11, "c").unwrap();
        assert_code(&newer.query(ADD), "40001");
        newer.query("rollback").unwrap();
        assert_code(&newer.query(&format!("begin isolation level {level}; {ADD}; commit")), "ok");
        assert_eq!(stage.total(), "1");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn writer_that_waits_behind_a_seal_passes_at_no_isolation_level() {
    for (level, expected) in
        [("read committed", "FP002"), ("repeatable read", "40001"), ("serializable", "40001")]
    {
        let stage = Stage::new();
        let mut newer = stage.session_of("postgres", NONE);
        newer.query("begin; select fencepost.seal('ledger/1', 11, 'c')").unwrap();
        let mut older = stage.session(GOOD);
        older.send(&format!("begin isolation level {level}; {ADD}"));
        stage.wait_for_waiters(1);
        newer.query("commit").unwrap();
        assert_code(&older.receive(), expected);
        older.query("rollback").unwrap();
        assert_eq!(stage.total(), "0");
    }
}
