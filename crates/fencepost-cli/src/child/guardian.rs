//! The guardian: parent of the command, and its end when the runner cannot bring it about.
//!
//! It waits for the grant, starts the command, and then only listens: to the runner, to signals and to a timer. It ends
//! the command's whole tree when told so, when the deadline comes near, or when the runner is gone. Invariant: it closes
//! the lock's descriptors only when nothing of the command is left.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost::{Clock, Moment};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::KILL_MARGIN;
use super::alarm::Alarm;
use super::channel::{Channel, Ended, ExitStatus, GiveBack, Received, Start, ToGuardian, ToRunner};
use super::signals::{Asks, SignalReader, Signals, meaning};
use super::spawn::spawn;
use super::terminal::{Terminal, wants_terminal};
use super::tree;
use crate::exit::Exit;

/// How long a process may outlive the command before the user is told.
const LINGERING_AFTER: Duration = Duration::from_secs(1);

/// Waits for the runner's grant, runs the command, and returns when nothing of it is left.
pub(super) fn watch_over(
    command: &[OsString],
    channel: Channel,
    signals: &Signals,
    terminal: &Terminal,
) -> Exit {
    std::panic::set_hook(Box::new(|_| {
        tree::kill_all_but(&[], |_| {});
        Exit::BUG.leave()
    }));
    let prepared = rustix::process::setpgid(None, None)
        .and_then(|()| rustix::process::set_child_subreaper(Some(rustix::process::getpid())));
    let (Ok(()), Ok(reader), Ok(alarm)) = (prepared, signals.open(), Alarm::new()) else { return Exit::BUG };
    let Some((start, descriptors)) = await_start(&channel) else { return Exit::OK };
    if descriptors.len() != start.inheritable.len() {
        // Without them the lock would not outlive the runner.
        return Exit::BUG;
    }
    if is_too_late(&start) {
        // Both processes may have been stopped between the grant and now.
        drop(descriptors);
        let status = ExitStatus::Signal(libc::SIGTERM);
        return leave_word(&channel, &ToRunner::Ended(Ended { status, by_deadline: true }));
    }
    match spawn(command, &start, &descriptors, signals, terminal) {
        Ok(pid) => {
            let leader = Leader { pid, ended: None, is_reaped: false, is_stopped: false };
            let watch = Watch {
                channel,
                signals: reader,
                mask: signals,
                alarm,
                terminal,
                leader,
                deadline: start.deadline.map(Moment::from_nanos),
                start,
                descriptors,
                course: Course::Watching,
                runner_is_gone: false,
                by_deadline: false,
                told_lingering: false,
            };
            watch.run()
        }
        Err(error) => {
            drop(descriptors);
            let number = error.raw_os_error().unwrap_or(libc::EINVAL);
            leave_word(&channel, &ToRunner::NotStarted(number))
        }
    }
}

/// The last message, which the runner must get, and then the end.
fn leave_word(channel: &Channel, word: &ToRunner) -> Exit {
    channel.send_surely(word);
    Exit::OK
}

/// Whether the command would have to be asked to end at once.
fn is_too_late(start: &Start) -> bool {
    end_at(start, start.deadline.map(Moment::from_nanos)).is_some_and(|at| Clock::system().now() >= at)
}

/// When the command must be asked to end, so that it can be made to before the deadline.
fn end_at(start: &Start, deadline: Option<Moment>) -> Option<Moment> {
    let deadline = deadline.filter(|_| !start.only_warn)?;
    Some(deadline.before(KILL_MARGIN).before(Duration::from_millis(start.grace_ms)))
}

/// The grant; `None` if the runner ends without one, or before the command is started.
fn await_start(channel: &Channel) -> Option<(Start, Vec<OwnedFd>)> {
    loop {
        let mut source = [PollFd::new(channel, PollFlags::IN)];
        let _ = poll(&mut source, None);
        match channel.receive() {
            Received::Message(..) if source[0].revents().contains(PollFlags::HUP) => return None,
            Received::Message(ToGuardian::Start(start), descriptors) => return Some((start, descriptors)),
            Received::Message(..) | Received::Nothing => {}
            Received::Gone => return None,
        }
    }
}

/// What the guardian is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// The command runs.
    Watching,
    /// It was asked to end, and is made to at that moment.
    Ending { kill_at: Moment },
    /// It is being killed, since that moment.
    Killing { since: Moment, told: bool },
}

/// The command itself: the first process of its group.
struct Leader {
    pid: Pid,
    /// How it has ended, and when that was seen.
    ended: Option<(ExitStatus, Moment)>,
    is_reaped: bool,
    /// The runner was told of a stop, and has not answered that the job goes on.
    is_stopped: bool,
}

impl Leader {
    /// The signal that has stopped it, or what it has left behind in its group.
    fn was_stopped(&self) -> Option<i32> {
        match self {
            Self { is_stopped: true, .. } | Self { is_reaped: true, .. } => None,
            Self { ended: None, pid, .. } => tree::was_stopped(*pid),
            Self { pid, .. } => tree::was_group_stopped(*pid),
        }
    }
}

struct Watch<'a> {
    channel: Channel,
    signals: SignalReader,
    /// The signal mask of the process, and the one that it was started with.
    mask: &'a Signals,
    alarm: Alarm,
    terminal: &'a Terminal,
    leader: Leader,
    start: Start,
    descriptors: Vec<OwnedFd>,
    deadline: Option<Moment>,
    course: Course,
    runner_is_gone: bool,
    by_deadline: bool,
    told_lingering: bool,
}

impl Watch<'_> {
    fn run(mut self) -> Exit {
        self.tell(&ToRunner::Started(self.leader.pid.as_raw_pid()));
        loop {
            // The clock is read before the messages: after a stop at any point here, a new deadline is heard of before
            // the old one is acted on. And the signals are read before the children are looked at: what ends after
            // that look leaves a signal that ends the sleep.
            let now = Clock::system().now();
            self.listen();
            self.look_at_leader();
            if let Some(status) = self.finished() {
                return self.finish(status);
            }
            self.act(now);
            self.sleep(self.next_act(now));
        }
    }

    fn tell(&self, message: &ToRunner) {
        // A runner that is gone or stopped is not waited for.
        let _ = self.channel.send(message, &[]);
    }

    fn look_at_leader(&mut self) {
        if self.leader.ended.is_none() && tree::has_ended(self.leader.pid) {
            // The status is read without reaping, so that the pid, and with it the group, stays the command's.
            self.leader.ended = Some((tree::peek(self.leader.pid), Clock::system().now()));
            // From now on Ctrl-Z must reach the runner: what is left may have gone to another group.
            self.terminal.take_back(self.leader.pid);
        }
        if let Some(signal) = self.leader.was_stopped() {
            self.leader_stopped(signal);
        }
    }

    /// A command that wants the terminal gets it, if it is ours to give; else the whole job stops with it.
    fn leader_stopped(&mut self, signal: i32) {
        if wants_terminal(signal) && !self.runner_is_gone && self.terminal.hand_over(self.leader.pid) {
            return self.signal_group(Signal::CONT);
        }
        // SIGSTOP comes from somewhere else, and is no reason to stop the renewals, unless the terminal is stuck with it.
        let from_terminal = signal != libc::SIGSTOP || self.terminal.belongs_to(self.leader.pid);
        if from_terminal && self.terminal.exists() {
            self.tell_stopped(signal);
        }
    }

    fn tell_stopped(&mut self, signal: i32) {
        self.leader.is_stopped = true;
        self.tell(&ToRunner::Stopped(signal));
    }

    /// How the command has ended, once nothing of it is left.
    fn finished(&mut self) -> Option<ExitStatus> {
        let kept = if self.leader.is_reaped { &[][..] } else { &[self.leader.pid][..] };
        // Also while the command runs: it may leave many children to this process.
        let is_any_left = tree::reap_all_but(kept);
        let (status, _) = self.leader.ended.filter(|_| !is_any_left)?;
        if !self.leader.is_reaped {
            self.terminal.take_back(self.leader.pid);
            tree::reap(self.leader.pid);
            self.leader.is_reaped = true;
        }
        (!tree::has_children()).then_some(status)
    }

    /// Closes the lock and says so. The runner gives the lease back and ends this process; if it ends before that, the
    /// lease is given back here.
    fn finish(mut self, status: ExitStatus) -> Exit {
        self.descriptors.clear();
        self.channel.send_surely(&ToRunner::Ended(Ended { status, by_deadline: self.by_deadline }));
        while !self.runner_is_gone {
            let _ = poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], None);
            self.runner_is_gone = matches!(self.channel.receive::<ToGuardian>(), Received::Gone);
        }
        give_back(&self.start.give_back, self.mask);
        Exit::OK
    }

    /// Does what is due.
    fn act(&mut self, now: Moment) {
        match self.course {
            Course::Watching if self.end_at().is_some_and(|at| now >= at) => {
                self.by_deadline = true;
                self.end(now);
            }
            Course::Ending { kill_at } if now >= kill_at => {
                self.course = Course::Killing { since: now, told: false };
                self.kill();
            }
            Course::Killing { since, told } => {
                self.kill();
                if !told && now.since(since) >= tree::UNKILLABLE_AFTER {
                    self.course = Course::Killing { since, told: true };
                    self.tell(&ToRunner::Unkillable(tree::pids(&tree::alive())));
                }
            }
            Course::Watching | Course::Ending { .. } => self.tell_lingering(now),
        }
    }

    fn tell_lingering(&mut self, now: Moment) {
        if !self.told_lingering && self.lingering_at().is_some_and(|at| now >= at) {
            self.told_lingering = true;
            self.tell(&ToRunner::Lingering(tree::pids(&tree::alive())));
        }
    }

    fn next_act(&self, now: Moment) -> Option<Moment> {
        let lingering = self.lingering_at().filter(|_| !self.told_lingering);
        let course = match self.course {
            Course::Watching => self.end_at(),
            Course::Ending { kill_at } => Some(kill_at),
            Course::Killing { told, .. } => Some(now.after(tree::KILL_ROUNDS[usize::from(told)])),
        };
        lingering.into_iter().chain(course).min()
    }

    fn lingering_at(&self) -> Option<Moment> {
        self.leader.ended.map(|(_, at)| at.after(LINGERING_AFTER))
    }

    fn end_at(&self) -> Option<Moment> {
        end_at(&self.start, self.deadline)
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.start.grace_ms)
    }

    /// Asks the command to end. Asked again, because the runner is gone meanwhile, it may only end sooner.
    fn end(&mut self, now: Moment) {
        let patience = match self.course {
            Course::Watching => now.after(self.grace()),
            Course::Ending { kill_at } => kill_at,
            Course::Killing { .. } => return,
        };
        let limit = self.deadline.filter(|_| !self.start.only_warn || self.runner_is_gone);
        let kill_at = limit.map_or(patience, |deadline| patience.min(deadline.before(KILL_MARGIN)));
        let is_first = self.course == Course::Watching;
        self.course = Course::Ending { kill_at };
        if is_first {
            self.signal_group(Signal::TERM);
            tree::signal_outside(self.leader.pid, Signal::TERM);
            // A stopped process would not see the signal.
            self.signal_group(Signal::CONT);
            tree::signal_outside(self.leader.pid, Signal::CONT);
        }
    }

    fn kill(&self) {
        self.signal_group(Signal::KILL);
        tree::signal_all(Signal::KILL);
        tree::kill_children();
    }

    fn signal_group(&self, signal: Signal) {
        // Once the leader is reaped, the number may mean another group.
        if !self.leader.is_reaped {
            let _ = kill_process_group(self.leader.pid, signal);
        }
    }

    fn sleep(&self, until: Option<Moment>) {
        let set = self.alarm.set(until);
        debug_assert!(set.is_ok(), "an absolute time is a valid timer");
        let sources = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.alarm, PollFlags::IN),
            PollFd::new(&self.channel, PollFlags::IN),
        ];
        // After the runner's end its socket stays readable for ever.
        let sources = &mut { sources }[..if self.runner_is_gone { 2 } else { 3 }];
        let _ = poll(sources, None);
    }

    fn listen(&mut self) {
        while let Some(signal) = self.signals.next() {
            if matches!(meaning(signal), Asks::ToEnd | Asks::ForTheCommand) {
                self.pass_on(signal);
            }
        }
        while !self.runner_is_gone {
            match self.channel.receive() {
                Received::Message(message, _) => self.obey(&message),
                Received::Nothing => return,
                Received::Gone => {
                    self.runner_is_gone = true;
                    // The shell does not wait for the command's end before it reads again.
                    self.terminal.take_back(self.leader.pid);
                    self.end(Clock::system().now());
                }
            }
        }
    }

    fn obey(&mut self, message: &ToGuardian) {
        match message {
            ToGuardian::Deadline(deadline) => self.deadline = deadline.map(Moment::from_nanos),
            ToGuardian::Signal(signal) => self.pass_on(*signal),
            ToGuardian::Stop => self.end(Clock::system().now()),
            ToGuardian::Continue => {
                self.leader.is_stopped = false;
                self.terminal.hand_over_unasked(self.leader.pid);
                self.signal_group(Signal::CONT);
            }
            ToGuardian::LeaveSession => {
                if self.terminal.leave_session().is_err() {
                    self.end(Clock::system().now());
                }
            }
            ToGuardian::Start(_) => {}
        }
    }

    fn pass_on(&mut self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            self.signal_group(signal);
        }
        if self.leader.ended.is_some() && meaning(signal) == Asks::ToStop {
            // There may be nobody left in the group whose stop could be seen.
            self.tell_stopped(signal);
        }
    }
}

/// Becomes the process that gives the leases back. The URL may contain a password, so it goes through a pipe and never
/// onto a command line.
fn give_back(leases: &[GiveBack], signals: &Signals) {
    if leases.is_empty() {
        return;
    }
    // It must be possible to end that process, and nobody may wait for its output.
    let _ = signals.restore();
    let Ok(text) = serde_json::to_vec(leases) else { return };
    let Ok(input) = memory_file(&text) else { return };
    // Nothing can be done about an error here: the ttl bounds what was not given back.
    let _ = Command::new("/proc/self/exe")
        .arg("give-back")
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .exec();
}

fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    use std::io::{Seek, Write};
    let descriptor = rustix::fs::memfd_create("fencepost", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}
