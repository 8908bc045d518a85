//! What can go wrong with a file: a writer is killed, the disk is full, the file is damaged or not to be written.

use std::path::Path;
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Fence, FencingToken, block_on};

use crate::race::Worker;
use crate::support::{Ledger, fence, name, stamp, url};

fn mark(ledger: &Ledger) -> u64 {
    let mark = block_on(ledger.fence().mark(&name("ledger"))).unwrap();
    mark.map_or(0, |mark| mark.token.get())
}

/// Seals one token after the other, and says each when it is sealed.
#[expect(clippy::print_stdout, reason = "a worker tells the test what it has done")]
pub(crate) fn seal_for_ever(file: &Path) {
    let fence = fence(file);
    let first = block_on(fence.mark(&name("ledger"))).unwrap().map_or(0, |mark| mark.token.get());
    for token in first + 1.. {
        block_on(fence.seal(&stamp(token))).unwrap();
        println!("sealed {token}");
    }
}

#[test]
fn seal_that_is_killed_leaves_the_mark_whole() {
    for mode in ["DELETE", "WAL"] {
        let ledger = Ledger::new();
        ledger.connect().pragma_update(None, "journal_mode", mode).unwrap();
        let mut last = 0;
        for _ in 0..20 {
            let mut worker = Worker::start("seal", &ledger);
            let mut lines =
                worker.lines().filter_map(|line| line.strip_prefix("sealed ")?.parse::<u64>().ok());
            let mut told = lines.next().unwrap();
            block_on(Clock::system().sleep(Clock::system().jitter(Duration::from_millis(20))));
            worker.kill();
            told = lines.last().unwrap_or(told);
            let mark = mark(&ledger);
            // The last one may have been sealed and not told.
            assert!(mark == told || mark == told + 1, "{mode}: {told} was told, the mark is {mark}");
            assert!(mark > last, "{mode}: the mark went back from {last} to {mark}");
            last = mark;
            block_on(ledger.fence().check(&stamp(mark))).unwrap();
        }
        let intact: String =
            ledger.connect().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(intact, "ok");
    }
}

fn seal_error(path: &Path) -> Error {
    block_on(fence(path).seal(&stamp(9))).unwrap_err()
}

#[test]
fn file_that_is_not_there_is_not_made_by_a_seal() {
    let ledger = Ledger::new();
    let other = ledger.path().with_file_name("typing-error.db");
    let error = seal_error(&other);
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.advice().unwrap().contains("fence install"), "{error:?}");
    assert!(block_on(fence(&other).mark(&name("ledger"))).is_err());
    assert!(!other.exists());
    block_on(fence(&other).install(None)).unwrap();
    block_on(fence(&other).seal(&stamp(9))).unwrap();
}

#[test]
fn what_is_no_database_is_said_and_left_alone() {
    let ledger = Ledger::guarded();
    let path = ledger.path();
    let text = vec![b'x'; 5_000];
    let other = path.with_file_name("text");
    std::fs::write(&other, &text).unwrap();
    let error = seal_error(&other);
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    assert!(error.to_string().contains("text"), "{error}");
    assert_eq!(std::fs::read(&other).unwrap(), text);
    assert_eq!(seal_error(path.parent().unwrap()).kind(), ErrorKind::InvalidArgument);
    assert_eq!(seal_error(Path::new("/proc/nowhere/a.db")).kind(), ErrorKind::Unavailable);
}

/// The pages after the first are overwritten, as a bad disk does.
#[test]
fn damaged_database_is_an_error_and_never_a_lower_mark() {
    let ledger = Ledger::guarded();
    let mut bytes = std::fs::read(ledger.path()).unwrap();
    bytes[4_096..].fill(0xa5);
    std::fs::write(ledger.path(), &bytes).unwrap();
    assert_eq!(seal_error(&ledger.path()).kind(), ErrorKind::Unexpected);
    let looked = block_on(ledger.fence().mark(&name("ledger"))).unwrap_err();
    assert_eq!(looked.kind(), ErrorKind::Unexpected, "{looked}");
    assert!(looked.to_string().contains("malformed"), "{looked}");
}

#[test]
fn mark_that_fencepost_cannot_have_written_is_an_error() {
    let ledger = Ledger::guarded();
    let connection = ledger.connect();
    for wrong in ["token = 0", "token = -1", "token = 'x'", "token = 9223372036854775808", "holder = x'00'"] {
        assert!(connection.execute_batch(&format!("UPDATE fencepost_fence SET {wrong}")).is_err(), "{wrong}");
    }
    connection.execute_batch("UPDATE fencepost_fence SET holder = 'not a holder'").unwrap();
    assert_eq!(seal_error(&ledger.path()).kind(), ErrorKind::Unexpected);
    let greatest = format!("UPDATE fencepost_fence SET token = {}, holder = 'a'", FencingToken::MAX);
    connection.execute_batch(&greatest).unwrap();
    assert_eq!(seal_error(&ledger.path()).kind(), ErrorKind::Stale);
}

/// On a small disk that only one process sees.
#[test]
fn full_disk_leaves_the_mark_as_it_was() {
    for mode in ["DELETE", "WAL"] {
        let ledger = Ledger::new();
        let directory = ledger.path().parent().unwrap().to_owned();
        let script = format!("mount -t tmpfs -o size=400k none {} && exec \"$@\"", directory.display());
        let disk = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
        let mut worker = Worker::start_by(&disk, &format!("fill {mode}"), &ledger);
        let said: Vec<_> = worker.lines().filter(|line| line.starts_with("full: ")).collect();
        assert_eq!(said, ["full: Unavailable, then 7, then 8"], "{mode}");
    }
}

/// Seals on a disk that is full, and once more when it is not.
#[expect(clippy::print_stdout, reason = "a worker tells the test what it has done")]
pub(crate) fn seal_on_a_full_disk(file: &Path, mode: &str) {
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.pragma_update(None, "journal_mode", mode).unwrap();
    drop(connection);
    let (fence, ballast) = (fence(file), file.with_file_name("ballast"));
    let mark = || block_on(fence.mark(&name("ledger"))).unwrap().unwrap().token;
    block_on(fence.install(None)).unwrap();
    block_on(fence.seal(&stamp(7))).unwrap();
    assert!(std::fs::write(&ballast, vec![0; 400 * 1024]).is_err(), "the disk is not full");
    let error = block_on(fence.seal(&stamp(8))).unwrap_err();
    std::fs::remove_file(&ballast).unwrap();
    let kept = mark();
    block_on(fence.seal(&stamp(8))).unwrap();
    println!("full: {:?}, then {kept}, then {}", error.kind(), mark());
}

#[test]
fn url_names_a_file_by_its_whole_path() {
    let refused = |text: &str| {
        let error = fencepost_sqlite::SqliteFence::from_url(&text.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.advice().unwrap_or_default().to_owned()
    };
    assert!(refused("sqlite:a.db").starts_with("did you mean sqlite:/"));
    assert!(refused("sqlite://a.db").ends_with("/a.db?"));
    for text in ["sqlite:", "sqlite://", "sqlite::memory:", "sqlite://:memory:"] {
        assert_eq!(refused(text), "name it, such as sqlite:/srv/ledger.db", "{text}");
    }
    refused("sqlite:/a.db?mode=memory");
    for text in ["sqlite:/srv/a.db", "sqlite:///srv/a.db"] {
        let fence = fencepost_sqlite::SqliteFence::from_url(&text.parse().unwrap()).unwrap();
        assert_eq!(fence.to_string(), url(Path::new("/srv/a.db")).to_string());
    }
}
