//! Programs that know nothing of fencepost: the shell of SQLite, and Python.

use std::process::{Command, Stdio};

use fencepost_core::block_on;

use crate::support::{Ledger, WITHDRAW, WRITE, name, show, under};

/// What a program said, and whether it was content.
struct Said {
    success: bool,
    text: String,
}

fn told(program: &str, args: &[&str]) -> Said {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Said { success: output.status.success(), text: String::from_utf8(text).unwrap() }
}

impl Ledger {
    fn shell(&self, sql: &str) -> Said {
        told("sqlite3", &["-bail", "-cmd", "PRAGMA foreign_keys = ON", self.path().to_str().unwrap(), sql])
    }

    fn python(&self, lines: &str) -> Said {
        let script = format!("import sqlite3\ndb = sqlite3.connect('{}')\n{lines}", self.path().display());
        told("/usr/bin/python3", &["-c", &script])
    }
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn shell_writes_under_the_mark_alone() {
    let ledger = Ledger::guarded();
    let good = ledger.shell(&under(7, WRITE));
    assert!(good.success, "{}", good.text);
    assert_eq!(ledger.total(), 1);
    for (sql, said) in [
        (WRITE.to_owned(), "fencepost FP001: no stamp for lock \"ledger\""),
        (under(6, WRITE), "fencepost FP002: a stale stamp"),
        (under(8, WRITE), "fencepost FP002: a token that was never sealed"),
        (format!("BEGIN; {} {WRITE}; COMMIT", show(7)), "FOREIGN KEY constraint failed"),
        (show(7), "FOREIGN KEY constraint failed"),
    ] {
        let refused = ledger.shell(&sql);
        assert!(!refused.success && refused.text.contains(said), "{sql}: {}", refused.text);
    }
    assert_eq!((ledger.total(), ledger.stamps_left()), (1, 0));
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn shell_has_to_look_for_references() {
    let ledger = Ledger::guarded();
    let file = ledger.path();
    let refused = told("sqlite3", &[file.to_str().unwrap(), "PRAGMA foreign_keys = OFF", &under(7, WRITE)]);
    assert!(
        refused.text.contains("FP001: a stamp can be shown under PRAGMA foreign_keys = ON"),
        "{}",
        refused.text
    );
    assert_eq!((ledger.total(), ledger.stamps_left()), (0, 0));
}

/// A script that goes on after an error.
#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn shell_that_goes_on_writes_nothing_that_is_guarded() {
    let ledger = Ledger::guarded();
    let script = format!("PRAGMA foreign_keys = ON;\n{}\n", under(6, WRITE).replace(';', ";\n"));
    let file = ledger.path().with_file_name("script");
    std::fs::write(&file, script).unwrap();
    let database = ledger.path();
    let output =
        Command::new("sqlite3").arg(database).stdin(std::fs::File::open(file).unwrap()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("FP002") && text.contains("FP001"), "{text}");
    assert_eq!(ledger.total(), 0);
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn shell_installs_what_a_dry_run_prints() {
    let ledger = Ledger::new();
    let (fence, lock) = (ledger.fence(), name("ledger"));
    let sql = block_on(fence.installation(Some(("account", &lock)))).unwrap();
    let installed = ledger.shell(&sql);
    assert!(installed.success, "{}", installed.text);
    ledger.seal(7).unwrap();
    assert!(!ledger.shell(WRITE).success);
    assert!(ledger.shell(&under(7, WRITE)).success);
    let dump = ledger.shell(".dump");
    assert!(dump.success && dump.text.contains("fencepost_guard_1_insert"), "{}", dump.text);
}

#[test]
#[cfg_attr(not(python), ignore = "its program is not installed")]
fn python_writes_under_the_mark_alone() {
    let ledger = Ledger::guarded();
    let run = |token: u64, end: &str| {
        ledger.python(&format!(
            "db.execute('PRAGMA foreign_keys = ON')
db.execute('INSERT INTO fencepost_stamp (lock, token, holder) VALUES (?, ?, ?)', ('ledger', '{token}', 'a'))
db.execute('{WRITE}')
{end}
db.commit()
print('written')"
        ))
    };
    let end = format!("db.execute('{WITHDRAW}')");
    let good = run(7, &end);
    assert!(good.success && good.text == "written\n", "{}", good.text);
    for (refused, said) in [
        (run(6, &end), "IntegrityError: fencepost FP002: a stale stamp"),
        (run(8, &end), "IntegrityError: fencepost FP002: a token that was never sealed"),
        (run(7, ""), "IntegrityError: FOREIGN KEY constraint failed"),
        (ledger.python(&format!("db.execute('{WRITE}')")), "IntegrityError: fencepost FP001: no stamp"),
    ] {
        assert!(!refused.success && refused.text.contains(said), "{}", refused.text);
    }
    assert_eq!((ledger.total(), ledger.stamps_left()), (1, 0));
}
