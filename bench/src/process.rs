//! Whole processes: a command under a lock, beside the same command under `flock(1)` and alone.
//!
//! The command line that is measured is the release build of `fencepost` beside this program, or what `FENCEPOST` names.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::file::directory;
use crate::measure::{Figure, in_turns, median_micros};

/// How many runs a round has.
const RUNS: usize = 50;

/// `fencepost run x -- true`, with its guardian, beside `flock FILE true`.
pub(crate) fn beside_flock() -> Figure {
    let directory = directory();
    let file = directory.path().join("bare");
    let floor = || median_micros(RUNS, || run(Command::new("flock").arg(&file).arg("true")));
    in_turns("file: run -- true, floor flock(1)", "µs", floor, || ours(directory.path()))
}

/// The same beside `true` alone, as what a process costs.
pub(crate) fn beside_nothing() -> Figure {
    let directory = directory();
    let floor = || median_micros(RUNS, || run(&mut Command::new("true")));
    in_turns("file: run -- true, floor true", "µs", floor, || ours(directory.path()))
}

fn ours(directory: &Path) -> f64 {
    let (program, url) = (program(), format!("file:{}", directory.display()));
    median_micros(RUNS, || {
        run(Command::new(&program).args(["run", "--backend", &url, "x", "--", "true"]));
    })
}

fn program() -> PathBuf {
    std::env::var_os("FENCEPOST").map_or_else(
        || std::env::current_exe().expect("a program knows where it is").with_file_name("fencepost"),
        PathBuf::from,
    )
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status();
    let status = status.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(status.success(), "{command:?} ended with {status}");
}
