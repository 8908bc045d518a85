//! A child process of a test: stopped, let go on, killed, and gone with its value at the latest.
//!
//! A signal goes only to a child that was not waited for, so that it never meets a stranger with the same number.

mod nursery;

use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// A child process, which is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// A command that runs `program` bound to this process: however this one ends, that one is killed.
    pub(crate) fn bound(program: &Path) -> Command {
        nursery::command(program)
    }

    /// The same, run by another user, which only root can ask for.
    pub(crate) fn bound_as(user: &str, program: &Path) -> Command {
        nursery::command_as(user, program)
    }

    /// Starts a [bound](Self::bound) command. The thread that calls may end.
    pub(crate) fn start_bound(command: Command) -> Self {
        Self(nursery::start(command))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Stops the process, as a debugger or an overloaded machine does, and waits until it stands still.
    pub(crate) fn stop(&self) {
        assert!(self.stands_still(), "process {} was stopped, and stands still", self.id());
    }

    /// Stops the process if it has not ended, waits, and says whether it stands still.
    pub(crate) fn stands_still(&self) -> bool {
        self.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let state = rustix::process::waitid(WaitId::Pid(self.pid()), options);
        state.is_ok_and(|state| state.is_some_and(|state| state.stopped()))
    }

    /// Lets a stopped process go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process, also when it is stopped, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // A process that has ended already cannot be killed, and is waited for all the same.
        drop(self.0.kill());
        drop(self.0.wait());
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("a child that was not waited for exists");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
