//! Shared locks among processes: nothing is left of a reader that is gone, no writer is let in beside one, and none is starved.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fencepost_core::{Clock, Error, Lease, LockState, LossReason, Status, block_on};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};

use super::child::{Process, say, wait_for_the_end};
use super::{LIMIT, locks, until};

const READERS: usize = 6;
const TURNS: u32 = 60;

fn read(directory: &Path) -> Lease {
    block_on(locks(directory).lock("orders").unwrap().shared().wait(LIMIT).acquire()).unwrap()
}

fn write(directory: &Path) -> Result<Lease, Error> {
    block_on(locks(directory).lock("orders").unwrap().wait(LIMIT).acquire())
}

fn is_refused(directory: &Path) -> bool {
    block_on(locks(directory).lock("orders").unwrap().try_acquire()).unwrap().is_none()
}

fn state(directory: &Path) -> LockState {
    block_on(locks(directory).inspect("orders")).unwrap()
}

pub(super) fn read_until_the_end(directory: &Path) {
    let lease = read(directory);
    say(&lease.token().to_string());
    wait_for_the_end();
    drop(lease);
}

#[test]
fn killed_reader_is_seen_no_more_and_lets_a_writer_in() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let (one, other) =
            (Process::start("read", directory.path()), Process::start("read", directory.path()));
        let mut tokens: Vec<u64> = vec![one.says().parse().unwrap(), other.says().parse().unwrap()];
        tokens.sort_unstable();
        let seen = state(directory.path()).readers;
        assert_eq!(seen.iter().map(|reader| reader.token.get()).collect::<Vec<_>>(), tokens);
        one.kill();
        until("one reader is left", || state(directory.path()).readers.len() == 1);
        assert!(is_refused(directory.path()));
        other.kill();
        let writer = write(directory.path()).unwrap();
        assert!(writer.token().get() > tokens[1]);
        let seen = state(directory.path());
        assert_eq!((seen.readers.len(), seen.holder), (0, Some(writer.holder())), "{seen:?}");
        block_on(writer.release()).unwrap();
        assert_eq!(state(directory.path()).status, Status::Free);
    }
}

#[test]
fn stopped_reader_keeps_the_lock_and_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let reader = Process::start("read", directory.path());
    let token: u64 = reader.says().parse().unwrap();
    kill_process(Pid::from_raw(reader.pid()).unwrap(), Signal::STOP).unwrap();
    let beside = read(directory.path());
    let seen: Vec<u64> = state(directory.path()).readers.iter().map(|reader| reader.token.get()).collect();
    assert_eq!(seen, [token, beside.token().get()]);
    block_on(beside.release()).unwrap();
    assert!(is_refused(directory.path()), "a writer came in beside a stopped reader");
}

/// Reads again and again, each time for longer than it takes to come back.
pub(super) fn read_for_ever(directory: &Path) {
    say("begun");
    let clock = Clock::system();
    loop {
        let lease = read(directory);
        block_on(clock.sleep(Duration::from_millis(5) + clock.jitter(Duration::from_millis(10))));
        block_on(lease.release()).unwrap();
    }
}

#[test]
fn writer_is_not_starved_by_processes_of_readers() {
    let directory = tempfile::tempdir().unwrap();
    let readers: Vec<_> = (0..READERS).map(|_| Process::start("read for ever", directory.path())).collect();
    for reader in &readers {
        assert_eq!(reader.says(), "begun");
    }
    let clock = Clock::system();
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        until("several read", || state(directory.path()).readers.len() >= READERS / 2);
        let asked = clock.now();
        let writer = write(directory.path()).expect("the writer was starved");
        longest = longest.max(clock.now().since(asked));
        block_on(writer.release()).unwrap();
    }
    // A reader reads for 15 milliseconds.
    assert!(longest < Duration::from_secs(3), "a writer waited for {longest:?}");
}

#[test]
fn descriptor_that_a_process_has_inherited_keeps_the_lock_shared() {
    let directory = tempfile::tempdir().unwrap();
    let lease = read(directory.path());
    let inherited: Vec<_> = lease.descriptors().iter().filter(|descriptor| descriptor.inheritable).collect();
    assert_eq!(inherited.len(), 1, "the command gets the lock file's alone");
    fcntl_setfd(&inherited[0].fd, FdFlags::empty()).unwrap();
    let mut command = Command::new("sleep").arg("60").spawn().unwrap();
    drop(inherited);
    block_on(lease.release()).unwrap();

    // As when runner and guardian were killed at one stroke: who it was is not known any more.
    assert!(is_refused(directory.path()), "a writer came in beside the command of a reader");
    let seen = state(directory.path());
    assert_eq!((seen.status, seen.readers.len()), (Status::Held, 0), "{seen:?}");
    block_on(read(directory.path()).release()).unwrap();
    command.kill().unwrap();
    command.wait().unwrap();
    block_on(write(directory.path()).unwrap().release()).unwrap();
}

#[test]
fn guardian_that_has_all_descriptors_keeps_the_reader_in_sight() {
    let directory = tempfile::tempdir().unwrap();
    let lease = read(directory.path());
    let (token, kept) = (lease.token(), lease.descriptors().to_vec());
    drop(lease);
    block_on(Clock::system().settled());
    assert_eq!(state(directory.path()).readers.first().map(|reader| reader.token), Some(token));
    assert!(is_refused(directory.path()));
    drop(kept);
    assert_eq!(state(directory.path()).status, Status::Free);
}

#[test]
fn cleaner_that_removes_the_lock_file_of_a_reader_lets_no_writer_in() {
    let directory = tempfile::tempdir().unwrap();
    let lease = read(directory.path());
    for file in ["orders.lock", "orders.readers"] {
        std::fs::remove_file(directory.path().join(file)).unwrap();
    }
    assert!(is_refused(directory.path()), "a writer came in by a new lock file");
    block_on(read(directory.path()).release()).unwrap();
    lease.check().unwrap();
    std::fs::remove_file(directory.path().join("orders.tok")).unwrap();
    assert_eq!(block_on(lease.lost()).loss_reason(), Some(LossReason::Replaced));
}

#[test]
fn reader_that_waited_at_a_lock_file_that_is_gone_gets_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let writer = write(directory.path()).unwrap();
    let (early, late) = std::thread::scope(|scope| {
        let early = scope.spawn(|| read(directory.path()));
        let waiting = || state(directory.path()).waiters.len();
        until("the first reader waits", || waiting() == 1);
        // It is blocked in the kernel by then.
        super::pass(Duration::from_millis(100));
        std::fs::remove_file(directory.path().join("orders.lock")).unwrap();
        let late = scope.spawn(|| read(directory.path()));
        until("the second reader waits", || waiting() == 2);
        drop(writer);
        (early.join().unwrap(), late.join().unwrap())
    });
    // By the lock file alone, as if there were no other kernel lock.
    let file = std::fs::File::open(directory.path().join("orders.lock")).unwrap();
    for lease in [late, early] {
        let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&file, exclusive).expect_err("a reader holds the file that is there");
        block_on(lease.release()).unwrap();
    }
}

/// Leaves a file while it reads or writes, and looks whether somebody else's is there that must not be.
pub(super) fn take_turns(directory: &Path, writes: bool) {
    let own =
        directory.join(if writes { "writes".to_owned() } else { format!("reads-{}", std::process::id()) });
    let is_alone = || {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut others = names.map(|name| name.into_string().unwrap());
        !others.any(|name| name == "writes" || (writes && name.starts_with("reads-")))
    };
    let clock = Clock::system();
    for _ in 0..TURNS {
        let lease = if writes { write(directory).unwrap() } else { read(directory) };
        if !is_alone() {
            say("overlap");
        }
        std::fs::write(&own, "").unwrap();
        block_on(clock.sleep(clock.jitter(Duration::from_millis(2))));
        std::fs::remove_file(&own).unwrap();
        if !writes && !is_alone() {
            say("overlap");
        }
        block_on(lease.release()).unwrap();
    }
    say("done");
}

#[test]
fn readers_and_writers_of_many_processes_do_not_overlap() {
    let directory = tempfile::tempdir().unwrap();
    let tasks = ["take turns to read", "take turns to read", "take turns to read", "take turns to write"];
    let processes: Vec<_> = tasks
        .iter()
        .cycle()
        .take(2 * tasks.len())
        .map(|task| Process::start(task, directory.path()))
        .collect();
    for process in processes {
        assert_eq!(process.says(), "done");
    }
}
