//! `fencepost status`: who holds a lock, and who waits for it.

use fencepost::Status;
use fencepost::block_on;

use super::place::{Place, fail};
use super::state::{StateView, readers, sentence, waiters};
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// Shows one lock; exit 0 when it is taken, 1 when it is free.
pub(crate) fn status(global: &Global, args: &args::Status, printer: Printer) -> Exit {
    let places = match Place::of(global, std::slice::from_ref(&args.lock), printer) {
        Ok(places) => places,
        Err(exit) => return exit,
    };
    places[0].note_missing_directory(printer);
    let look = places[0].connect().and_then(|locks| block_on(locks.inspect(args.lock.as_str())));
    let state = match look {
        Ok(state) => state,
        Err(error) => return fail(&error, printer),
    };
    if global.json {
        let view = StateView::new(&state, places[0].url.kind());
        printer.data(&serde_json::to_string(&view).expect("a state is plain data"));
    } else {
        printer.data(&sentence(&state));
        for line in readers(&state).into_iter().chain(waiters(&state)) {
            printer.data(&line);
        }
    }
    if state.status == Status::Free { Exit::FREE } else { Exit::OK }
}
