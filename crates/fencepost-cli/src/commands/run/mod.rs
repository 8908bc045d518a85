//! `fencepost run`: a command under a lock.
//!
//! The order is: read everything, block signals, fork the guardian, get the locks, start the command, watch, wait until
//! nothing of it is left, give the locks back, report.

mod journal;
mod metrics;
mod outcome;
mod plan;
mod release;
mod slots;
#[cfg(feature = "otlp")]
mod spans;
mod stamps;
mod wait;
mod watch;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use fencepost::{Clock, Error, ErrorKind, Lease, Lock, LockName, Moment, Period, Result, block_on, until};

use journal::{Journal, Reporter};
use outcome::{Ending, Granted, Outcome, Report, Times};
use plan::Plan;
use wait::Waited;
use watch::{Watch, earliest};

use crate::args::{Global, OnLost, Run};
use crate::child::{GiveBack, Guardian, Inbox, Signals, Start, Terminal, ToGuardian};
use crate::exit::Exit;
use crate::printer::Printer;

use super::patience::explain_contention;
use super::place::fail;

/// Runs a command under its locks.
pub(crate) fn run(global: &Global, args: &Run, printer: Printer) -> Exit {
    match prepare(global, args, printer) {
        Err(exit) => exit,
        Ok((plan, journal)) => {
            Job { args, plan, journal, printer, grants: Vec::new(), times: Times::default() }
                .run()
                .unwrap_or_else(|error| {
                    printer.error(format_args!("the system refuses what a run needs: {error}"));
                    Exit::UNAVAILABLE
                })
        }
    }
}

fn prepare(global: &Global, args: &Run, printer: Printer) -> Result<(Plan, Journal), Exit> {
    let plan = Plan::new(global, args, printer)?;
    let journal = Journal::open(args, &plan, printer)?;
    Ok((plan, journal))
}

/// How long the end of a run waits for the clean-up of a wait that was ended. With a backend that is silent, Ctrl-C and the
/// end of `--wait` take that long.
const SETTLE_MOST: Duration = Duration::from_millis(500);

/// One run.
struct Job<'a> {
    args: &'a Run,
    plan: Plan,
    journal: Journal,
    printer: Printer,
    grants: Vec<Granted>,
    times: Times,
}

impl Job<'_> {
    fn run(mut self) -> io::Result<Exit> {
        let signals = Signals::block()?;
        let terminal = Terminal::find();
        let (guardian, channel) = Guardian::fork(&self.args.command, &signals, &terminal)?;
        let inbox = Inbox::new(channel, &signals)?;
        #[cfg(feature = "otlp")]
        let export = spans::begin(self.printer);
        let ending = self.hold(&guardian, &inbox, &terminal)?;
        guardian.dismiss();
        self.settle();
        #[cfg(feature = "otlp")]
        spans::finish(export, self.printer);
        let report = Report::new(&self.plan, &self.grants, &ending, &self.times);
        self.journal.report(&report);
        self.journal.count(&ending, &self.times);
        Ok(ending.exit)
    }

    fn hold(&mut self, guardian: &Guardian, inbox: &Inbox, terminal: &Terminal) -> io::Result<Ending> {
        let clock = Clock::system();
        let asked_at = clock.now();
        let reporter = Arc::new(Reporter::new(inbox.bell()));
        let locks = match self.locks(&reporter) {
            Ok(locks) => locks,
            Err(error) => return Ok(Ending::new(Outcome::Unavailable, fail(&error, self.printer))),
        };
        let mut pending = Vec::new();
        let waited = self.wait(&locks, inbox, &mut pending, &reporter)?;
        self.times.waited = clock.now().since(asked_at);
        let leases = match waited {
            Waited::Granted(leases) => leases,
            other => return Ok(self.not_granted(&other)),
        };
        let granted_at = clock.now();
        self.acquired(&leases);
        let ending = match self.start(inbox, &leases, &pending) {
            Err(ending) => ending,
            Ok(grace) => {
                let stop_at = self.args.max_runtime.map(|limit| granted_at.after(limit));
                let watch = self.watch(guardian, inbox, terminal, &leases, &reporter);
                Watch { stop_at, grace, ..watch }.run()
            }
        };
        let ending = self.release(inbox, leases, ending);
        self.times.held = Some(clock.now().since(granted_at));
        Ok(ending)
    }

    fn watch<'a>(
        &'a mut self,
        guardian: &'a Guardian,
        inbox: &'a Inbox,
        terminal: &'a Terminal,
        leases: &'a [Lease],
        reporter: &'a Reporter,
    ) -> Watch<'a> {
        Watch {
            command: &self.args.command,
            guardian,
            inbox,
            terminal,
            leases,
            reporter,
            journal: &mut self.journal,
            printer: self.printer,
            on_lost: self.args.on_lost,
            stop_at: None,
            max_runtime: self.args.max_runtime,
            grace: Duration::ZERO,
            overdue_at: None,
            group: None,
            lost: None,
            timed_out: false,
            was_asked_to_end: false,
        }
    }

    /// Waits until what was dropped on the way has been given back, but not for a store that does not answer.
    fn settle(&self) {
        let clock = Clock::system();
        let give_up_at = Some(clock.now().after(SETTLE_MOST));
        if block_on(until(&clock, give_up_at, clock.settled())).is_none() {
            self.printer
                .warn("the backend did not confirm that all was given back; the ttl bounds what is left");
        }
    }

    fn locks(&self, reporter: &Arc<Reporter>) -> Result<Vec<Lock>> {
        let lock = |target: &plan::Target| {
            let observer: Arc<dyn fencepost::Observer> = Arc::<Reporter>::clone(reporter);
            let lock = target.lock(self.args, self.plan.explicit_grace(), observer);
            #[cfg(feature = "otlp")]
            let lock = lock.map(spans::observed);
            lock
        };
        self.plan.targets.iter().map(lock).collect()
    }

    fn wait(
        &mut self,
        locks: &[Lock],
        inbox: &Inbox,
        pending: &mut Vec<i32>,
        reporter: &Reporter,
    ) -> io::Result<Waited> {
        self.plan.announce(self.printer);
        for target in &self.plan.targets {
            self.journal.event("waiting", &target.name, None, None);
        }
        let patience = self.plan.patience(self.args.no_wait, &Clock::system());
        let (printer, journal) = (self.printer, &mut self.journal);
        let noticed = |lock: &LockName, what: &str| {
            journal.event("noticed", lock, None, Some(what));
            printer.warn(format_args!("{lock}: {what}"));
        };
        wait::wait(&self.plan, locks, patience, inbox, pending, printer, reporter.notices(noticed))
    }

    fn not_granted(&mut self, waited: &Waited) -> Ending {
        let ending = match waited {
            Waited::Interrupted(signal) => Ending::new(Outcome::Interrupted, Exit::signalled(*signal)),
            Waited::Failed(error) => {
                self.explain_failure(error);
                let ending = Ending::failed(error, Exit(self.args.conflict_exit_code));
                if self.plan.is_misconfigured(error) {
                    Ending { exit: Exit::CONFIG, ..ending }
                } else {
                    ending
                }
            }
            Waited::Granted(_) | Waited::GuardianGone => {
                self.printer.error("the guardian has died; the command was not started");
                Ending::lost("guardian_died")
            }
        };
        let is_done = ending.outcome == Outcome::AlreadyDone;
        let event = if is_done { "already_done" } else { "not_acquired" };
        let slot = self.args.once_per.as_ref().filter(|_| is_done).map(Period::as_str);
        for target in &self.plan.targets {
            self.journal.event(event, &target.name, None, slot);
        }
        ending
    }

    fn explain_failure(&self, error: &Error) {
        match error.kind() {
            // Whoever runs jobs by the clock does not want to hear of it.
            ErrorKind::AlreadyDone => self.printer.detail(error),
            ErrorKind::Contended => explain_contention(&self.plan.locks(), error, self.printer),
            _ => self.printer.failure(error),
        }
    }

    fn acquired(&mut self, leases: &[Lease]) {
        self.grants = leases.iter().map(Granted::of).collect();
        for lease in leases {
            let grant = Some((lease.token(), lease.holder()));
            self.journal.event("acquired", lease.lock(), grant, None);
            self.printer.detail(format_args!("{} is held, token {}", lease.lock(), lease.token()));
        }
        self.journal.acquired();
    }

    /// Has the guardian start the command. A guardian that is gone is seen by whoever watches.
    fn start(&self, inbox: &Inbox, leases: &[Lease], pending: &[i32]) -> Result<Duration, Ending> {
        let grace = self.grace(leases)?;
        let descriptors = leases.iter().flat_map(Lease::descriptors);
        let (fds, inheritable): (Vec<_>, _) =
            descriptors.map(|one| (one.fd.as_fd(), one.inheritable)).unzip();
        let start = Start {
            environment: self.environment(leases),
            deadline: earliest(leases).moment().map(Moment::as_nanos),
            grace_ms: super::state::milliseconds(grace),
            only_warn: self.args.on_lost == OnLost::Warn,
            inheritable,
            give_back: self.give_back(leases),
        };
        match inbox.channel().send(&ToGuardian::Start(start), &fds) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.printer.error(format_args!("the command cannot be started: {error}"));
                return Err(Ending::new(Outcome::Unavailable, Exit::UNAVAILABLE));
            }
            _ => {}
        }
        for signal in pending {
            let _ = inbox.channel().send(&ToGuardian::Signal(*signal), &[]);
        }
        Ok(grace)
    }

    /// The time between SIGTERM and SIGKILL, by the leases that were really granted, if they are still believed in.
    fn grace(&self, leases: &[Lease]) -> Result<Duration, Ending> {
        if let Some(error) = leases.iter().find_map(|lease| lease.check().err()) {
            self.printer.failure(&error);
            return Err(Ending::lost(outcome::reason(&error)));
        }
        let assured = leases.iter().filter_map(Lease::assured).min();
        self.plan
            .grace(assured)
            .map_err(|error| Ending::new(Outcome::Unavailable, fail(&error, self.printer)))
    }

    fn give_back(&self, leases: &[Lease]) -> Vec<GiveBack> {
        let targets = self.plan.targets.iter().zip(leases);
        let give_back = targets.filter_map(|(target, lease)| {
            let url = target.place.url.expose().to_owned();
            lease.handover().map(|handover| GiveBack { url, handover: handover.clone() })
        });
        give_back.collect()
    }

    /// What the command learns, over any inherited value.
    fn environment(&self, leases: &[Lease]) -> Vec<(String, Option<String>)> {
        let (first, target) = (&leases[0], &self.plan.targets[0]);
        let several = (leases.len() > 1).then(|| {
            let one = |lease: &Lease| {
                let (lock, token, holder) = (lease.lock(), lease.token(), lease.holder());
                serde_json::json!({ "lock": lock, "token": token, "holder": holder })
            };
            leases.iter().map(one).collect::<serde_json::Value>().to_string()
        });
        let stamps = self.plan.stamps.as_ref();
        let postgres = stamps
            .map(|stamps| (stamps::VARIABLE.to_owned(), Some(stamps.with(leases.iter().map(Lease::stamp)))));
        let environment = [
            ("FENCEPOST_LOCK".to_owned(), Some(first.lock().to_string())),
            ("FENCEPOST_TOKEN".to_owned(), Some(first.token().to_string())),
            ("FENCEPOST_HOLDER".to_owned(), Some(first.holder().to_string())),
            ("FENCEPOST_BACKEND_KIND".to_owned(), Some(target.place.url.kind().to_owned())),
            ("FENCEPOST_TOKENS".to_owned(), several),
            ("FENCEPOST_SLOT".to_owned(), slots::number(&target.name, first.lock()).map(ToOwned::to_owned)),
        ];
        environment.into_iter().chain(postgres).collect()
    }
}
