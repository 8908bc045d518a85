//! Processes that write at once, under tokens that come in any order.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use fencepost_core::{Clock, ErrorKind, Fence, Stamp, StampHolder, block_on};
use rusqlite::Connection;

use crate::storage::{seal_for_ever, seal_on_a_full_disk};
use crate::support::{Ledger, fence, stamp};

/// The variables in which a worker finds what it is to do, and where.
const WORK: &str = "FENCEPOST_SQLITE_WORK";
const FILE: &str = "FENCEPOST_SQLITE_FILE";

/// A process of its own that ends with its value.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn start(work: &str, ledger: &Ledger) -> Self {
        Self::start_by(&["env"], work, ledger)
    }

    /// The same by another program, which becomes it.
    pub(crate) fn start_by(program: &[&str], work: &str, ledger: &Ledger) -> Self {
        let child = Command::new(program[0])
            .args(&program[1..])
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "race::worker", "--nocapture", "--test-threads=1"])
            .envs([(WORK, work.as_ref()), (FILE, ledger.path().as_os_str())])
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// The lines that it has to say, which come one by one.
    pub(crate) fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok)
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn ends_well(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "other tests run it in a process of its own"]
fn worker() {
    let Some(file) = std::env::var_os(FILE) else { return };
    // What the harness has said is no line of the worker.
    println!();
    let (work, file) = (std::env::var(WORK).unwrap(), file.as_ref());
    match work.split_once(' ').unwrap_or((&work, "")) {
        ("seal", _) => seal_for_ever(file),
        ("fill", mode) => seal_on_a_full_disk(file, mode),
        (_, holder) => write_at_random(file, holder),
    }
}

const ROUNDS: u64 = 250;
const WRITES: u64 = 10;

/// Shows random tokens, and writes ten times under each, whether or not it was sealed.
fn write_at_random(file: &std::path::Path, holder: &str) {
    let (fence, connection) = (fence(file), Connection::open(file).unwrap());
    connection.busy_timeout(std::time::Duration::from_mins(1)).unwrap();
    connection.pragma_update(None, "synchronous", "OFF").unwrap();
    let mut accepted = 0;
    for _ in 0..ROUNDS {
        // Around the mark of the moment, so that neither process is only ever late.
        let mark = block_on(fence.mark(&stamp(1).lock)).unwrap().map_or(0, |mark| mark.token.get());
        let token = (mark + Clock::system().random() % 20).saturating_sub(9).max(1);
        let shown = Stamp { holder: StampHolder::new(holder).unwrap(), ..stamp(token) };
        if let Err(error) = block_on(fence.seal(&shown)) {
            assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
        }
        for _ in 0..WRITES {
            accepted += u64::from(write(&connection, token, holder));
        }
    }
    assert!(accepted > 0, "nothing of {holder} was accepted");
}

fn write(connection: &Connection, token: u64, holder: &str) -> bool {
    let written = connection.execute_batch(&format!(
        "BEGIN IMMEDIATE;
         INSERT INTO fencepost_stamp (lock, token, holder) VALUES ('ledger', {token}, '{holder}');
         INSERT INTO entry (token, holder) VALUES ({token}, '{holder}');
         DELETE FROM fencepost_stamp;
         COMMIT"
    ));
    if let Err(error) = &written {
        assert!(error.to_string().starts_with("fencepost FP002"), "{error}");
        connection.execute_batch("ROLLBACK").unwrap();
    }
    written.is_ok()
}

const ENTRIES: &str =
    "CREATE TABLE entry (id INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL, holder TEXT NOT NULL)";

/// Where, in the order of the file, a token is lower than the one before, or of another holder.
fn out_of_order(ledger: &Ledger) -> Vec<(i64, i64)> {
    let connection = ledger.connect();
    let mut statement = connection.prepare("SELECT token, holder FROM entry ORDER BY id").unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?));
    let entries: Vec<(i64, String)> = statement.query_map([], row).unwrap().map(Result::unwrap).collect();
    let pairs = entries
        .windows(2)
        .filter(|pair| pair[1].0 < pair[0].0 || (pair[1].0 == pair[0].0 && pair[1].1 != pair[0].1));
    pairs.map(|pair| (pair[0].0, pair[1].0)).collect()
}

#[test]
fn accepted_tokens_of_two_processes_never_fall() {
    for mode in ["DELETE", "WAL"] {
        let ledger = Ledger::new();
        ledger.connect().execute_batch(&format!("PRAGMA journal_mode = {mode}; {ENTRIES}")).unwrap();
        ledger.guard("entry", "ledger");
        let workers = ["write one", "write two"].map(|work| Worker::start(work, &ledger));
        for worker in workers {
            assert!(worker.ends_well(), "{mode}");
        }
        assert_eq!(out_of_order(&ledger), [], "{mode}");
    }
}

/// A check that is not in the transaction of the write.
#[test]
fn tokens_that_fall_are_found() {
    let ledger = Ledger::new();
    ledger.connect().execute_batch(ENTRIES).unwrap();
    let write = |token: u64| {
        let sql = format!("INSERT INTO entry (token, holder) VALUES ({token}, 'a')");
        ledger.connect().execute_batch(&sql).unwrap();
    };
    ledger.seal(7).unwrap();
    block_on(ledger.fence().check(&stamp(7))).unwrap();
    ledger.seal(8).unwrap();
    write(8);
    write(7);
    assert_eq!(out_of_order(&ledger), [(8, 7)]);
}
