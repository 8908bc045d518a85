//! Signals as messages: blocked from the start, and read from a descriptor.
//!
//! No handler is installed, so an ignored signal stays ignored for the command (`nohup` works), and whatever arrives
//! before the command exists stays pending and is passed on afterwards.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::fork::keep_exit_statuses;

/// Signals that are passed on to the command, and end a wait for the lock.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that are passed on to the command, and kept for it while there is none. The kernel tells the foreground alone
/// of a new window size, so the command hears of it from here where it has not been handed the terminal.
const PASSED_ON: [Signal; 3] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH];

/// Signals of job control.
const JOB_CONTROL: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGCONT, Signal::SIGTTIN];

/// The blocked signals of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    blocked: SigSet,
    before: SigSet,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Pass it on; while waiting for the lock, end.
    ToEnd,
    /// Pass it on.
    ForTheCommand,
    /// Stop the job.
    ToStop,
    /// Continue what was stopped.
    ToContinue,
    /// Nothing: a child has changed.
    Nothing,
}

impl Signals {
    /// Blocks what is handled here, less what was ignored when this process was started.
    pub(crate) fn block() -> io::Result<Self> {
        let ignored = ignored();
        if ignored & bit(Signal::SIGCHLD) != 0 {
            keep_exit_statuses();
        }
        // SIGXFSZ would end fencepost where a limit on file sizes lets it write no event; the write's error is enough.
        let mut blocked = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTTOU, Signal::SIGXFSZ]);
        for signal in ENDING.into_iter().chain(PASSED_ON).chain(JOB_CONTROL) {
            if ignored & bit(signal) == 0 {
                blocked.add(signal);
            }
        }
        let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { blocked, before })
    }

    /// Where the blocked signals of the calling process can be read.
    pub(crate) fn open(&self) -> io::Result<SignalReader> {
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(SignalReader(SignalFd::with_flags(&self.blocked, flags)?))
    }

    /// Gives the calling thread the mask that this process was started with.
    pub(super) fn restore(&self) -> io::Result<()> {
        Ok(self.before.thread_set_mask()?)
    }
}

/// Reads blocked signals.
#[derive(Debug)]
pub(crate) struct SignalReader(SignalFd);

impl SignalReader {
    /// The next signal that has arrived.
    pub(crate) fn next(&self) -> Option<i32> {
        let info = self.0.read_signal().ok()??;
        i32::try_from(info.ssi_signo).ok()
    }
}

impl AsFd for SignalReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What `signal` asks for.
pub(crate) fn meaning(signal: i32) -> Asks {
    let is = |signals: &[Signal]| signals.iter().any(|known| *known as i32 == signal);
    if is(&ENDING) {
        return Asks::ToEnd;
    }
    if is(&PASSED_ON) {
        return Asks::ForTheCommand;
    }
    match Signal::try_from(signal) {
        Ok(Signal::SIGTSTP) => Asks::ToStop,
        Ok(Signal::SIGCONT) => Asks::ToContinue,
        _ => Asks::Nothing,
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

/// Room for the whole of a process's status: the kernel makes it anew for every read of a part.
const STATUS: usize = 4096;

/// The signals that this process ignores, a bit each.
fn ignored() -> u64 {
    let mut status = String::with_capacity(STATUS);
    let _ = File::open("/proc/self/status").and_then(|mut file| file.read_to_string(&mut status));
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
