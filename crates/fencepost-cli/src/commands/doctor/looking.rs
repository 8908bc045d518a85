//! Looking at everything at the same time, each on a thread of its own.
//!
//! A thread, since a look at a directory may hang in the kernel. What has hung is left behind; the process ends soon.

use std::sync::mpsc;
use std::time::Duration;

use fencepost::{Clock, Error, ErrorKind, Examination, Moment, Result};

use super::target::Target;
use crate::printer::Printer;

/// How long a look may take before it is said that it goes on.
const QUIET_FOR: Duration = Duration::from_secs(1);

/// How long a look may take. Those of the backends are bounded more closely where a server is silent.
const LOOK_MOST: Duration = Duration::from_secs(15);

/// What each look came to, in the order of the targets.
///
/// # Errors
/// `Unavailable` when no thread can be started.
pub(super) fn look_at_all(targets: &[Target], printer: Printer) -> Result<Vec<Result<Examination>>> {
    let clock = Clock::system();
    let (sender, arrived) = mpsc::channel();
    for (index, target) in targets.iter().enumerate() {
        let (target, sender) = (target.clone(), sender.clone());
        // Whoever asked may have given up.
        let look = move || drop(sender.send((index, target.examine())));
        let started = std::thread::Builder::new().name("fencepost-doctor".to_owned()).spawn(look);
        started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "look at the servers", "no thread can be started")
                .caused_by(error)
        })?;
    }
    let begun = clock.now();
    let mut outcomes: Vec<Option<Result<Examination>>> = targets.iter().map(|_| None).collect();
    gather(&arrived, &mut outcomes, begun.after(QUIET_FOR), &clock);
    for (target, _) in targets.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_none()) {
        printer.note(format_args!("still looking at {}", target.place()));
    }
    gather(&arrived, &mut outcomes, begun.after(LOOK_MOST), &clock);
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(silent()))).collect())
}

/// Takes what arrives until everything is there, or time is up.
fn gather(
    arrived: &mpsc::Receiver<(usize, Result<Examination>)>,
    outcomes: &mut [Option<Result<Examination>>],
    end: Moment,
    clock: &Clock,
) {
    while outcomes.iter().any(Option::is_none) {
        let left = end.since(clock.now());
        let Ok((index, outcome)) = arrived.recv_timeout(left) else { return };
        outcomes[index] = Some(outcome);
    }
}

fn silent() -> Error {
    let what = format!("the look has not ended within {LOOK_MOST:?}");
    Error::new(ErrorKind::Unavailable, "look at it", what)
}
