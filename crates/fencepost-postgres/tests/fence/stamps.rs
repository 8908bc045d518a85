//! What a session may show for a stamp, and what a refusal says.

use fencepost_core::Fence;
use fencepost_testkit::block_on;

use crate::stage::{GOOD, NONE, STALE, Stage, UNSEALED, assert_code, stamp, tried};

const WRITE: &str = "update account set total = 1";

/// Settings that are no stamp of the lock: an old program's, a broken one, one of another lock.
const NO_STAMPS: [&str; 18] = [
    "",
    "x",
    "{",
    "[]",
    "{}",
    "null",
    "10",
    r#"{"ledger/1":[10,"b"]}"#,
    r#"{"other":[10,"b"]}"#,
    r#"{"ledger%2F1":null}"#,
    r#"{"ledger%2F1":10}"#,
    r#"{"ledger%2F1":[]}"#,
    r#"{"ledger%2F1":[10]}"#,
    r#"{"ledger%2F1":[0,"b"]}"#,
    r#"{"ledger%2F1":[-10,"b"]}"#,
    r#"{"ledger%2F1":["ten","b"]}"#,
    r#"{"ledger%2F1":[10.5,"b"]}"#,
    r#"{"ledger%2F1":[9223372036854775808,"b"]}"#,
];

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn setting_that_is_no_stamp_is_none() {
    let stage = Stage::new();
    let mut session = stage.session(NONE);
    for setting in ["fencepost.stamps", "fencepost.checked"] {
        for value in NO_STAMPS.iter().filter(|value| !value.contains("ledger/1")) {
            session.query(&format!("set {setting} = '{value}'")).unwrap();
            let answer = tried(&mut session, WRITE);
            assert_code(&answer.map_err(|refusal| format!("{refusal} [{setting} = {value}]")), "FP001");
        }
        session.query(&format!("reset {setting}")).unwrap();
    }
    session.query(&format!("set fencepost.stamps = '{}'", NO_STAMPS[7])).unwrap();
    assert_code(&tried(&mut session, WRITE), "FP001");
    session.query(&format!("set fencepost.stamps = '{GOOD}'")).unwrap();
    assert_code(&tried(&mut session, WRITE), "ok");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn equal_token_of_another_holder_is_refused() {
    let stage = Stage::new();
    for holder in ["a", "", "B"] {
        let stamps = format!(r#"{{"ledger%2F1":[10,"{holder}"]}}"#);
        assert_code(&tried(&mut stage.session(&stamps), WRITE), "FP002");
        let check = format!("select fencepost.check('ledger/1', 10, '{holder}')");
        assert_code(&tried(&mut stage.session(NONE), &check), "FP002");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn refusal_names_lock_token_mark_and_holder() {
    let stage = Stage::new();
    for (stamps, parts) in [
        (NONE, &["FP001", "no stamp", r#"lock "ledger/1""#, "public.account"][..]),
        (
            STALE,
            &[
                "FP002",
                "stale",
                r#"lock "ledger/1""#,
                r#"token 9 of holder "a""#,
                r#"mark is 10 of holder "b""#,
            ],
        ),
        (
            UNSEALED,
            &["FP002", "token 11", r#"lock "ledger/1""#, "never sealed", r#"mark is 10 of holder "b""#],
        ),
    ] {
        let said = tried(&mut stage.session(stamps), WRITE).unwrap_err();
        for part in parts {
            assert!(said.contains(part), "{part:?} in {said:?}");
        }
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn checked_transaction_writes_without_a_setting_of_the_session() {
    let stage = Stage::new();
    let mut session = stage.session(NONE);
    let check = "select fencepost.check('ledger/1', 10, 'b')";
    session.query(&format!("begin; {check}; {WRITE}")).unwrap();
    assert_code(&session.query(WRITE), "ok");
    session.query("commit").unwrap();
    assert_eq!(stage.total(), "4");
    assert_code(&session.query(WRITE), "FP001");
    // What was checked in a part of the transaction ends with that part.
    session.query(&format!("begin; savepoint one; {check}; rollback to one")).unwrap();
    assert_code(&session.query(WRITE), "FP001");
    session.query("rollback").unwrap();
    for (lock, token, holder, expected) in [
        ("ledger/1", "9", "'a'", "FP002"),
        ("ledger/1", "11", "'c'", "FP002"),
        ("other", "10", "'b'", "FP002"),
        ("ledger/1", "0", "'b'", "FP001"),
        ("ledger/1", "null", "'b'", "FP001"),
        ("ledger/1", "10", "null", "FP001"),
    ] {
        let check = format!("select fencepost.check('{lock}', {token}, {holder})");
        assert_code(&tried(&mut session, &check), expected);
        let seal = format!("select fencepost.seal('{lock}', {token}, {holder})");
        let sealed = if token == "9" {
            "FP002"
        } else if expected == "FP001" {
            "FP001"
        } else {
            "ok"
        };
        assert_code(&tried(&mut session, &seal), sealed);
    }
}

/// The stamp of the session is of a run around it, or of before; the one that was checked is nearer to the write.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stamp_that_was_checked_counts_before_that_of_the_session() {
    let stage = Stage::new();
    let mut session = stage.session(STALE);
    session.query("begin; select fencepost.check('ledger/1', 10, 'b')").unwrap();
    assert_code(&session.query(WRITE), "ok");
    session.query("commit").unwrap();
    assert_code(&session.query(WRITE), "FP002");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn checks_of_several_locks_add_up() {
    let stage = Stage::new();
    stage.guard("account", "a \"b\" ü");
    block_on(stage.fence().seal(&stamp("a \"b\" ü", 7, ""))).unwrap();
    let mut session = stage.session(NONE);
    session.query("begin; select fencepost.check('ledger/1', 10, 'b')").unwrap();
    assert_code(&session.query("savepoint one; update account set total = 1"), "FP001");
    session.query("rollback to one; select fencepost.check('a \"b\" ü', 7, '')").unwrap();
    assert_code(&session.query(WRITE), "ok");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn greatest_token_is_exact() {
    let stage = Stage::new();
    stage.seal(i64::MAX as u64, "z").unwrap();
    let greatest = format!(r#"{{"ledger%2F1":[{},"z"]}}"#, i64::MAX);
    let one_less = format!(r#"{{"ledger%2F1":[{},"z"]}}"#, i64::MAX - 1);
    assert_code(&tried(&mut stage.session(&greatest), WRITE), "ok");
    assert_code(&tried(&mut stage.session(&one_less), WRITE), "FP002");
}
