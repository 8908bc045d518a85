//! A guarded table accepts a write in a transaction that has shown the mark, and no other.

use fencepost_core::{ErrorKind, block_on};
use rusqlite::Connection;

use crate::support::{Ledger, WRITE, name, refusal, show, under};

/// Every way of writing a row.
const WRITES: [&str; 9] = [
    WRITE,
    "INSERT INTO account VALUES (2, 5)",
    "INSERT OR IGNORE INTO account VALUES (2, 5)",
    "INSERT OR REPLACE INTO account VALUES (1, 5)",
    "REPLACE INTO account VALUES (1, 5)",
    "INSERT INTO account VALUES (1, 5) ON CONFLICT DO UPDATE SET total = excluded.total",
    "UPDATE OR REPLACE account SET total = 5",
    "DELETE FROM account",
    "DELETE FROM account WHERE id = 1",
];

#[test]
fn write_without_a_stamp_is_refused() {
    let ledger = Ledger::guarded();
    let connection = ledger.connect();
    for write in WRITES {
        let said = refusal(&connection, write);
        assert!(said.starts_with("fencepost FP001: no stamp for lock \"ledger\""), "{write}: {said}");
    }
    assert_eq!(ledger.total(), 0);
    connection.execute_batch("INSERT INTO note VALUES ('not guarded')").unwrap();
    // The guard is what refuses.
    block_on(ledger.fence().uninstall(Some("Account"))).unwrap();
    for write in WRITES {
        connection.execute_batch(write).unwrap();
    }
}

#[test]
fn write_under_the_mark_is_accepted() {
    let connection = Ledger::guarded();
    for write in WRITES {
        connection.connect().execute_batch(&under(7, write)).unwrap();
    }
    assert_eq!(connection.stamps_left(), 0);
}

/// The shell does not trust a schema by default, and some programs let triggers fire triggers.
#[test]
fn settings_of_a_connection_change_nothing() {
    for setting in
        ["trusted_schema = OFF", "recursive_triggers = ON", "defer_foreign_keys = ON", "cell_size_check = ON"]
    {
        let ledger = Ledger::guarded();
        let connection = ledger.connect();
        connection.execute_batch(&format!("PRAGMA {setting}")).unwrap();
        assert!(refusal(&connection, WRITE).starts_with("fencepost FP001"), "{setting}");
        assert!(refusal(&connection, &under(6, WRITE)).starts_with("fencepost FP002"), "{setting}");
        assert!(refusal(&connection, &show(7)).contains("constraint failed"), "{setting}");
        connection.execute_batch(&under(7, "REPLACE INTO account VALUES (1, 5)")).unwrap();
        assert_eq!((ledger.total(), ledger.stamps_left()), (5, 0), "{setting}");
    }
}

#[test]
fn write_under_any_other_stamp_is_refused() {
    let ledger = Ledger::guarded();
    let connection = ledger.connect();
    for (other, said) in [
        (show(6), "fencepost FP002: a stale stamp"),
        (show(7).replace("'a'", "'b'"), "fencepost FP002: a stale stamp"),
        (show(7).replace("'a'", "NULL"), "fencepost FP002: a stale stamp"),
        (show(8), "fencepost FP002: a token that was never sealed"),
        (show(7).replace("ledger", "other"), "fencepost FP002: a token that was never sealed"),
    ] {
        for verb in ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE"] {
            let shown = other.replace("INSERT", verb);
            let refused = refusal(&connection, &format!("BEGIN; {shown}"));
            assert!(refused.starts_with(said), "{shown}: {refused}");
        }
        // A program that goes on in spite of it.
        connection.execute_batch("BEGIN").unwrap();
        connection.execute_batch(&other).unwrap_err();
        assert!(refusal(&connection, WRITE).starts_with("fencepost FP001"));
    }
    assert_eq!(ledger.total(), 0);
}

#[test]
fn stamp_does_not_outlive_its_transaction() {
    let ledger = Ledger::guarded();
    let connection = ledger.connect();
    for kept in [
        show(7),
        format!("BEGIN; {} {WRITE}; COMMIT", show(7)),
        format!("SAVEPOINT one; {} {WRITE}; RELEASE one", show(7)),
        format!("BEGIN; {} {WRITE}; PRAGMA foreign_keys = OFF; COMMIT", show(7)),
        format!("BEGIN; {} {WRITE}; UPDATE fencepost_stamp SET ends = NULL; COMMIT", show(7)),
        format!("BEGIN; {} {WRITE}; UPDATE fencepost_stamp SET ends = 1; COMMIT", show(7)),
    ] {
        let said = refusal(&connection, &kept);
        assert!(said.contains("constraint failed"), "{kept}: {said}");
        assert_eq!((ledger.stamps_left(), ledger.total()), (0, 0), "{kept}");
        assert!(refusal(&connection, WRITE).starts_with("fencepost FP001"));
    }
}

/// A connection that does not look for references is one that could leave a stamp for the next writer.
#[test]
fn stamp_is_not_shown_where_it_could_outlive_its_transaction() {
    let ledger = Ledger::guarded();
    let careless = ledger.connect();
    careless.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    let said = refusal(&careless, &under(7, WRITE));
    assert!(said.starts_with("fencepost FP001: a stamp can be shown under PRAGMA foreign_keys"), "{said}");
    assert_eq!((ledger.stamps_left(), ledger.total()), (0, 0));

    // Without that check the next writer passes with the stamp of another.
    careless.execute_batch("DROP TRIGGER fencepost_show").unwrap();
    careless.execute_batch(&format!("BEGIN; {} COMMIT", show(7))).unwrap();
    let stampless = ledger.connect();
    stampless.execute_batch(WRITE).unwrap();
    assert_eq!((ledger.stamps_left(), ledger.total()), (1, 1), "the check is what keeps it out");
}

#[test]
fn mark_that_rises_inside_the_transaction_makes_its_stamp_stale() {
    let ledger = Ledger::guarded();
    let raised = "UPDATE fencepost_fence SET token = 8";
    let said = refusal(&ledger.connect(), &format!("BEGIN; {} {raised}; {WRITE}; COMMIT", show(7)));
    assert!(said.starts_with("fencepost FP002: a stale stamp for lock \"ledger\""), "{said}");
}

#[test]
fn table_of_two_locks_needs_the_stamps_of_both() {
    let ledger = Ledger::guarded();
    ledger.guard("account", "Ledger");
    let connection = ledger.connect();
    let said = refusal(&connection, &under(7, WRITE));
    assert!(said.starts_with("fencepost FP001: no stamp for lock \"Ledger\""), "{said}");
    connection.execute_batch("INSERT INTO fencepost_fence VALUES ('Ledger', 3, '')").unwrap();
    let other = "INSERT INTO fencepost_stamp (lock, token, holder) VALUES ('Ledger', '3', '');";
    connection.execute_batch(&under(7, &format!("{other} {WRITE}"))).unwrap();
    assert_eq!(ledger.total(), 1);
}

#[test]
fn guards_are_made_once_and_taken_away_by_table_or_all() {
    let ledger = Ledger::new();
    let first = ledger.guard("ACCOUNT", "ledger");
    assert_eq!(first, ["made the tables of the fence", "writes to account need the token of lock ledger"]);
    let again = ledger.guard("account", "ledger");
    assert_eq!(again[0], "the tables of the fence are there already");
    ledger.guard("note", "ledger");
    ledger.guard("note", "other");
    assert_eq!(triggers(&ledger.connect()), 9);
    let uninstalled = |table| block_on(ledger.fence().uninstall(table)).unwrap();
    assert_eq!(uninstalled(Some("note")).len(), 2);
    assert_eq!(triggers(&ledger.connect()), 3);
    assert_eq!(uninstalled(None), ["writes to account need no token of lock ledger any more"]);
    assert_eq!(uninstalled(None), [""; 0]);
    assert_eq!(triggers(&ledger.connect()), 0);
    ledger.connect().execute_batch(WRITE).unwrap();
}

fn triggers(connection: &Connection) -> i64 {
    let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'fencepost_guard_%'";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn names_of_every_shape_are_guarded() {
    let ledger = Ledger::new();
    let connection = ledger.connect();
    for (table, lock) in
        [("it's \"so\"\n--", "o'clock \"x\""), ("{id}", "{lock}"), ("Straße ☃", "☃"), ("select", "; --")]
    {
        let quoted = format!("\"{}\"", table.replace('"', "\"\""));
        connection.execute_batch(&format!("CREATE TABLE {quoted} (x)")).unwrap();
        ledger.guard(table, lock);
        let said = refusal(&connection, &format!("INSERT INTO {quoted} VALUES (1)"));
        assert!(said.contains(&format!("no stamp for lock \"{lock}\"")), "{said}");
        assert_eq!(block_on(ledger.fence().uninstall(Some(table))).unwrap().len(), 1);
    }
}

#[test]
fn what_is_no_table_of_the_user_is_not_guarded() {
    let ledger = Ledger::guarded();
    ledger.connect().execute_batch("CREATE VIEW seen AS SELECT 1; CREATE TEMP TABLE gone (x)").unwrap();
    for table in
        ["nothing", "seen", "gone", "fencepost_fence", "Fencepost_Stamp", "sqlite_master", "main.account", ""]
    {
        let lock = name("ledger");
        let error = block_on(ledger.fence().install(Some((table, &lock)))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{table}: {error}");
        assert!(block_on(ledger.fence().installation(Some((table, &lock)))).is_err(), "{table}");
    }
    assert!(block_on(ledger.fence().uninstall(Some("nothing"))).is_err());
    assert!(block_on(ledger.fence().uninstallation(Some("nothing"))).is_err());
}

#[test]
fn installation_that_fails_leaves_nothing() {
    let ledger = Ledger::new();
    block_on(ledger.fence().install(Some(("nothing", &name("ledger"))))).unwrap_err();
    let sql = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'fencepost%'";
    let left: i64 = ledger.connect().query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn dry_run_prints_what_is_done() {
    let (ledger, by_hand) = (Ledger::new(), Ledger::new());
    ledger.guard("account", "ledger");
    let (fence, lock) = (by_hand.fence(), name("ledger"));
    let sql = block_on(fence.installation(Some(("account", &lock)))).unwrap();
    by_hand.connect().execute_batch(&sql).unwrap();
    by_hand.connect().execute_batch(&sql).unwrap();
    let whole = |ledger: &Ledger| -> Vec<Option<String>> {
        let sql = "SELECT sql FROM sqlite_master UNION ALL SELECT guarded || id || lock FROM fencepost_guard";
        let connection = ledger.connect();
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(whole(&ledger), whole(&by_hand));
    assert!(!sql.contains("-- One trigger"), "the heading of a file is no part of it: {sql}");
    by_hand.connect().execute_batch(&block_on(fence.uninstallation(None)).unwrap()).unwrap();
    by_hand.connect().execute_batch(WRITE).unwrap();
    assert!(sql.starts_with("BEGIN IMMEDIATE;") && sql.ends_with("COMMIT;"), "{sql}");
}
