//! `fencepost lab`: what really happens, on real processes and servers.

use std::fs::File;
use std::io::IsTerminal;
use std::path::Path;

use fencepost::{BackendUrl, Error, ErrorKind};
use fencepost_lab::{Cell, Fault, Pattern, Plan, Program, Record, Report, Stopped, Watch};

use super::place::fail;
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// Runs the lab, or tells one experiment of it.
pub(crate) fn lab(global: &Global, args: &args::Lab, printer: Printer) -> Exit {
    let plan = match plan(global, args) {
        Ok(plan) => plan,
        Err(error) => return fail(&error, printer),
    };
    if args.story.is_some() {
        return tell(&plan, global, printer);
    }
    if let Some(error) = args.report.as_deref().and_then(unwritable) {
        return fail(&error, printer);
    }
    let mut progress = Progress { printer, is_terminal: std::io::stderr().is_terminal() };
    let outcome = fencepost_lab::run(&plan, &mut progress);
    progress.clear();
    let report = match outcome {
        Ok(report) => report,
        Err(stopped) => return give_up(&stopped, printer),
    };
    printer.data(&if global.json { report.json() } else { fencepost_lab::table(&report) });
    if let Some(file) = &args.report {
        if let Err(error) = std::fs::write(file, fencepost_lab::page(&report)) {
            return fail(&unwritten(file, error), printer);
        }
        printer.note(format_args!("the picture is in {}", file.display()));
    }
    exit(&report)
}

/// Works as the lab says; for nobody else.
pub(crate) fn worker(printer: Printer) -> Exit {
    match fencepost_lab::work_as_told() {
        Ok(()) => Exit::OK,
        Err(why) => {
            printer.error(format_args!("a worker of the lab: {why}"));
            Exit::UNAVAILABLE
        }
    }
}

/// Removes the lab's folder when the lab is gone.
pub(crate) fn sweep(args: &args::LabSweep) -> Exit {
    fencepost_lab::sweep(&args.folder);
    Exit::OK
}

fn tell(plan: &Plan, global: &Global, printer: Printer) -> Exit {
    let mut lines = |line: &str| {
        if !global.json {
            printer.data(line);
        }
    };
    let report = match fencepost_lab::story(plan, &mut lines) {
        Ok(report) => report,
        Err(stopped) => return give_up(&stopped, printer),
    };
    if global.json {
        printer.data(&report.json());
    }
    exit(&report)
}

fn exit(report: &Report) -> Exit {
    match (report.has_run(), report.is_kept()) {
        (false, _) => Exit::UNAVAILABLE,
        (true, true) => Exit::OK,
        (true, false) => Exit::NOT_KEPT,
    }
}

fn give_up(stopped: &Stopped, printer: Printer) -> Exit {
    match stopped {
        Stopped::Failed(error) => fail(error, printer),
        Stopped::Impossible(why) => {
            printer.error(why);
            Exit::UNAVAILABLE
        }
        Stopped::Interrupted(signal) => Exit::signalled(*signal),
    }
}

fn plan(global: &Global, args: &args::Lab) -> Result<Plan, Error> {
    let own = global.backend()?;
    if args.story.is_some() && own.is_some() {
        let what = "the story has a server of its own";
        return Err(
            Error::new(ErrorKind::InvalidArgument, "tell the story", what).hint("leave --backend out")
        );
    }
    let seed = args.seed.unwrap_or_else(fencepost_lab::any_seed);
    let path = std::env::current_exe().map_err(|error| {
        Error::new(ErrorKind::Unavailable, "start workers", "the path of fencepost is not known")
            .caused_by(error)
    })?;
    let program = |name: &str| Program { path: path.clone(), arguments: vec![name.into()] };
    Ok(Plan {
        patterns: patterns(args, own.as_ref())?,
        faults: if args.faults.is_empty() { Fault::ALL.to_vec() } else { args.faults.clone() },
        seed,
        rounds: args.rounds,
        workers: WORKERS,
        own,
        program: program("lab-worker"),
        sweeper: program("lab-sweep"),
        is_simple: args.story.is_some(),
        skips_the_check: args.without_check,
    })
}

/// On servers of one's own there is one kind of lock.
fn patterns(args: &args::Lab, own: Option<&BackendUrl>) -> Result<Vec<Pattern>, Error> {
    let asked = if args.patterns.is_empty() { Pattern::all() } else { args.patterns.clone() };
    let Some(url) = own else { return Ok(asked) };
    if let Some(other) = args.patterns.iter().find(|pattern| pattern.kind.name() != url.kind()) {
        let what = format!("there is no {other} on {url}");
        return Err(Error::new(ErrorKind::InvalidArgument, "run the lab", what)
            .hint(format!("leave --backend out, or ask for {0} and {0}+fence", url.kind())));
    }
    let fitting: Vec<Pattern> =
        asked.into_iter().filter(|pattern| pattern.kind.name() == url.kind()).collect();
    if fitting.is_empty() {
        return Err(url.wrong("the lab knows no such lock"));
    }
    Ok(fitting)
}

/// Why a file cannot be written, known before the lab has run for minutes.
fn unwritable(file: &Path) -> Option<Error> {
    let opened = File::options().append(true).create(true).open(file);
    opened.err().map(|error| unwritten(file, error))
}

fn unwritten(file: &Path, error: std::io::Error) -> Error {
    let what = file.display().to_string();
    Error::new(ErrorKind::InvalidArgument, "write the picture", what).caused_by(error)
}

/// Says what goes on: on a terminal in one line that changes, else a line for each cell.
struct Progress {
    printer: Printer,
    is_terminal: bool,
}

impl Progress {
    fn clear(&self) {
        if self.is_terminal {
            self.printer.status("");
        }
    }
}

impl Watch for Progress {
    fn prepares(&mut self, what: &str) {
        if self.is_terminal {
            self.printer.status(&format!("starts {what}"));
        }
    }

    fn begins(&mut self, number: usize, count: usize, pattern: &str, fault: &str) {
        let what = format!("[{number}/{count}] {pattern} under {fault}");
        if self.is_terminal { self.printer.status(&what) } else { self.printer.note(what) }
    }

    fn saw(&mut self, _: &Record) {}

    fn strikes(&mut self, what: &str) {
        self.printer.detail(what);
    }

    fn ended(&mut self, cell: &Cell) {
        self.printer.detail(fencepost_lab::summary(cell));
    }
}

/// One works, one waits, and one waits behind it.
const WORKERS: usize = 3;
