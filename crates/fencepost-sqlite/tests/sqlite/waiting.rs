//! Writers and seals wait for each other, and who comes late finds out.

use std::sync::mpsc::channel;
use std::time::Duration;

use fencepost_core::{ErrorKind, Fence, block_on};
use rusqlite::Connection;

use crate::support::{Ledger, WITHDRAW, WRITE, refusal, show, stamp, under};

const MODES: [&str; 2] = ["DELETE", "WAL"];

fn in_mode(mode: &str) -> (Ledger, Connection) {
    let ledger = Ledger::guarded();
    let connection = ledger.connect();
    connection.pragma_update(None, "journal_mode", mode).unwrap();
    (ledger, connection)
}

#[test]
fn seal_waits_for_the_transaction_of_the_older_holder() {
    for mode in MODES {
        let (ledger, old) = in_mode(mode);
        old.execute_batch(&format!("BEGIN IMMEDIATE; {} {WRITE}", show(7))).unwrap();
        let (sender, sealed) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(ledger.seal(8)).unwrap());
            let early = sealed.recv_timeout(Duration::from_millis(300));
            assert!(early.is_err(), "{mode}: sealed inside another's transaction");
            old.execute_batch(&format!("{WRITE}; {WITHDRAW} COMMIT")).unwrap();
            sealed.recv().unwrap().unwrap();
        });
        assert_eq!(ledger.total(), 2, "{mode}: all of the older holder came before the seal");
        assert!(refusal(&old, &under(7, WRITE)).starts_with("fencepost FP002: a stale stamp"));
    }
}

#[test]
fn older_holder_that_was_blocked_by_a_newer_one_is_stale_afterwards() {
    for mode in MODES {
        let (ledger, old) = in_mode(mode);
        old.busy_timeout(Duration::from_mins(1)).unwrap();
        let new = ledger.connect();
        ledger.seal(8).unwrap();
        new.execute_batch(&format!("BEGIN IMMEDIATE; {} {WRITE}", show(8))).unwrap();
        let (sender, begun) = channel();
        std::thread::scope(|scope| {
            let blocked = scope.spawn(move || {
                sender.send(()).unwrap();
                refusal(&old, &under(7, WRITE))
            });
            begun.recv().unwrap();
            new.execute_batch(&format!("{WITHDRAW} COMMIT")).unwrap();
            let said = blocked.join().unwrap();
            assert!(said.starts_with("fencepost FP002: a stale stamp"), "{mode}: {said}");
        });
        assert_eq!(ledger.total(), 1, "{mode}");
    }
}

/// In a write-ahead log a reader sees the past; it cannot write there.
#[test]
fn transaction_that_has_seen_an_older_mark_cannot_write_under_it() {
    let (ledger, old) = in_mode("WAL");
    let mark = |connection: &Connection| -> i64 {
        connection.query_row("SELECT token FROM fencepost_fence", [], |row| row.get(0)).unwrap()
    };
    old.execute_batch("BEGIN").unwrap();
    assert_eq!(mark(&old), 7);
    ledger.seal(8).unwrap();
    assert_eq!(mark(&old), 7, "it sees what was there when it began");
    let said = refusal(&old, &show(7));
    assert!(said.contains("locked"), "{said}");
    assert!(refusal(&old, &under(7, WRITE)).starts_with("fencepost FP002"));
    assert_eq!(ledger.total(), 0);
}

/// Without it the update of one is lost although every write was checked; with it the older holder learns that it is late.
#[test]
fn seal_before_the_first_read_loses_no_update() {
    for seals_first in [false, true] {
        let ledger = Ledger::guarded();
        let read = || ledger.total();
        let add_to = |read: i64| format!("UPDATE account SET total = {}", read + 1);
        // The older holder has read nothing yet when the newer one gets the lock.
        if seals_first {
            ledger.seal(8).unwrap();
        }
        let seen = read();
        let late = ledger.connect().execute_batch(&under(7, &add_to(read())));
        assert_eq!(late.is_err(), seals_first, "{late:?}");
        ledger.seal(8).unwrap();
        ledger.connect().execute_batch(&under(8, &add_to(seen))).unwrap();
        let updates = 1 + i64::from(late.is_ok());
        let lost = updates - ledger.total();
        assert_eq!(lost, i64::from(!seals_first), "two updates, and {} counted", ledger.total());
    }
}

#[test]
fn stale_seal_and_one_that_changes_nothing_wait_for_nobody() {
    let (ledger, busy) = in_mode("WAL");
    busy.execute_batch("BEGIN IMMEDIATE").unwrap();
    ledger.seal(7).unwrap();
    assert_eq!(ledger.seal(6).unwrap_err().kind(), ErrorKind::Stale);
    block_on(ledger.fence().check(&stamp(7))).unwrap();
}
