//! Process control: runner ── fork ─▶ guardian ── fork, exec ─▶ command, in a process group of its own.
//!
//! The runner holds the lease. The guardian is the command's parent; it is told each new deadline, and ends the command
//! when the runner is killed, stopped or wedged; the runner ends it when the guardian is. The guardian is forked before
//! the first thread exists. It has its own process group, which a signal to the runner's group does not reach, but no
//! session of its own, so that the command keeps its terminal.
//! Invariant: a lock is given back only after the last process of the command's tree has ended.

mod alarm;
mod channel;
mod fork;
mod guardian;
mod inbox;
mod signals;
mod spawn;
mod terminal;
mod tree;

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::time::Duration;

pub(crate) use channel::{Channel, Ended, ExitStatus, GiveBack, Start, ToGuardian, ToRunner};
pub(crate) use inbox::{Bell, Heard, Inbox};
pub(crate) use signals::{Asks, Signals, meaning};
pub(crate) use terminal::{Terminal, stop_this_job, stop_this_process, wants_terminal};

use rustix::process::{Pid, Signal};

/// How long before the deadline the guardian has sent SIGKILL: what it takes to be woken, and to end a large tree.
const KILL_MARGIN: Duration = Duration::from_millis(30);

/// How long before the deadline the runner ends the command itself, if the guardian has not.
pub(crate) const BACKSTOP_MARGIN: Duration = Duration::from_millis(10);

/// The runner's side of the guardian.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: Pid,
    /// Whether its pid has been reaped, and may be another process's by now.
    is_reaped: Cell<bool>,
    /// Children that this process had before, such as the background jobs of a shell that replaced itself by it.
    bystanders: Vec<Pid>,
}

impl Guardian {
    /// Forks the guardian of `command`. Must be called before any thread is started.
    pub(crate) fn fork(
        command: &[OsString],
        signals: &Signals,
        terminal: &Terminal,
    ) -> io::Result<(Self, Channel)> {
        if !tree::is_visible() {
            let what = "/proc is missing, or that of another pid namespace, and does not show the command's processes";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let bystanders =
            if tree::has_children() { tree::children(rustix::process::getpid()) } else { Vec::new() };
        let (ours, theirs) = Channel::pair()?;
        match fork::fork()? {
            None => {
                drop(ours);
                guardian::watch_over(command, theirs, signals, terminal).leave()
            }
            Some(pid) => {
                drop(theirs);
                rustix::process::set_child_subreaper(Some(pid))?;
                Ok((Self { pid, is_reaped: Cell::new(false), bystanders }, ours))
            }
        }
    }

    /// Ends the guardian itself, which has reported the end of the command.
    pub(crate) fn dismiss(&self) {
        if self.is_reaped.replace(true) {
            return;
        }
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        tree::reap(self.pid);
    }

    /// Ends the guardian, which does not listen any more; its end is the news that leads to [`Self::replace`].
    pub(crate) fn end(&self) {
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
    }

    /// Ends the command in the guardian's place, and the guardian: it has died, or has not acted in time.
    ///
    /// Returns only when nothing of them is left; processes that SIGKILL does not end in time are named to `stuck`.
    pub(crate) fn replace(&self, group: Option<Pid>, stuck: impl FnOnce(&[i32])) {
        let _ = group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
        for pid in tree::descendants(self.pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        self.is_reaped.set(true);
        tree::kill_all_but(&self.bystanders, |pids| stuck(&tree::pids(pids)));
    }
}
