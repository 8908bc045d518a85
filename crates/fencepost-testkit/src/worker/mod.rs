//! A worker process of a case, seen from the case: it is started, told what to do, asked, stopped and killed.
//!
//! It is the test's own program, which runs the ignored test `worker`. Invariants: no worker outlives its value here,
//! and no answer is waited for without a limit.

mod protocol;
mod serve;

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

pub(crate) use protocol::{Answer, Command, Held, Patience};
pub use serve::work_as_told;

use crate::process::Process;

/// The variable in which a worker finds the address of its case's surroundings.
const ADDRESS: &str = "FENCEPOST_WORKER";

/// What the worker `process` writes beside its locks.
pub(crate) fn label(process: u32) -> String {
    format!("worker {process}")
}

/// A running worker.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    commands: ChildStdin,
    answers: Receiver<Answer>,
}

impl Worker {
    /// Starts a worker of the surroundings at `address`, by the test that `path` names in this program.
    pub(crate) fn start(address: &str, path: &str) -> Self {
        let program = std::env::current_exe().expect("a program knows its own path");
        // Inside the program a test is named without the name of the crate.
        let (_, test) = path.split_once("::").expect("a test is in a crate");
        let mut process = std::process::Command::new(program)
            .args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"])
            .env(ADDRESS, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test can start itself");
        let commands = process.stdin.take().expect("it is piped");
        let output = process.stdout.take().expect("it is piped");
        let (sender, answers) = channel();
        // It ends with the worker, whose end of the pipe then closes.
        std::thread::spawn(move || pass_on(output, &sender));
        Self { process: process.into(), commands, answers }
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Tells the worker to do something.
    pub(crate) fn tell(&mut self, command: &Command) {
        writeln!(self.commands, "{command}").expect("a worker reads until it is killed");
    }

    /// The next answer.
    pub(crate) fn answer(&self, limit: Duration) -> Answer {
        self.answer_within(limit)
            .unwrap_or_else(|| panic!("worker {} did not answer in {limit:?}", self.id()))
    }

    /// The next answer, if it comes in time.
    pub(crate) fn answer_within(&self, limit: Duration) -> Option<Answer> {
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("worker {} ended", self.id()),
        }
    }

    /// Stops the process, as a debugger or an overloaded machine does, and waits until it stands still.
    pub(crate) fn stop(&self) {
        self.process.stop();
    }

    /// Lets a stopped process go on.
    pub(crate) fn go_on(&self) {
        self.process.go_on();
    }

    /// Kills the process, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.process.kill();
    }
}

fn pass_on(output: ChildStdout, answers: &Sender<Answer>) {
    for line in BufReader::new(output).lines() {
        // A killed worker may leave half a letter.
        let Ok(line) = line else { return };
        let Some(answer) = Answer::in_line(&line) else { continue };
        if answers.send(answer).is_err() {
            return;
        }
    }
}
