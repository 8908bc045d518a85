//! `fencepost doctor`: looks at the servers behind the locks and the fences, and says what weakens a promise.
//!
//! Invariant: each is looked at beside the others and within a bound, so that one that hangs costs no other its finding.

mod looking;
mod report;
mod target;

use super::place::fail;
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

use looking::look_at_all;
use report::Report;
use target::targets;

/// Looks at what is asked for; exit 1 when something serious was found.
pub(crate) fn doctor(global: &Global, args: &args::Doctor, printer: Printer) -> Exit {
    let targets = match targets(global, args, printer) {
        Ok(targets) => targets,
        Err(exit) => return exit,
    };
    let outcomes = match look_at_all(&targets, printer) {
        Ok(outcomes) => outcomes,
        Err(error) => return fail(&error, printer),
    };
    let report = Report::new(&targets, outcomes);
    if global.json {
        printer.data(&serde_json::to_string(&report).expect("a report is plain data"));
    } else {
        for line in report.lines() {
            printer.data(&line);
        }
    }
    if report.is_serious() { Exit::SERIOUS } else { Exit::OK }
}
