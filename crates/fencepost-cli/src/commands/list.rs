//! `fencepost list`: every lock that is not free.

use fencepost::block_on;
use fencepost::{LockState, NamePrefix, Result};

use super::place::{Place, fail};
use super::state::{StateView, readers, sentence, waiters};
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// Shows the locks of the backend in use, or of every backend of the configuration.
pub(crate) fn list(global: &Global, args: &args::List, printer: Printer) -> Exit {
    let places = match Place::all(global, printer) {
        Ok(places) => places,
        Err(exit) => return exit,
    };
    for place in &places {
        place.note_missing_directory(printer);
    }
    let states = match states(&places, &args.prefix) {
        Ok(states) => states,
        Err(error) => return fail(&error, printer),
    };
    if global.json {
        let views: Vec<_> = states.iter().map(|(state, kind)| StateView::new(state, kind)).collect();
        printer.data(&serde_json::to_string(&views).expect("a state is plain data"));
        return Exit::OK;
    }
    for (state, _) in &states {
        printer.data(&sentence(state));
        for line in readers(state).into_iter().chain(waiters(state)) {
            printer.data(&line);
        }
    }
    if states.is_empty() {
        printer.note("no lock is held");
    }
    Exit::OK
}

fn states(places: &[Place], prefix: &str) -> Result<Vec<(LockState, &'static str)>> {
    let mut states = Vec::new();
    for place in places {
        let locks = place.connect()?;
        let found = block_on(locks.backend().list(&NamePrefix::new(prefix)))?;
        states.extend(found.into_iter().map(|state| (state, place.url.kind())));
    }
    states.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    Ok(states)
}
