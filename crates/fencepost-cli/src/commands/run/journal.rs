//! What `run` leaves in writing: events as they happen, the outcome as a report, and metrics.
//!
//! All files are opened before anything is started, so that a wrong path stops nothing half-way; a write that fails
//! later is said on stderr and changes nothing else.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fencepost::{Clock, Event, FencingToken, HolderId, LockName, Observer};
use serde::Serialize;

use super::metrics::Metrics;
use super::outcome::{Ending, Times};
use super::plan::Plan;
use crate::args::Run;
use crate::child::Bell;
use crate::commands::state::time;
use crate::exit::Exit;
use crate::printer::Printer;

/// The files that a run writes.
#[derive(Debug)]
pub(super) struct Journal {
    events: Option<(PathBuf, File)>,
    report: Option<(PathBuf, File)>,
    metrics: Option<Metrics>,
    /// The lock whose slot is held, if it is one: metrics are kept for all of them together.
    whole: Option<LockName>,
    printer: Printer,
}

/// One line of the events file.
#[derive(Debug, Serialize)]
struct Line<'a> {
    at: String,
    event: &'a str,
    lock: &'a str,
    token: Option<FencingToken>,
    holder: Option<HolderId>,
    detail: Option<&'a str>,
}

impl Journal {
    /// Opens the files that the command line names.
    ///
    /// # Errors
    /// The exit code; the reason has been printed.
    pub(super) fn open(args: &Run, plan: &Plan, printer: Printer) -> Result<Self, Exit> {
        let mut appending = File::options();
        let mut replacing = File::options();
        // A pipe that nobody reads must not hold up a process that guards a command.
        appending.custom_flags(libc::O_NONBLOCK);
        replacing.custom_flags(libc::O_NONBLOCK);
        let events = open(args.events.as_deref(), appending.append(true).create(true), "--events", printer)?;
        let replacing = replacing.write(true).create(true).truncate(true);
        let report = open(args.report.as_deref(), replacing, "--report", printer)?;
        let locks = plan.targets.iter().map(|target| (&target.name, target.place.url.kind()));
        let metrics = args.metrics_file.as_deref();
        let metrics = metrics.map(|path| Metrics::open(path, locks, printer)).transpose()?;
        let whole = args.slots.map(|_| plan.targets[0].name.clone());
        Ok(Self { events, report, metrics, whole, printer })
    }

    /// Appends one event.
    pub(super) fn event(
        &mut self,
        event: &str,
        lock: &LockName,
        grant: Option<(FencingToken, HolderId)>,
        detail: Option<&str>,
    ) {
        if let Some(metrics) = &mut self.metrics {
            let named = self.whole.as_ref().unwrap_or(lock);
            metrics.event(event, named, grant.map(|(token, _)| token), detail);
        }
        let Some((path, file)) = &mut self.events else { return };
        let (token, holder) = grant.unzip();
        let at = time(Clock::system().wall_micros());
        let line = Line { at, event, lock: lock.as_str(), token, holder, detail };
        if let Err(error) = append(file, &line) {
            self.printer.warn(format_args!("cannot write {}: {error}", path.display()));
            self.events = None;
        }
    }

    /// The locks are held.
    pub(super) fn acquired(&mut self) {
        if let Some(metrics) = &mut self.metrics {
            metrics.acquired();
        }
    }

    /// Counts the run.
    pub(super) fn count(&mut self, ending: &Ending, times: &Times) {
        if let Some(metrics) = &mut self.metrics {
            metrics.ended(ending, times);
        }
    }

    /// Writes the report.
    pub(super) fn report(&mut self, report: &impl Serialize) {
        let Some((path, file)) = &mut self.report else { return };
        // Another run may have written its report into the same file meanwhile.
        let _ = file.set_len(0);
        if let Err(error) = append(file, report) {
            self.printer.warn(format_args!("cannot write {}: {error}", path.display()));
        }
    }
}

fn open(
    path: Option<&Path>,
    options: &OpenOptions,
    flag: &str,
    printer: Printer,
) -> Result<Option<(PathBuf, File)>, Exit> {
    let Some(path) = path else { return Ok(None) };
    match options.open(path) {
        Ok(file) => Ok(Some((path.to_owned(), file))),
        Err(error) => {
            printer.error(format_args!("cannot open the file of {flag}: {}: {error}", path.display()));
            Err(Exit::USAGE)
        }
    }
}

/// One line in one write, so that several runs may share a file.
fn append(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

/// Hears of renewals and losses on another thread, and keeps them for the runner.
#[derive(Debug)]
pub(super) struct Reporter {
    heard: Mutex<Vec<(LockName, Event)>>,
    bell: Arc<Bell>,
}

impl Reporter {
    pub(super) fn new(bell: Arc<Bell>) -> Self {
        Self { heard: Mutex::default(), bell }
    }

    /// What was heard since the last call.
    pub(super) fn take(&self) -> Vec<(LockName, Event)> {
        std::mem::take(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Reporter {
    /// Tells `tell` what the backend has noticed so far, at each call. What else was heard is kept for later.
    pub(super) fn notices(&self, mut tell: impl FnMut(&LockName, &str)) -> impl FnMut() {
        move || {
            let mut others = Vec::new();
            for (lock, event) in self.take() {
                match event {
                    Event::Noticed { what } => tell(&lock, &what),
                    event => others.push((lock, event)),
                }
            }
            self.heard.lock().unwrap_or_else(PoisonError::into_inner).splice(0..0, others);
        }
    }
}

impl Observer for Reporter {
    fn observe(&self, lock: &LockName, event: &Event) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push((lock.clone(), event.clone()));
        self.bell.ring();
    }
}
