//! `fencepost give-back`: what a guardian becomes when the runner is gone. Not for users.

use std::time::Duration;

use fencepost::block_on;
use fencepost::{Clock, Result, until};
use futures_util::future::join_all;

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
    let clock = Clock::system();
    let give_up_at = Some(clock.now().after(MOST));
    // All at once: a server that does not answer for one must not use up the time of the others.
    let all = join_all(leases.iter().map(|lease| until(&clock, give_up_at, one(lease))));
    for outcome in block_on(all) {
        match outcome {
            Some(Ok(())) => {}
            Some(Err(error)) => return Exit::from(&error),
            None => return Exit::UNAVAILABLE,
        }
    }
    Exit::OK
}

async fn one(lease: &GiveBack) -> Result<()> {
    fencepost::connect(&lease.url)?.backend().give_back(&lease.handover).await
}
