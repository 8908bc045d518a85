//! A fence in SQLite, from the command line to what the `sqlite3` shell is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Home, Outcome};

/// A home with a database whose table `account` is guarded by the lock `ledger`.
fn guarded() -> (Home, String) {
    let home = Home::new();
    let url = format!("sqlite:{}", home.path("a.db").display());
    home.shell("sqlite3 a.db 'CREATE TABLE account (line TEXT)'").exits(0);
    home.run(["fence", "install", &url, "--table", "account", "--lock", "ledger"]).exits(0);
    home.write("write", WRITE);
    (home, url)
}

/// Writes the line $1, under the stamp of the environment.
const WRITE: &str = "sqlite3 -bail a.db <<END
PRAGMA foreign_keys = ON;
BEGIN IMMEDIATE;
INSERT INTO fencepost_stamp (lock, token, holder) VALUES ('$FENCEPOST_LOCK', $FENCEPOST_TOKEN, '$FENCEPOST_HOLDER');
INSERT INTO account VALUES ('$1');
DELETE FROM fencepost_stamp;
COMMIT;
END
";

fn run(home: &Home, url: &str, script: &str) -> Outcome {
    let backend = format!("file:{}", home.path("locks").display());
    home.run(["run", "-n", "--backend", &backend, "--fence", url, "ledger", "--", "sh", "-c", script])
}

fn lines(home: &Home) -> String {
    home.shell("sqlite3 a.db 'SELECT line FROM account'").exits(0).stdout
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn late_program_of_an_earlier_run_is_refused_by_the_shell_of_sqlite() {
    let (home, url) = guarded();
    run(&home, &url, "export -p >old && sh write first").exits(0);
    // It begins anew after the next run has sealed, with what it knew.
    let late = run(&home, &url, "(. ./old && sh write late); echo $?; sh write second").exits(0);
    assert!(late.stderr.contains("fencepost FP002: a stale stamp"), "{late:?}");
    assert_eq!((late.stdout.as_str(), lines(&home).as_str()), ("1\n", "first\nsecond\n"));
    let stampless = home.shell("sqlite3 a.db \"INSERT INTO account VALUES ('none')\"");
    assert_ne!(stampless.code, Some(0), "{stampless:?}");
    assert!(stampless.stderr.contains("FP001: no stamp for lock \"ledger\""), "{stampless:?}");
    assert_eq!(lines(&home), "first\nsecond\n");
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn run_that_is_stale_or_has_no_database_starts_nothing() {
    let (home, url) = guarded();
    home.run(["fence", "seal", &url, "ledger", "9000000000000000000"]).exits(0);
    run(&home, &url, "touch ran").exits(79);
    let other = format!("{url}.other");
    let missing = run(&home, &other, "touch ran").exits(69);
    assert!(missing.stderr.contains("a.db.other") && missing.stderr.contains("fence install"), "{missing:?}");
    assert!(!home.path("ran").exists() && !home.path("a.db.other").exists());
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn database_is_installed_shown_and_left_again() {
    let (home, url) = guarded();
    let again = home.run(["fence", "install", &url, "--table", "Account", "--lock", "ledger"]).exits(0);
    assert!(
        again.stdout.contains("there already") && again.stdout.contains("writes to account need"),
        "{again:?}"
    );
    let sealed = home.run(["fence", "seal", "--json", &url, "ledger", "7"]).exits(0);
    let sealed: Value = serde_json::from_str(&sealed.stdout).unwrap();
    assert_eq!((&sealed["fence"], &sealed["findings"]), (&json!("sqlite"), &json!([])));
    home.shell("sqlite3 a.db 'DROP TRIGGER fencepost_guard_1_delete'").exits(0);
    let warned = home.run(["fence", "check", &url, "ledger", "7"]).exits(0);
    assert!(warned.stderr.contains("the guard of account does not check delete"), "{warned:?}");
    let printed = home.run(["fence", "uninstall", "--dry-run", &url]).exits(0).stdout;
    assert!(printed.contains("DROP TRIGGER IF EXISTS fencepost_guard_1_insert;"), "{printed}");
    home.run(["fence", "uninstall", &url]).exits(0);
    home.shell("sqlite3 a.db \"INSERT INTO account VALUES ('free')\"").exits(0);
    home.run(["fence", "install", &url, "--table", "nothing", "--lock", "ledger"]).exits(64);
    home.run(["fence", "forget", "--yes", &url, "ledger"]).exits(0);
    home.run(["fence", "show", &url, "ledger"]).exits(1);
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn file_that_cannot_be_written_exits_77_and_one_that_is_damaged_70() {
    let (home, url) = guarded();
    home.run(["fence", "seal", &url, "ledger", "7"]).exits(0);
    let seal = ["fence", "seal", &url, "ledger", "8"];
    if let Some(denied) = home.as_nobody(&seal) {
        assert!(denied.exits(77).stderr.contains("a.db"));
        home.as_nobody(&["fence", "check", &url, "ledger", "7"]).unwrap().exits(0);
        // The file alone is not enough: a journal is made beside it.
        fs::create_dir(home.path("locked")).unwrap();
        fs::copy(home.path("a.db"), home.path("locked/a.db")).unwrap();
        fs::set_permissions(home.path("locked/a.db"), fs::Permissions::from_mode(0o666)).unwrap();
        let locked = format!("sqlite:{}", home.path("locked/a.db").display());
        home.as_nobody(&["fence", "seal", &locked, "ledger", "8"]).unwrap().exits(77);
        fs::set_permissions(home.path("a.db"), fs::Permissions::from_mode(0o600)).unwrap();
        home.as_nobody(&["fence", "show", &url, "ledger"]).unwrap().exits(77);
    }
    home.run(seal).exits(0);
    home.write("a.db", &"no database".repeat(1_000));
    home.run(["fence", "seal", &url, "ledger", "9"]).exits(70);
    for wrong in ["sqlite:", "sqlite:a.db", "sqlite::memory:"] {
        home.run(["fence", "seal", wrong, "ledger", "9"]).exits(64);
    }
    home.run(["run", "--backend", &url, "ledger", "--", "true"]).exits(64);
}
