//! What weakens a guard is found.

use fencepost_core::{ErrorKind, Fence, NamePrefix, block_on};

use crate::support::{Ledger, WRITE, evidence, fence, name, stamp};

fn after(change: &str) -> Vec<String> {
    let ledger = Ledger::guarded();
    assert_eq!(ledger.findings(), [""; 0], "all is well before");
    ledger.connect().execute_batch(change).unwrap();
    ledger.findings()
}

#[test]
fn trigger_that_is_gone_is_found() {
    let found = after("DROP TRIGGER fencepost_guard_1_update");
    assert_eq!(found, ["the guard of account does not check update"]);
    let found = after("DROP TRIGGER fencepost_guard_1_update; DROP TRIGGER fencepost_guard_1_delete");
    assert_eq!(found, ["the guard of account does not check update and delete"]);
    let found = after("DROP TRIGGER fencepost_show");
    assert!(found[0].contains("fencepost_show is gone"), "{found:?}");
}

/// As programs do that change a table in a way that `ALTER TABLE` cannot.
#[test]
fn table_that_was_made_anew_is_found_and_guarded_again() {
    for anew in [
        "CREATE TABLE new AS SELECT * FROM account; DROP TABLE account; ALTER TABLE new RENAME TO account",
        "ALTER TABLE account RENAME TO old; CREATE TABLE Account AS SELECT * FROM old",
    ] {
        let ledger = Ledger::guarded();
        ledger.connect().execute_batch(anew).unwrap();
        ledger.connect().execute_batch(WRITE).unwrap();
        let found = ledger.findings();
        assert!(found.len() == 1 && found[0].contains("ccount has no guard any more"), "{found:?}");
        ledger.guard("account", "ledger");
        assert_eq!(ledger.findings(), [""; 0]);
        ledger.connect().execute_batch(WRITE).unwrap_err();
    }
}

#[test]
fn table_that_was_renamed_keeps_its_guard() {
    let ledger = Ledger::guarded();
    ledger.connect().execute_batch("ALTER TABLE account RENAME TO balance").unwrap();
    assert_eq!(ledger.findings(), [""; 0]);
    ledger.connect().execute_batch("UPDATE balance SET total = 1").unwrap_err();
    assert_eq!(block_on(ledger.fence().uninstall(Some("balance"))).unwrap().len(), 1);
    ledger.connect().execute_batch("UPDATE balance SET total = 1").unwrap();
    assert_eq!(after("DROP TABLE account"), [""; 0], "nobody writes to it");
}

#[test]
fn findings_are_those_of_the_lock() {
    let ledger = Ledger::guarded();
    ledger.connect().execute_batch("DROP TRIGGER fencepost_guard_1_insert").unwrap();
    assert_eq!(block_on(ledger.fence().findings(&name("other"))).unwrap(), []);
    assert_eq!(block_on(Ledger::new().fence().findings(&name("ledger"))).unwrap(), []);
}

#[test]
fn newer_tables_are_left_to_the_newer_fencepost() {
    let ledger = Ledger::guarded();
    ledger.connect().execute_batch("UPDATE fencepost_installation SET version = 2").unwrap();
    let fence = ledger.fence();
    for error in [
        ledger.seal(9).unwrap_err(),
        block_on(fence.mark(&name("ledger"))).unwrap_err(),
        block_on(fence.forget(&name("ledger"))).unwrap_err(),
        block_on(fence.install(None)).unwrap_err(),
        block_on(fence.uninstall(None)).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    let version: i64 = ledger
        .connect()
        .query_row("SELECT version FROM fencepost_installation", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 2);
}

#[test]
fn version_of_the_user_is_left_alone() {
    let ledger = Ledger::new();
    ledger.connect().execute_batch("PRAGMA user_version = 42; PRAGMA application_id = 7").unwrap();
    ledger.guard("account", "ledger");
    ledger.seal(1).unwrap();
    let kept: (i64, i64) = ledger
        .connect()
        .query_row("SELECT * FROM pragma_user_version, pragma_application_id", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(kept, (42, 7));
}

#[test]
fn marks_are_exact_in_a_database_of_another_encoding() {
    let ledger = Ledger::new();
    let path = ledger.path();
    std::fs::remove_file(&path).unwrap();
    ledger.connect().execute_batch("PRAGMA encoding = 'UTF-16le'; CREATE TABLE account (total)").unwrap();
    let fence = ledger.fence();
    // In UTF-16 the second comes before the first.
    for lock in ["\u{e000}", "\u{10000}", "%", "a_"] {
        block_on(fence.seal(&fencepost_core::Stamp { lock: name(lock), ..stamp(7) })).unwrap();
    }
    let marks = block_on(fence.marks(&NamePrefix::default())).unwrap();
    let names: Vec<_> = marks.iter().map(|(lock, _)| lock.as_str()).collect();
    assert_eq!(names, ["%", "a_", "\u{e000}", "\u{10000}"]);
}

#[test]
fn look_at_the_file_finds_the_weak_guards_of_every_lock() {
    let seen = |ledger: &Ledger| evidence(&block_on(ledger.fence().examine()).unwrap().findings);
    assert_eq!(seen(&Ledger::new()), ["no table is guarded by any lock"]);
    let ledger = Ledger::guarded();
    ledger.guard("note", "other");
    assert_eq!(seen(&ledger), [""; 0]);
    ledger.connect().execute_batch("DROP TRIGGER fencepost_guard_2_insert").unwrap();
    assert_eq!(seen(&ledger), ["the guard of note does not check insert"]);
    let files = || std::fs::read_dir(ledger.path().parent().unwrap()).unwrap().count();
    let before = files();
    assert!(block_on(ledger.fence().examine()).unwrap().servers[0].starts_with("SQLite 3."));
    assert_eq!(files(), before, "nothing is left behind");
}

#[test]
fn file_in_memory_is_found() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("a.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE account (total)").unwrap();
    let seen = evidence(&block_on(fence(&path).examine()).unwrap().findings);
    assert!(seen.contains(&"it is on a file system in memory".to_owned()), "{seen:?}");
}

#[test]
fn file_that_is_not_there_is_no_finding_but_an_error() {
    let error = block_on(fence(&Ledger::new().path().with_file_name("b.db")).examine()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
