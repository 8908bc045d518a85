//! `fencepost give-back`: what a guardian becomes when the runner is gone. Not for users.

use std::time::Duration;

use fencepost::{Clock, Result, until};

use crate::child::GiveBack;
use crate::exit::Exit;
use crate::printer::Printer;

/// How long to try; the ttl bounds what was not given back by then.
const MOST: Duration = Duration::from_secs(5);

/// Reads the leases from standard input, and gives them back.
pub(crate) fn give_back(printer: Printer) -> Exit {
    let leases: Vec<GiveBack> = match serde_json::from_reader(std::io::stdin().lock()) {
        Ok(leases) => leases,
        Err(error) => {
            printer.error(format_args!("cannot read the leases to give back: {error}"));
            return Exit::USAGE;
        }
    };
    let outcomes: Vec<_> = leases.iter().map(one).collect();
    match outcomes.into_iter().find_map(Result::err) {
        None => Exit::OK,
        Some(error) => Exit::from(&error),
    }
}

fn one(lease: &GiveBack) -> Result<()> {
    let clock = Clock::system();
    let locks = fencepost::connect(&lease.url)?;
    let give_up_at = clock.now().after(MOST);
    let given = until(&clock, Some(give_up_at), locks.backend().give_back(&lease.handover));
    futures_executor::block_on(given).unwrap_or(Ok(()))
}
