//! The processes of a Postgres server: the first one, the postmaster, and its children, which serve the sessions.
//!
//! A child looks whether the postmaster is there only when it waits for something, so whoever ends or stops the server
//! sees to the children as well. Invariant: a signal goes only to a child that is held by a descriptor.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::Process;
use crate::servers::{LONGEST_WAIT, holds_within, wait_until};

/// A running server with all of its processes, which end when this is dropped.
#[derive(Debug)]
pub(super) struct Postmaster {
    process: Process,
    stopped: Mutex<Option<Undertaker>>,
}

impl Postmaster {
    /// Starts a bound command that becomes the postmaster.
    pub(super) fn start(command: Command) -> Self {
        Self { process: Process::start_bound(command), stopped: Mutex::default() }
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Stops all processes, the postmaster first, so that no more are born, and waits until they stand still.
    pub(super) fn stop(&self) {
        self.process.stop();
        let subprocesses = Subprocess::all_of(self.id());
        *self.undertaker() = Some(Undertaker::of(&subprocesses));
        signal_all(&subprocesses, Signal::STOP);
        wait_until("the server's processes stand still", || {
            subprocesses.iter().all(Subprocess::stands_still)
        });
    }

    /// Lets all processes go on.
    pub(super) fn go_on(&self) {
        signal_all(&Subprocess::all_of(self.id()), Signal::CONT);
        self.undertaker().take();
        self.process.go_on();
    }

    /// Kills all processes at once, also when they are stopped, and waits until they are gone.
    pub(super) fn kill(&mut self) {
        // A postmaster that stands still buries no child, so that their numbers stay theirs.
        let subprocesses =
            if self.process.stands_still() { Subprocess::all_of(self.id()) } else { Vec::new() };
        self.process.kill();
        signal_all(&subprocesses, Signal::KILL);
        assert!(subprocesses.iter().all(Subprocess::ends), "a killed process ends");
    }

    /// Asks the server to end, and says whether all of its processes have.
    pub(super) fn shut_down(&mut self, how: Signal, limit: Duration) -> bool {
        self.process.signal(how);
        holds_within(limit, || self.process.has_ended())
    }

    /// Kills one child, and waits until the server has ended all others for it.
    pub(super) fn kill_session(&self, id: u32) {
        let subprocesses = Subprocess::all_of(self.id());
        let subprocess = subprocesses.iter().find(|subprocess| subprocess.has_id(id));
        subprocess.expect("the number is that of a process of this server").signal(Signal::KILL);
        assert!(
            subprocesses.iter().all(Subprocess::ends),
            "the server ends its processes when one is killed"
        );
    }

    fn undertaker(&self) -> MutexGuard<'_, Option<Undertaker>> {
        self.stopped.lock().expect("nobody panics while holding it")
    }
}

impl Drop for Postmaster {
    /// Has the server end in haste, as that frees what it shares with its children, and kills it only if it does not.
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        self.go_on();
        if !self.shut_down(Signal::QUIT, LONGEST_HASTE) {
            self.kill();
        }
    }
}

/// A child of a postmaster.
#[derive(Debug)]
struct Subprocess {
    id: Pid,
    descriptor: OwnedFd,
}

impl Subprocess {
    fn all_of(postmaster: u32) -> Vec<Self> {
        let files = std::fs::read_dir("/proc").expect("the kernel lists its processes").flatten();
        let numbers = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
        numbers.filter_map(|number| Self::of(postmaster, number)).collect()
    }

    /// The process of this number, if it is a child of the postmaster.
    fn of(postmaster: u32, number: i32) -> Option<Self> {
        let is_child = || state_of(number).is_some_and(|(_, parent)| parent == postmaster);
        if !is_child() {
            return None;
        }
        let id = Pid::from_raw(number)?;
        let descriptor = pidfd_open(id, PidfdFlags::empty()).ok()?;
        // Between the look and the opening, the number may have become another's.
        is_child().then_some(Self { id, descriptor })
    }

    fn has_id(&self, id: u32) -> bool {
        u32::try_from(self.id.as_raw_nonzero().get()) == Ok(id)
    }

    fn signal(&self, signal: Signal) {
        let sent = pidfd_send_signal(&self.descriptor, signal);
        assert!(sent.is_ok() || sent == Err(Errno::SRCH), "only one that has ended gets no signal: {sent:?}");
    }

    fn stands_still(&self) -> bool {
        state_of(self.id.as_raw_nonzero().get()).is_none_or(|(state, _)| "TtZX".contains(state))
    }

    fn ends(&self) -> bool {
        let limit = LONGEST_WAIT.try_into().expect("it is short");
        poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&limit)) == Ok(1)
    }
}

fn signal_all(subprocesses: &[Subprocess], signal: Signal) {
    for subprocess in subprocesses {
        subprocess.signal(signal);
    }
}

/// The state of a process and its parent.
fn state_of(process: i32) -> Option<(char, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Before them stands the name, in brackets, with anything in it.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// A process that kills the stopped children of a postmaster when this process ends.
///
/// The postmaster is killed with this process, and its children see that and end, unless they are stopped.
#[derive(Debug)]
struct Undertaker(Child);

impl Undertaker {
    fn of(subprocesses: &[Subprocess]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", r#"read -r line || kill -KILL "$@""#, "sh"]);
        command.args(subprocesses.iter().map(|subprocess| subprocess.id.as_raw_nonzero().to_string()));
        // In a group of its own, it is not killed with this process.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("sh can be started"))
    }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            // One that was killed is not there to be told.
            drop(input.write_all(b"\n"));
        }
        drop(self.0.wait());
    }
}

/// Longer than a server takes that does not save anything; then something hangs.
const LONGEST_HASTE: Duration = Duration::from_secs(10);
