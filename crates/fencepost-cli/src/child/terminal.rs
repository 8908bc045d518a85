//! The controlling terminal: who is in its foreground, and stopping and continuing with the shell's job.
//!
//! The terminal is handed to the command at once only where all three standard streams are it; otherwise a pager at the
//! end of the pipeline would find itself in the background. Then it is handed over when the command asks for it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, getpgid, getpgrp, getpid, getppid, getsid, kill_process};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process, where it has one.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Option<OwnedFd>,
    /// The runner's process group.
    runner: Pid,
    eager: bool,
}

impl Terminal {
    /// Finds it, and decides when the command gets it.
    pub(crate) fn find() -> Self {
        let runner = getpgrp();
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let device = File::options()
            .read(true)
            .write(true)
            .custom_flags((OFlags::NOCTTY | OFlags::CLOEXEC).bits().cast_signed())
            .open("/dev/tty");
        let device = device.ok().map(OwnedFd::from);
        let foreground = device.as_ref().is_some_and(|device| tcgetpgrp(device) == Ok(runner));
        Self { device, runner, eager: foreground && streams.iter().all(|stream| isatty(stream.as_fd())) }
    }

    /// Whether there is one.
    pub(crate) fn exists(&self) -> bool {
        self.device.is_some()
    }

    /// Hands it to the process group `group` from the start, if it is to have it then.
    pub(super) fn hand_over_at_start(&self, group: Pid) {
        if self.eager {
            self.set(group);
        }
    }

    /// Hands it to the process group `group`, if it is the runner's to give; whether it was.
    pub(crate) fn hand_over(&self, group: Pid) -> bool {
        self.foreground() == Some(self.runner) && self.set(group)
    }

    /// Takes it back from the process group `group`, if that has it.
    pub(crate) fn take_back(&self, group: Pid) {
        if self.foreground() == Some(group) {
            self.set(self.runner);
        }
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.device.as_ref()?).ok()
    }

    /// SIGTTOU is blocked in both processes, so that they may do this from the background.
    fn set(&self, group: Pid) -> bool {
        self.device.as_ref().is_some_and(|device| tcsetpgrp(device, group).is_ok())
    }
}

/// Stops this process and the rest of its pipeline, as Ctrl-Z means it, until the shell continues them; whether it did.
///
/// Where no shell could ever continue them (the group is an orphan), the kernel ignores Ctrl-Z, and so does this.
pub(crate) fn stop_this_job() -> bool {
    let parent = getppid();
    let has_shell = parent
        .is_some_and(|parent| getsid(Some(parent)) == getsid(None) && getpgid(Some(parent)) != getpgid(None));
    if has_shell {
        let _ = rustix::process::kill_current_process_group(Signal::TSTP);
        // Our own SIGTSTP is blocked.
        let _ = kill_process(getpid(), Signal::STOP);
    }
    has_shell
}
