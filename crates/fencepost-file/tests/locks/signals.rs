//! Signals: of whatever changes a lock, and of nothing else.

use std::path::Path;
use std::time::Duration;

use fencepost_core::{Clock, LockState, NamePrefix, Status, block_on, until};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::child::Process;
use super::{LIMIT, locks};

fn signals(directory: &Path) -> Option<BoxStream<'static, ()>> {
    block_on(locks(directory).backend().signals(&NamePrefix::new(""))).unwrap()
}

/// Whether a signal comes in that time.
fn comes(signals: &mut BoxStream<'static, ()>, within: Duration) -> bool {
    let clock = Clock::system();
    let next = block_on(until(&clock, Some(clock.now().after(within)), signals.next()));
    next.is_some_and(|signal| signal.is_some())
}

/// Looks after each signal, until the lock is so.
#[track_caller]
fn until_seen(signals: &mut BoxStream<'static, ()>, directory: &Path, is_so: impl Fn(&LockState) -> bool) {
    for _ in 0..100 {
        assert!(comes(signals, LIMIT), "no signal came");
        if is_so(&block_on(locks(directory).inspect("orders")).unwrap()) {
            return;
        }
    }
    panic!("it was signalled and never seen");
}

fn settle(signals: &mut BoxStream<'static, ()>) {
    while comes(signals, Duration::from_millis(500)) {}
}

#[test]
fn whatever_changes_a_lock_is_signalled() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut signals = signals(path).unwrap();
    let orders = locks(path).lock("orders").unwrap();
    for _ in 0..3 {
        let lease = block_on(orders.acquire()).unwrap();
        until_seen(&mut signals, path, |seen| seen.holder == Some(lease.holder()));
        block_on(lease.release()).unwrap();
        until_seen(&mut signals, path, |seen| seen.status == Status::Free);
        settle(&mut signals);

        let child = Process::start("read", path);
        child.says();
        until_seen(&mut signals, path, |seen| seen.readers.len() == 1);
        settle(&mut signals);
        child.kill();
        until_seen(&mut signals, path, |seen| seen.status == Status::Free);
        settle(&mut signals);
    }
}

#[test]
fn looking_is_no_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let held = block_on(locks(path).lock("orders").unwrap().acquire()).unwrap();
    let mut signals = signals(path).unwrap();
    for _ in 0..10 {
        block_on(locks(path).inspect("orders")).unwrap();
        block_on(locks(path).list("")).unwrap();
    }
    assert!(!comes(&mut signals, Duration::from_millis(500)), "looking was signalled");
    held.check().unwrap();
}

#[test]
fn signals_end_with_the_directory_and_are_none_without_one() {
    let directory = tempfile::tempdir().unwrap();
    assert!(signals(&directory.path().join("missing")).is_none());
    let removed = |path: &Path| std::fs::remove_dir(path).unwrap();
    let moved = |path: &Path| std::fs::rename(path, path.with_extension("elsewhere")).unwrap();
    for ends in [removed, moved] {
        let path = directory.path().join("locks");
        std::fs::create_dir(&path).unwrap();
        let mut signals = signals(&path).unwrap();
        ends(&path);
        let clock = Clock::system();
        let ended = block_on(until(&clock, Some(clock.now().after(LIMIT)), async {
            while signals.next().await.is_some() {}
        }));
        assert!(ended.is_some(), "they go on");
    }
}

#[test]
fn dropped_signals_leave_nothing_open() {
    let directory = tempfile::tempdir().unwrap();
    let watches = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        open.filter(|target| target.to_string_lossy().contains("inotify")).count()
    };
    let mut heard = signals(directory.path()).unwrap();
    assert!(!comes(&mut heard, Duration::from_millis(20)));
    assert_eq!(watches(), 1);
    drop(heard);
    assert_eq!(watches(), 0);
}
