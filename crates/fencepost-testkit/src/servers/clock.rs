//! A wall clock of a process's own, which a test can step while the process runs.
//!
//! `shim/clockshim.c` is preloaded and adds a number from a file to the wall clock. Clocks that nobody can set are left
//! alone, as they are when a machine's clock is stepped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::installed;

/// The clock of one server, or of any other process.
#[derive(Debug)]
pub struct SteppedClock {
    shim: PathBuf,
    file: PathBuf,
    offset_micros: i64,
}

impl SteppedClock {
    /// A clock that is right, kept in `folder`.
    pub fn new(folder: &Path) -> Self {
        let clock = Self { shim: compiled(folder), file: folder.join("clock"), offset_micros: 0 };
        clock.set();
        clock
    }

    /// Runs a command on this clock.
    pub fn apply_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.shim).env("FENCEPOST_CLOCK", &self.file);
    }

    /// Steps the clock forward, also of a server that runs.
    pub fn step_forward(&mut self, by: Duration) {
        self.step(micros(by));
    }

    /// Steps the clock back, also of a server that runs.
    pub fn step_back(&mut self, by: Duration) {
        self.step(-micros(by));
    }

    fn step(&mut self, micros: i64) {
        self.offset_micros = self.offset_micros.saturating_add(micros);
        self.set();
    }

    /// Writes in place: the server has the file mapped.
    fn set(&self) {
        let file = File::options().write(true).create(true).truncate(false).open(&self.file);
        let written = file.and_then(|file| file.write_all_at(&self.offset_micros.to_ne_bytes(), 0));
        written.expect("a file in a temporary directory can be written");
    }
}

/// The shim, compiled into `folder`; each server has its own, since nothing that is shared need then be made with care.
fn compiled(folder: &Path) -> PathBuf {
    let (source, shim) = (folder.join("clockshim.c"), folder.join("clockshim.so"));
    std::fs::write(&source, SOURCE).expect("a file can be made in a temporary directory");
    let mut compiler = Command::new(installed("cc"));
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(&source);
    let output = compiler.output().expect("what is installed can be started");
    assert!(output.status.success(), "the clock's shim: {}", String::from_utf8_lossy(&output.stderr));
    shim
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a step is shorter than all of time")
}

const SOURCE: &str = include_str!("../../shim/clockshim.c");
