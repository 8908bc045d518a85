//! `fencepost run`: a command under a lock.
//!
//! The order is: read everything, block signals, fork the guardian, get the locks, start the command, watch, wait until
//! nothing of it is left, give the locks back, report.

mod acquire;
mod journal;
mod outcome;
mod plan;
mod watch;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use fencepost::{Clock, ErrorKind, FencingToken, HolderId, Lease, Lock, Result, release_all};
use futures_executor::block_on;

use acquire::Waited;
use journal::{Journal, Reporter};
use outcome::{Ending, Outcome, Report, Times};
use plan::Plan;
use watch::{Watch, earliest};

use crate::args::{Global, OnLost, Run};
use crate::child::{GiveBack, Guardian, Inbox, Signals, Start, Terminal, ToGuardian};
use crate::exit::Exit;
use crate::printer::Printer;

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
    let journal = Journal::open(args, printer)?;
    Ok((plan, journal))
}

/// One run.
struct Job<'a> {
    args: &'a Run,
    plan: Plan,
    journal: Journal,
    printer: Printer,
    grants: Vec<(FencingToken, HolderId)>,
    times: Times,
}

impl Job<'_> {
    fn run(mut self) -> io::Result<Exit> {
        let signals = Signals::block()?;
        let terminal = Terminal::find();
        let (guardian, channel) = Guardian::fork(&self.args.command, &signals, &terminal)?;
        let inbox = Inbox::new(channel, &signals)?;
        let ending = self.hold(&guardian, &inbox, &terminal)?;
        guardian.dismiss();
        let report = Report::new(&self.plan, &self.grants, &ending, &self.times);
        self.journal.report(&report);
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
        let waited = self.wait(&locks, inbox, &mut pending)?;
        self.times.waited = clock.now().since(asked_at);
        let leases = match waited {
            Waited::Granted(leases) => leases,
            other => return Ok(self.not_granted(&other)),
        };
        let granted_at = clock.now();
        self.acquired(&leases);
        self.start(inbox, &leases, &pending)?;
        let watch = Watch {
            command: &self.args.command,
            guardian,
            inbox,
            terminal,
            leases: &leases,
            reporter: &reporter,
            journal: &mut self.journal,
            printer: self.printer,
            on_lost: self.args.on_lost,
            stop_at: self.args.max_runtime.map(|limit| granted_at.after(limit)),
            max_runtime: self.args.max_runtime,
            group: None,
            lost: None,
            timed_out: false,
        };
        let ending = watch.run()?;
        let ending = self.release(leases, ending);
        self.times.held = Some(clock.now().since(granted_at));
        Ok(ending)
    }

    fn locks(&self, reporter: &Arc<Reporter>) -> Result<Vec<Lock>> {
        let lock = |target: &plan::Target| {
            let observer: Arc<dyn fencepost::Observer> = Arc::<Reporter>::clone(reporter);
            target.lock(self.args, self.plan.grace, observer)
        };
        self.plan.targets.iter().map(lock).collect()
    }

    fn wait(&mut self, locks: &[Lock], inbox: &Inbox, pending: &mut Vec<i32>) -> io::Result<Waited> {
        for target in &self.plan.targets {
            target.announce(self.printer);
            self.journal.event("waiting", &target.name, None, None);
        }
        let patience = self.plan.patience(self.args.no_wait, &Clock::system());
        acquire::wait(&self.plan, locks, patience, inbox, pending, self.printer)
    }

    fn not_granted(&mut self, waited: &Waited) -> Ending {
        let ending = match waited {
            Waited::Interrupted(signal) => Ending::new(Outcome::Interrupted, Exit::signalled(*signal)),
            Waited::Failed(error) => {
                self.explain_failure(error);
                Ending::failed(error, Exit(self.args.conflict_exit_code))
            }
            Waited::Granted(_) | Waited::GuardianGone => {
                self.printer.error("the guardian has died; the command was not started");
                Ending::lost("guardian_died")
            }
        };
        for target in &self.plan.targets {
            self.journal.event("not_acquired", &target.name, None, None);
        }
        ending
    }

    fn explain_failure(&self, error: &fencepost::Error) {
        if error.kind() != ErrorKind::Contended {
            return self.printer.failure(error);
        }
        let states = block_on(acquire::taken(&self.plan));
        if states.is_empty() {
            // It was given back a moment ago.
            self.printer.failure(error);
        }
        for state in states {
            self.printer.error(format_args!("not acquired: {}", super::state::sentence(&state)));
        }
    }

    fn acquired(&mut self, leases: &[Lease]) {
        self.grants = leases.iter().map(|lease| (lease.token(), lease.holder())).collect();
        for lease in leases {
            let grant = Some((lease.token(), lease.holder()));
            self.journal.event("acquired", lease.lock(), grant, None);
            self.printer.detail(format_args!("{} is held, token {}", lease.lock(), lease.token()));
        }
    }

    fn start(&self, inbox: &Inbox, leases: &[Lease], pending: &[i32]) -> io::Result<()> {
        let descriptors = leases.iter().flat_map(Lease::descriptors);
        let (fds, inheritable) = descriptors.map(|one| (one.fd.as_fd(), one.inheritable)).unzip();
        let targets = self.plan.targets.iter().zip(leases);
        let give_back = targets.filter_map(|(target, lease)| {
            let url = target.place.url.expose().to_owned();
            lease.handover().map(|handover| GiveBack { url, handover: handover.clone() })
        });
        let start = Start {
            environment: self.environment(leases),
            deadline: earliest(leases).moment().map(fencepost::Moment::as_nanos),
            grace_ms: super::state::milliseconds(self.plan.grace),
            only_warn: self.args.on_lost == OnLost::Warn,
            inheritable,
            give_back: give_back.collect(),
        };
        let fds: Vec<_> = fds;
        inbox.channel().send(&ToGuardian::Start(start), &fds)?;
        pending.iter().try_for_each(|signal| inbox.channel().send(&ToGuardian::Signal(*signal), &[]))
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
        vec![
            ("FENCEPOST_LOCK".to_owned(), Some(first.lock().to_string())),
            ("FENCEPOST_TOKEN".to_owned(), Some(first.token().to_string())),
            ("FENCEPOST_HOLDER".to_owned(), Some(first.holder().to_string())),
            ("FENCEPOST_BACKEND_KIND".to_owned(), Some(target.place.url.kind().to_owned())),
            ("FENCEPOST_TOKENS".to_owned(), several),
        ]
    }

    /// Gives the locks back. A lease that turns out to be lost means that the command may have overlapped.
    fn release(&mut self, leases: Vec<Lease>, ending: Ending) -> Ending {
        let names: Vec<_> = leases.iter().map(|lease| lease.lock().clone()).collect();
        let errors = block_on(release_all(leases));
        for (name, grant) in names.iter().zip(self.grants.clone()) {
            self.journal.event("released", name, Some(grant), None);
        }
        if ending.outcome == Outcome::Lost {
            return ending;
        }
        for error in &errors {
            self.printer.failure(error);
        }
        let lost = errors.iter().find(|error| error.kind() == ErrorKind::Lost);
        lost.map_or(ending, |error| Ending::lost(outcome::reason(error)))
    }
}
