//! `fencepost lift`: the next token of a lock is at least as great as it is told.

use fencepost::block_on;

use super::place::{Place, fail};
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// Raises the next token of a lock; its present holder is not disturbed.
pub(crate) fn lift(global: &Global, args: &args::Lift, printer: Printer) -> Exit {
    let places = match Place::of(global, std::slice::from_ref(&args.lock), printer) {
        Ok(places) => places,
        Err(exit) => return exit,
    };
    let lifted = places[0].connect().and_then(|locks| block_on(locks.lift(args.lock.as_str(), args.to)));
    match lifted {
        Ok(()) => {
            printer.detail(format_args!("{}: the next token is at least {}", args.lock, args.to));
            Exit::OK
        }
        Err(error) => fail(&error, printer),
    }
}
