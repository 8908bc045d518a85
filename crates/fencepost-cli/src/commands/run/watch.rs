//! Holding: passing on signals and deadlines while the command runs, until nothing of it is left.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use fencepost::{Clock, Deadline, Error, Event, Lease, LossReason, Moment};
use futures_util::future::select_all;
use rustix::process::Pid;

use super::journal::{Journal, Reporter};
use super::outcome::{Ending, Outcome, reason};
use crate::args::OnLost;
use crate::child::{
    Asks, BACKSTOP_MARGIN, Ended, ExitStatus, Guardian, Heard, Inbox, Terminal, ToGuardian, ToRunner,
    meaning, stop_this_job, wants_terminal,
};
use crate::exit::Exit;
use crate::printer::Printer;

/// How long the guardian may take beyond the grace.
const STOP_MARGIN: Duration = Duration::from_secs(2);

/// A command under watch.
pub(super) struct Watch<'a> {
    pub(super) command: &'a [OsString],
    pub(super) guardian: &'a Guardian,
    pub(super) inbox: &'a Inbox,
    pub(super) terminal: &'a Terminal,
    pub(super) leases: &'a [Lease],
    pub(super) reporter: &'a Reporter,
    pub(super) journal: &'a mut Journal,
    pub(super) printer: Printer,
    pub(super) on_lost: OnLost,
    pub(super) stop_at: Option<Moment>,
    pub(super) max_runtime: Option<Duration>,
    pub(super) grace: Duration,
    /// When the guardian must have ended the command that it was told to stop.
    pub(super) overdue_at: Option<Moment>,
    pub(super) group: Option<Pid>,
    pub(super) lost: Option<Error>,
    pub(super) timed_out: bool,
    pub(super) was_asked_to_end: bool,
}

/// How the command's tree has ended.
enum End {
    Ended(Ended),
    NotStarted(i32),
    /// The guardian could not say.
    GuardianGone,
    /// The guardian has not ended it in time, and was replaced.
    Overdue,
}

impl Watch<'_> {
    /// Watches until nothing of the command is left.
    pub(super) fn run(mut self) -> Ending {
        match self.until_end() {
            Ok(end) => Ending { was_asked_to_end: self.was_asked_to_end, ..self.ending(&end) },
            Err(error) => {
                self.replace_guardian();
                self.printer.error(format_args!("the system refuses what it takes to watch: {error}"));
                Ending::new(Outcome::Unavailable, Exit::UNAVAILABLE)
            }
        }
    }

    fn until_end(&mut self) -> io::Result<End> {
        let leases = self.leases;
        let mut lost: Pin<Box<dyn Future<Output = Error>>> =
            Box::pin(async { select_all(leases.iter().map(|lease| Box::pin(lease.lost()))).await.0 });
        loop {
            let heard = self.inbox.next(self.next_alarm(), lost.as_mut())?;
            self.note_events();
            match heard {
                Heard::Done(error) => {
                    self.lose(error);
                    lost = Box::pin(std::future::pending());
                }
                Heard::Signal(signal) => self.signal(signal),
                Heard::Message(ToRunner::Ended(ended)) => return Ok(End::Ended(ended)),
                Heard::Message(ToRunner::NotStarted(error)) => return Ok(End::NotStarted(error)),
                Heard::Message(message) => self.hear(&message),
                Heard::GuardianGone => {
                    self.replace_guardian();
                    return Ok(End::GuardianGone);
                }
                Heard::Alarm if self.backstop().is_some_and(|at| Clock::system().now() >= at) => {
                    self.replace_guardian();
                    return Ok(End::Overdue);
                }
                Heard::Alarm => self.time_out(),
                Heard::Bell => {}
            }
        }
    }

    /// The earliest deadline of the leases.
    fn deadline(&self) -> Deadline {
        earliest(self.leases)
    }

    /// When the command must have been ended by the guardian.
    fn backstop(&self) -> Option<Moment> {
        let deadline = self.deadline().moment().filter(|_| self.on_lost == OnLost::Stop);
        deadline.map(|deadline| deadline.before(BACKSTOP_MARGIN)).into_iter().chain(self.overdue_at).min()
    }

    fn next_alarm(&self) -> Option<Moment> {
        let stop_at = self.stop_at.filter(|_| !self.timed_out);
        stop_at.into_iter().chain(self.backstop()).min()
    }

    fn tell(&self, message: &ToGuardian) {
        // A guardian that cannot be told acts on what it was told before: earlier, never later.
        let _ = self.inbox.channel().send(message, &[]);
    }

    /// Has the command ended. A guardian that cannot even be told is not going to do it.
    fn stop(&mut self, why: &str) {
        if self.inbox.channel().send(&ToGuardian::Stop, &[]).is_err() {
            self.guardian.end();
        }
        self.overdue_at = Some(Clock::system().now().after(self.grace).after(STOP_MARGIN));
        self.all("stopping", Some(why));
    }

    fn lose(&mut self, error: Error) {
        let token = self.token(&error);
        if self.on_lost == OnLost::Stop {
            self.stop(reason(&error));
            self.printer.error(format_args!("{error}{token}; stopping the command"));
        } else {
            let goes_on = "the command runs on, only a fence protects from it";
            self.printer.error(format_args!("{error}{token}; {goes_on}"));
        }
        self.lost = Some(error);
    }

    /// The token of the lease that an error is about, for the end of its line.
    fn token(&self, error: &Error) -> String {
        let lease = self.leases.iter().find(|lease| error.lock() == Some(lease.lock()));
        lease.map_or_else(String::new, |lease| format!(", token {}", lease.token()))
    }

    fn time_out(&mut self) {
        if self.stop_at.is_some_and(|at| Clock::system().now() >= at) && !self.timed_out {
            self.timed_out = true;
            self.stop("max_runtime");
            let limit = humantime::format_duration(self.max_runtime.unwrap_or_default());
            self.printer.note(format_args!("the command has run for {limit}; stopping it"));
        }
    }

    fn signal(&mut self, signal: i32) {
        match meaning(signal) {
            Asks::ToEnd => {
                self.was_asked_to_end = true;
                self.tell(&ToGuardian::Signal(signal));
            }
            // The job stops when the command has done so.
            Asks::ForTheCommand | Asks::ToStop => self.tell(&ToGuardian::Signal(signal)),
            Asks::ToContinue => self.tell(&ToGuardian::Continue),
            Asks::Nothing => {}
        }
    }

    fn hear(&mut self, message: &ToRunner) {
        match message {
            ToRunner::Started(group) => self.group = Pid::from_raw(*group),
            ToRunner::Stopped(signal) => self.stop_job(*signal),
            ToRunner::Lingering(pids) => {
                let pids = numbers(pids);
                self.printer
                    .note(format_args!("the command has ended; the lock is still held, by its pid {pids}"));
                self.all("lingering", Some(&pids));
            }
            ToRunner::Unkillable(pids) => self.unkillable(pids),
            ToRunner::Ended(_) | ToRunner::NotStarted(_) => {}
        }
    }

    fn unkillable(&mut self, pids: &[i32]) {
        let pids = numbers(pids);
        self.printer.error(format_args!("SIGKILL has not ended pid {pids}; the lock is not given back"));
        self.all("unkillable", Some(&pids));
    }

    fn replace_guardian(&mut self) {
        let (guardian, group) = (self.guardian, self.group);
        guardian.replace(group, |pids| self.unkillable(pids));
    }

    /// The command was stopped, as by Ctrl-Z: the shell gets its terminal back, and the job stops until the shell
    /// continues it.
    fn stop_job(&mut self, signal: i32) {
        if let Some(group) = self.group {
            self.terminal.take_back(group);
        }
        stop_this_job(signal);
        let arrived = self.inbox.signals();
        let is_continued = arrived.iter().any(|signal| meaning(*signal) == Asks::ToContinue);
        if wants_terminal(signal) && !is_continued {
            // There is no shell. It would be stopped again as soon as it is continued, for ever.
            self.tell(&ToGuardian::LeaveSession);
        }
        self.tell(&ToGuardian::Continue);
        for signal in arrived {
            if matches!(meaning(signal), Asks::ToEnd | Asks::ForTheCommand) {
                self.signal(signal);
            }
        }
    }

    fn note_events(&mut self) {
        for (lock, event) in self.reporter.take() {
            let grant = self.leases.iter().find(|lease| *lease.lock() == lock);
            let grant = grant.map(|lease| (lease.token(), lease.holder()));
            match event {
                Event::Renewed { .. } => {
                    let deadline = self.deadline().moment().map(Moment::as_nanos);
                    self.tell(&ToGuardian::Deadline(deadline));
                    self.journal.event("renewed", &lock, grant, None);
                }
                Event::RenewFailed { error } => {
                    self.journal.event("renew_failed", &lock, grant, Some(&error.to_string()));
                    self.printer.detail(format_args!("{lock}: a renewal has failed: {error}"));
                }
                Event::Noticed { what } => {
                    self.journal.event("noticed", &lock, grant, Some(&what));
                    self.printer.warn(format_args!("{lock}: {what}"));
                }
                Event::Lost { error } => self.journal.event("lost", &lock, grant, Some(reason(&error))),
                _ => {}
            }
        }
    }

    fn all(&mut self, event: &str, detail: Option<&str>) {
        for lease in self.leases {
            self.journal.event(event, lease.lock(), Some((lease.token(), lease.holder())), detail);
        }
    }

    fn ending(&mut self, end: &End) -> Ending {
        let (status, by_deadline) = match end {
            End::NotStarted(error) => return self.not_started(*error),
            End::GuardianGone => {
                return self.replaced("guardian_died", "the guardian of the command has died");
            }
            End::Overdue => return self.overdue(),
            End::Ended(ended) => (ended.status, ended.by_deadline),
        };
        if let Some(error) = self.lost.take() {
            return Ending::lost(reason(&error));
        }
        if let Some(error) = self.leases.iter().find_map(|lease| lease.check().err()) {
            // It was not heard of in time, because the job was stopped or because it has only just happened.
            self.printer.error(format_args!("{error}{}", self.token(&error)));
            return Ending::lost(reason(&error));
        }
        if by_deadline {
            self.printer.error(format_args!("{}; the command was stopped", self.not_renewed()));
            return Ending::lost("deadline");
        }
        match status {
            _ if self.timed_out => Ending::new(Outcome::TimedOut, Exit::TIMED_OUT),
            ExitStatus::Code(code) => Ending::new(Outcome::Ran, Exit(u8::try_from(code).unwrap_or(u8::MAX))),
            ExitStatus::Signal(signal) => Ending::new(Outcome::Ran, Exit::signalled(signal)),
        }
    }

    /// What is said where the command was ended because the first of the deadlines came near.
    fn not_renewed(&self) -> String {
        let first = self.leases.iter().min_by_key(|lease| lease.deadline().moment());
        let error = Error::lost(LossReason::Deadline, "it could not be renewed in time");
        let error = first.map_or(error.clone(), |lease| error.on(lease.lock()));
        format!("{error}{}", self.token(&error))
    }

    fn not_started(&self, error: i32) -> Ending {
        let program = self.command[0].to_string_lossy();
        self.printer
            .error(format_args!("cannot execute {program:?}: {}", io::Error::from_raw_os_error(error)));
        if error == libc::ENOENT {
            self.why_not_found(&program);
        }
        let exit = if error == libc::ENOENT { Exit::NOT_FOUND } else { Exit::CANNOT_EXECUTE };
        Ending::new(Outcome::Ran, exit)
    }

    fn why_not_found(&self, program: &str) {
        if program.contains(' ') {
            self.printer.hint(format_args!("no shell stands in between: -- sh -c '{program}'"));
        } else if !program.is_empty() && !program.contains('/') {
            self.printer.hint("no directory of PATH has it");
        } else if Path::new(&self.command[0]).exists() {
            self.printer.hint("what its first line names is not installed");
        }
    }

    fn overdue(&mut self) -> Ending {
        if self.lost.is_none() && !self.timed_out {
            self.printer.error(self.not_renewed());
        }
        let ending = self.replaced("deadline", "the guardian has not ended the command in time");
        let is_held = self.lost.is_none() && self.leases.iter().all(|lease| lease.check().is_ok());
        if self.timed_out && is_held { Ending::new(Outcome::TimedOut, Exit::TIMED_OUT) } else { ending }
    }

    /// The command was ended in the guardian's place.
    fn replaced(&mut self, why: &str, what: &str) -> Ending {
        if let Some(group) = self.group {
            self.terminal.take_back(group);
        }
        self.all("stopping", Some(why));
        self.printer.error(format_args!("{what}; the command was killed"));
        Ending::lost(why)
    }
}

/// The earliest deadline of several leases.
pub(super) fn earliest(leases: &[Lease]) -> Deadline {
    let moments = leases.iter().filter_map(|lease| lease.deadline().moment());
    moments.min().map_or(Deadline::NEVER, Deadline::at)
}

fn numbers(pids: &[i32]) -> String {
    pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}
