//! What the tests share: a database with a table, and stamps.

use std::path::{Path, PathBuf};

use fencepost_core::{BackendUrl, Fence, Finding, LockName, Result, Stamp, StampHolder, block_on};
use fencepost_sqlite::SqliteFence;
use rusqlite::Connection;

/// A file with a table `account` of one row, and one `note`.
pub(crate) struct Ledger(tempfile::TempDir);

impl Ledger {
    pub(crate) fn new() -> Self {
        let ledger = Self(tempfile::tempdir().unwrap());
        let connection = Connection::open(ledger.path()).unwrap();
        connection.execute_batch(TABLES).unwrap();
        ledger
    }

    /// One whose table `account` is guarded by the lock `ledger`, which is sealed with token 7 of holder `a`.
    pub(crate) fn guarded() -> Self {
        let ledger = Self::new();
        ledger.guard("account", "ledger");
        ledger.seal(7).unwrap();
        ledger
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("a.db")
    }

    pub(crate) fn fence(&self) -> SqliteFence {
        fence(&self.path())
    }

    pub(crate) fn guard(&self, table: &str, lock: &str) -> Vec<String> {
        block_on(self.fence().install(Some((table, &name(lock))))).unwrap()
    }

    pub(crate) fn findings(&self) -> Vec<String> {
        evidence(&block_on(self.fence().findings(&name("ledger"))).unwrap())
    }

    pub(crate) fn seal(&self, token: u64) -> Result<()> {
        block_on(self.fence().seal(&stamp(token)))
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// The one number of the table `account`.
    pub(crate) fn total(&self) -> i64 {
        self.connect().query_row("SELECT sum(total) FROM account", [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn stamps_left(&self) -> i64 {
        self.connect().query_row("SELECT count(*) FROM fencepost_stamp", [], |row| row.get(0)).unwrap()
    }
}

/// What was seen.
pub(crate) fn evidence(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| finding.evidence.clone()).collect()
}

pub(crate) const TABLES: &str = "
    CREATE TABLE account (id INTEGER PRIMARY KEY, total INTEGER NOT NULL);
    INSERT INTO account VALUES (1, 0);
    CREATE TABLE note (line TEXT);";

/// Refused under any stamp but the mark, where the table is guarded.
pub(crate) const WRITE: &str = "UPDATE account SET total = total + 1";

pub(crate) fn fence(path: &Path) -> SqliteFence {
    SqliteFence::from_url(&url(path)).unwrap()
}

pub(crate) fn url(path: &Path) -> BackendUrl {
    format!("sqlite:{}", path.display()).parse().unwrap()
}

pub(crate) fn name(lock: &str) -> LockName {
    lock.parse().unwrap()
}

pub(crate) fn stamp(token: u64) -> Stamp {
    Stamp { lock: name("ledger"), token: token.try_into().unwrap(), holder: StampHolder::new("a").unwrap() }
}

/// What shows the stamp of the lock `ledger` inside a transaction.
pub(crate) fn show(token: u64) -> String {
    format!("INSERT INTO fencepost_stamp (lock, token, holder) VALUES ('ledger', {token}, 'a');")
}

/// What ends it.
pub(crate) const WITHDRAW: &str = "DELETE FROM fencepost_stamp;";

/// A transaction under a stamp, as any program writes it.
pub(crate) fn under(token: u64, sql: &str) -> String {
    format!("BEGIN IMMEDIATE; {} {sql}; {WITHDRAW} COMMIT;", show(token))
}

/// Runs it; what SQLite says against it, after which nothing of it is left.
pub(crate) fn refusal(connection: &Connection, sql: &str) -> String {
    let Err(error) = connection.execute_batch(sql) else { panic!("{sql} was accepted") };
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK").unwrap();
    }
    error.to_string()
}
