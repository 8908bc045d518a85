//! The controlling terminal: who is in its foreground, and stopping and continuing with the shell's job.
//!
//! The terminal is handed to the command at once only where all three standard streams are it; otherwise a pager at the
//! end of the pipeline would find itself in the background. Then it is handed over when the command asks for it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fs::OFlags;
use rustix::process::{Pid, setpgid, setsid, test_kill_process_group};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

use super::tree;

/// The controlling terminal of this process, where it has one.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Option<OwnedFd>,
    /// The runner's process group; none where it was started from another pid namespace.
    runner: Option<Pid>,
    /// Whether all three streams may be it, so that nobody else in the pipeline reads from it.
    eager: bool,
}

impl Terminal {
    /// Finds it, and decides when the command gets it.
    pub(crate) fn find() -> Self {
        let runner = tree::group_of(None);
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let device = File::options()
            .read(true)
            .write(true)
            .custom_flags((OFlags::NOCTTY | OFlags::CLOEXEC).bits().cast_signed())
            .open("/dev/tty");
        let eager = streams.iter().all(|stream| isatty(stream.as_fd()));
        Self { device: device.ok().map(OwnedFd::from), runner, eager }
    }

    /// Whether there is one.
    pub(crate) fn exists(&self) -> bool {
        self.device.is_some()
    }

    /// Whether the process group `group` has it.
    pub(super) fn belongs_to(&self, group: Pid) -> bool {
        self.foreground() == Some(group)
    }

    /// Hands it to the process group `group` before that asks for it, if it is to have it then.
    ///
    /// The shell may have taken it during the wait for the lock, so it is looked at only now whose it is.
    pub(super) fn hand_over_unasked(&self, group: Pid) {
        if self.eager {
            self.hand_over(group);
        }
    }

    /// Hands it to the process group `group`, if it is the runner's to give; whether that has it now.
    pub(super) fn hand_over(&self, group: Pid) -> bool {
        self.belongs_to(group) || self.runner.is_some_and(|runner| self.belongs_to(runner) && self.set(group))
    }

    /// Takes it back from the process group `group`, or from one of which nobody is left: a nested shell's that died.
    pub(crate) fn take_back(&self, group: Pid) {
        let is_gone = |group| test_kill_process_group(group) == Err(rustix::io::Errno::SRCH);
        if let Some(runner) = self.runner
            && self.foreground().is_some_and(|foreground| foreground == group || is_gone(foreground))
        {
            self.set(runner);
        }
    }

    /// Moves this process, which leads a group, to a session of its own. Its children's groups become orphans: where
    /// they want the terminal they get an error from the kernel, as they would without `fencepost`, and are not stopped.
    pub(super) fn leave_session(&self) -> rustix::io::Result<()> {
        // The leader of a group may not leave the session.
        setpgid(None, self.runner)?;
        setsid().map(drop)
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.device.as_ref()?).ok()
    }

    /// SIGTTOU is blocked in both processes, so that they may do this from the background.
    fn set(&self, group: Pid) -> bool {
        self.device.as_ref().is_some_and(|device| tcsetpgrp(device, group).is_ok())
    }
}

/// Whether a process that `signal` has stopped wants the terminal.
pub(crate) fn wants_terminal(signal: i32) -> bool {
    signal == libc::SIGTTIN || signal == libc::SIGTTOU
}

/// Stops this process and the rest of its pipeline, as the terminal does, until the shell continues them.
///
/// Where no shell could ever continue them (the group is an orphan), the kernel ignores the signal, and nothing stops.
pub(crate) fn stop_this_job(signal: i32) {
    let signal = Signal::try_from(signal).ok().filter(|_| wants_terminal(signal)).unwrap_or(Signal::SIGTSTP);
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(0), signal);
    let_through(signal);
}

/// Stops this process alone, which was sent SIGTSTP: from the terminal, like the rest of its pipeline, or by somebody.
pub(crate) fn stop_this_process() {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGTSTP);
    let_through(Signal::SIGTSTP);
}

/// A signal that is blocked and pending here takes effect when it is let through.
fn let_through(signal: Signal) {
    if let Ok(before) = SigSet::from(signal).thread_swap_mask(SigmaskHow::SIG_UNBLOCK) {
        let _ = before.thread_set_mask();
    }
}
