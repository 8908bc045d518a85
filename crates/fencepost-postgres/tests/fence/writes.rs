//! Every way to write into a guarded table needs the stamp that is the mark.

use fencepost_core::Fence;
use fencepost_testkit::block_on;

use crate::stage::{GOOD, LOCK, NONE, STALE, Stage, UNSEALED, assert_code, fence_at, name, stamp, tried};

/// Statements that write into `account`, or would if a row fitted.
const WRITES: [&str; 14] = [
    "insert into account values (9, 1)",
    "insert into account select 9, 1 where false",
    "update account set total = 1",
    "update account set total = 1 where false",
    "delete from account where id = 1",
    "delete from account where false",
    "truncate account",
    "copy account (id, total) from program 'echo 9 1' delimiter ' '",
    "merge into account a using (values (1), (9)) as new (id) on a.id = new.id \
     when matched then update set total = 1 when not matched then insert values (new.id, 1)",
    "insert into account values (1, 1) on conflict (id) do update set total = 1",
    "insert into account values (1, 1) on conflict do nothing",
    "with gone as (delete from account where id = 1 returning id) select id from gone",
    "delete from customer where id = 1",
    "update customer set id = 100 where id = 1",
];

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn every_write_needs_the_stamp_that_is_the_mark() {
    let stage = Stage::new();
    for (stamps, expected) in [(NONE, "FP001"), (STALE, "FP002"), (UNSEALED, "FP002"), (GOOD, "ok")] {
        let mut session = stage.session(stamps);
        for write in WRITES {
            let answer = tried(&mut session, write);
            assert_code(&answer.map_err(|refusal| format!("{refusal} [{write}]")), expected);
        }
        assert_code(&session.query("select sum(total) from account for update"), "0A000");
        session.query("select sum(total) from account").unwrap();
    }
    assert_eq!(stage.total(), "0", "what was refused changed nothing");
}

/// The control: it is the guard that refuses them.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn table_without_a_guard_takes_every_write() {
    let stage = Stage::new();
    let freed = block_on(stage.fence().uninstall(Some("account"))).unwrap();
    assert_eq!(freed, ["writes to account need no token of lock ledger/1 any more"]);
    for stamps in [NONE, STALE, UNSEALED] {
        let mut session = stage.session(stamps);
        for write in WRITES {
            assert_code(&tried(&mut session, write), "ok");
        }
    }
    assert!(block_on(stage.fence().uninstall(None)).unwrap().is_empty());
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn session_that_replays_changes_needs_the_stamp_too() {
    let stage = Stage::new();
    for (stamps, expected) in [(NONE, "FP001"), (STALE, "FP002"), (GOOD, "ok")] {
        let mut session = stage.session_of("postgres", stamps);
        session.query("set session_replication_role = replica").unwrap();
        for write in WRITES.iter().filter(|write| !write.contains("customer")) {
            assert_code(&tried(&mut session, write), expected);
        }
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn table_with_two_guards_needs_both_stamps() {
    let stage = Stage::new();
    stage.guard("account", "audit");
    block_on(stage.fence().seal(&stamp("audit", 20, "x"))).unwrap();
    let write = "update account set total = 1";
    let both = r#"{"audit":[20,"x"],"ledger%2F1":[10,"b"],"other":[1,""]}"#;
    for (stamps, expected) in [
        (both, "ok"),
        (GOOD, "FP001"),
        (r#"{"audit":[20,"x"]}"#, "FP001"),
        (r#"{"audit":[19,"x"],"ledger%2F1":[10,"b"]}"#, "FP002"),
        (r#"{"audit":[20,"x"],"ledger%2F1":[9,"b"]}"#, "FP002"),
    ] {
        assert_code(&tried(&mut stage.session(stamps), write), expected);
    }
    assert_eq!(
        block_on(stage.fence().uninstall(Some("account"))).unwrap().len(),
        2,
        "each guard is taken away"
    );
    assert_code(&tried(&mut stage.session(NONE), write), "ok");
}

/// What is not guarded needs nothing, and the fence of another lock says nothing about it.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn forgotten_mark_refuses_every_stamp_until_one_is_sealed() {
    let stage = Stage::new();
    assert!(block_on(stage.fence().forget(&name(LOCK))).unwrap());
    assert!(!block_on(stage.fence().forget(&name(LOCK))).unwrap());
    for stamps in [STALE, GOOD, UNSEALED] {
        assert_code(&tried(&mut stage.session(stamps), "truncate account"), "FP002");
    }
    stage.seal(9, "a").unwrap();
    assert_code(&tried(&mut stage.session(STALE), "truncate account"), "ok");
    assert_code(&tried(&mut stage.session(NONE), "update customer set id = id where false"), "ok");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn fence_that_is_taken_away_and_put_back_keeps_its_mark() {
    let stage = Stage::new();
    block_on(stage.fence().uninstall(None)).unwrap();
    stage.guard("account", LOCK);
    let again = fence_at(&stage.server.url());
    block_on(again.check(&stamp(LOCK, 10, "b"))).unwrap();
    assert_code(&tried(&mut stage.session(STALE), "truncate account"), "FP002");
}
