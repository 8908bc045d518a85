//! The logbook: whole whatever becomes of its writer, and written by nobody whose files are gone.

use std::path::Path;
use std::time::Duration;

use fencepost_core::{Clock, ErrorKind, block_on};

use super::child::{Process, say, wait_for_the_end};
use super::{files, locks, pass, request};

/// What a child writes: so many times the same letter.
fn content(round: u8) -> Vec<u8> {
    vec![b'a' + round % 26; 1000 + usize::from(round) * 37]
}

pub(super) fn write_for_ever(directory: &Path) {
    let locks = locks(directory);
    for round in (0..=u8::MAX).cycle() {
        let mut claim = block_on(locks.backend().acquire(&request("orders"))).unwrap();
        block_on(claim.write_logbook(&content(round))).unwrap();
        if round == 0 {
            say("begun");
        }
        block_on(claim.release()).unwrap();
    }
}

#[test]
fn writer_that_is_killed_leaves_a_whole_logbook_and_nothing_that_piles_up() {
    let directory = tempfile::tempdir().unwrap();
    let name = "orders".parse().unwrap();
    let clock = Clock::system();
    for _ in 0..15 {
        let writer = Process::start("write logbooks", directory.path());
        writer.says();
        pass(clock.jitter(Duration::from_millis(15)));
        writer.kill();
        let read = block_on(locks(directory.path()).backend().logbook(&name)).unwrap().unwrap();
        let is_whole = (0..=u8::MAX).any(|round| read == content(round));
        assert!(is_whole, "{} bytes of {:?} are none that was written", read.len(), read.first());
        assert!(files(directory.path(), ".new").len() <= 1, "{:?}", files(directory.path(), ""));
    }
    let mut claim = block_on(locks(directory.path()).backend().acquire(&request("orders"))).unwrap();
    block_on(claim.write_logbook(b"the last")).unwrap();
    block_on(claim.release()).unwrap();
    assert_eq!(files(directory.path(), ".new"), Vec::<String>::new());
    assert_eq!(block_on(locks(directory.path()).list("")).unwrap().len(), 0, "a logbook is no lock");
}

/// A file of more than 4 KiB cannot be written by this process.
pub(super) fn write_a_long_one(directory: &Path) {
    let locks = locks(directory);
    let mut claim = block_on(locks.backend().acquire(&request("orders"))).unwrap();
    block_on(claim.write_logbook(b"short")).unwrap();
    let refused = block_on(claim.write_logbook(&vec![b'x'; 20_000])).unwrap_err();
    say(&format!("{:?} {refused} ({})", refused.kind(), refused.advice().unwrap_or_default()));
    block_on(claim.release()).unwrap();
    say("released");
    wait_for_the_end();
}

#[test]
fn full_disk_is_said_and_costs_nothing_that_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Process::with_small_files(8, "write a long logbook", directory.path());
    let said = writer.says();
    assert!(said.starts_with("Unavailable ") && said.contains("orders.logbook: File too large"), "{said}");
    assert!(said.contains("make room"), "{said}");
    assert_eq!(writer.says(), "released");
    let read = block_on(locks(directory.path()).backend().logbook(&"orders".parse().unwrap())).unwrap();
    assert_eq!(read.as_deref(), Some(&b"short"[..]));
    assert_eq!(files(directory.path(), ".new"), Vec::<String>::new());
}

#[test]
fn holder_whose_files_were_removed_writes_no_logbook_of_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let locks = locks(directory.path());
    let mut late = block_on(locks.backend().acquire(&request("orders"))).unwrap();
    block_on(late.write_logbook(b"early")).unwrap();
    for file in ["orders.lock", "orders.tok"] {
        std::fs::remove_file(directory.path().join(file)).unwrap();
    }
    let is_refused = |refused: fencepost_core::Result<()>| {
        let refused = refused.expect_err("a lease that is gone wrote");
        assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
    };
    is_refused(block_on(late.write_logbook(b"late")));
    let mut next = block_on(locks.backend().acquire(&request("orders"))).unwrap();
    block_on(next.write_logbook(b"next")).unwrap();
    is_refused(block_on(late.write_logbook(b"too late")));
    let read = block_on(locks.backend().logbook(&"orders".parse().unwrap())).unwrap();
    assert_eq!(read.as_deref(), Some(&b"next"[..]));
}
