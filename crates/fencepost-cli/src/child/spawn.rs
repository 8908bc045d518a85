//! Starting the command: a fork of the guardian that becomes the command.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid};

use super::channel::Start;
use super::fork::fork;
use super::signals::Signals;
use super::terminal::Terminal;
use crate::exit::Exit;

/// Starts the command in a process group of its own; when this returns, group, terminal and program are settled.
///
/// # Errors
/// The error of the system call that executes a program.
pub(super) fn spawn(
    command: &[OsString],
    start: &Start,
    descriptors: &[OwnedFd],
    signals: &Signals,
    terminal: &Terminal,
) -> io::Result<Pid> {
    let (failure, mut report) = io::pipe()?;
    let guardian = getpid();
    let Some(pid) = fork()? else {
        let error = become_command(command, start, descriptors, signals, terminal, guardian);
        let number = error.raw_os_error().unwrap_or(libc::EINVAL);
        let _ = report.write_all(&number.to_ne_bytes());
        Exit::NOT_FOUND.leave()
    };
    drop(report);
    match read_failure(failure) {
        None => Ok(pid),
        Some(number) => {
            terminal.take_back(pid);
            super::tree::reap(pid);
            Err(io::Error::from_raw_os_error(number))
        }
    }
}

/// Returns only if the program could not be executed.
fn become_command(
    command: &[OsString],
    start: &Start,
    descriptors: &[OwnedFd],
    signals: &Signals,
    terminal: &Terminal,
    guardian: Pid,
) -> io::Error {
    match prepare(start, descriptors, signals, terminal, guardian) {
        Ok(()) => {}
        Err(error) => return error,
    }
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    for (variable, value) in &start.environment {
        match value {
            Some(value) => program.env(variable, value),
            None => program.env_remove(variable),
        };
    }
    program.exec()
}

fn prepare(
    start: &Start,
    descriptors: &[OwnedFd],
    signals: &Signals,
    terminal: &Terminal,
    guardian: Pid,
) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A sub-reaper may have adopted this process before it could ask for that signal.
    if getppid() != Some(guardian) {
        Exit::BUG.leave();
    }
    setpgid(None, None)?;
    terminal.hand_over_unasked(getpid());
    for (descriptor, inheritable) in descriptors.iter().zip(&start.inheritable) {
        if *inheritable {
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
    }
    signals.restore()
}

/// The pipe closes when the program is executed; before that it carries the number of the error.
fn read_failure(mut failure: PipeReader) -> Option<i32> {
    let mut number = [0; 4];
    failure.read_exact(&mut number).ok().map(|()| i32::from_ne_bytes(number))
}
