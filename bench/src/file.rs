//! Files, beside bare `flock(2)`.

use std::fs::File;
use std::path::{Path, PathBuf};

use fencepost_core::{Clock, Lock, Locks};
use fencepost_file::FileBackend;
use fencepost_testkit::block_on;
use rustix::fs::{FlockOperation, flock};

use crate::measure::{Figure, in_turns, median_micros, median_micros_of, on_one_core, per_second};
use crate::redis::once;

/// How many threads pass one lock round.
const THREADS: usize = 8;

fn locks(directory: &Path) -> Locks {
    let url = format!("file:{}", directory.display()).parse().expect("a directory makes a URL");
    Locks::new(FileBackend::from_url(&url, Clock::system()).expect("the URL names a directory"))
}

/// Where the build is, which is on a disk: the files of locks are.
pub(crate) fn directory() -> tempfile::TempDir {
    let program = std::env::current_exe().expect("a program knows where it is");
    let beside = program.parent().map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(beside).expect("a directory can be made beside the program")
}

/// Opens, locks and closes, without a token.
fn bare(path: &Path) {
    let file = File::options().create(true).append(true).open(path).expect("a file can be opened");
    flock(&file, FlockOperation::LockExclusive).expect("a file can be locked");
}

/// One lock, taken with its token and given back again and again, on one core.
pub(crate) fn pair() -> Figure {
    on_one_core(|| {
        let directory = directory();
        let path = directory.path().join("bare");
        let lock = locks(directory.path()).lock("pair").expect("a name");
        let floor = || median_micros(4_000, || bare(&path));
        let ours = || block_on(median_micros_of(4_000, || once(&lock)));
        in_turns("file: acquire and release", "µs", floor, ours)
    })
}

/// The same shared, as a reader.
pub(crate) fn shared_pair() -> Figure {
    on_one_core(|| {
        let directory = directory();
        let path = directory.path().join("bare");
        let lock = locks(directory.path()).lock("pair").expect("a name").shared();
        let floor = || median_micros(4_000, || bare(&path));
        let ours = || block_on(median_micros_of(4_000, || once(&lock)));
        in_turns("file: acquire and release, shared", "µs", floor, ours)
    })
}

/// One lock that goes round among threads.
pub(crate) fn hand_over() -> Figure {
    const TIMES: usize = 500;
    let directory = directory();
    let path = directory.path().join("bare");
    let lock = locks(directory.path()).lock("one").expect("a name");
    let floor = || on_threads(TIMES, || bare(&path));
    let ours = || on_threads(TIMES, || take(&lock));
    in_turns("file: grants a second among 8 threads", "1/s", floor, ours)
}

fn take(lock: &Lock) {
    block_on(once(lock));
}

/// How many grants a second there are when each of all threads takes the lock so often.
fn on_threads(times: usize, take: impl Fn() + Sync) -> f64 {
    let clock = Clock::system();
    let began = clock.now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..times).for_each(|_| take()));
        }
    });
    per_second(THREADS * times, clock.now().since(began))
}
