//! Waiting for locks: trying again for a while where the backend cannot be reached, and saying after a second who has them.

use std::time::Duration;

use fencepost::{
    Clock, Error, ErrorKind, LockName, LockState, Locks, Result, Status, Wait, block_on, race, until,
};

use super::state::sentence;
use crate::printer::Printer;

/// After how long a wait is explained.
const EXPLAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the end of a wait asks who has the locks.
const EXPLAIN_MOST: Duration = Duration::from_millis(500);

/// How long a backend that cannot be reached is tried.
pub(super) const UNREACHABLE_FOR: Duration = Duration::from_secs(5);

/// How many of the locks, or of the slots of one, are explained.
const MOST_SHOWN: usize = 10;

/// The pause between two tries, and as much again at random.
const PAUSE: Duration = Duration::from_millis(100);

/// Acquires, and tries again for a while where the backend cannot be reached. `is_one` says that it is about one lock alone.
pub(crate) async fn persistently<T>(
    is_one: bool,
    patience: Wait,
    printer: Printer,
    acquire: impl AsyncFn() -> Result<T>,
) -> Result<T> {
    let clock = Clock::system();
    let mut failing_since = None;
    loop {
        let tried_at = clock.now();
        let error = match acquire().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => error,
            outcome => return outcome,
        };
        // A backend that loses touch while it waits has tried for as long itself, and kept its place. Of a set nobody knows which
        // lock was waited for.
        if is_one && clock.now().since(tried_at) >= UNREACHABLE_FOR {
            return Err(error);
        }
        let first = failing_since;
        // A first try that failed by itself for a while is part of that time; a longer one has waited for something else.
        let began = if clock.now().since(tried_at) < UNREACHABLE_FOR { tried_at } else { clock.now() };
        let since = first.unwrap_or(began);
        let give_up_at = since.after(UNREACHABLE_FOR);
        // Without a thread for timers there is nothing to wait with.
        if clock.start().is_err()
            || clock.now() >= patience.give_up_at(tried_at).map_or(give_up_at, |at| at.min(give_up_at))
        {
            return Err(error);
        }
        failing_since = Some(since);
        if first.is_none() {
            printer.note(format_args!("{error}; trying again"));
        }
        clock.sleep(PAUSE + clock.jitter(PAUSE)).await;
    }
}

/// Says after a second of waiting who has the locks; where `is_quiet`, only to those who want to hear more.
pub(crate) async fn explained<T>(
    locks: &[(Locks, LockName)],
    patience: Wait,
    is_quiet: bool,
    printer: Printer,
    wait: impl Future<Output = T>,
) -> T {
    let talk = |what: String| if is_quiet { printer.detail(what) } else { printer.note(what) };
    let explanation = async {
        if patience != Wait::No {
            Clock::system().sleep(EXPLAIN_AFTER).await;
            let mut states = taken(locks).await;
            // Who has the lock already waits for a fence, or for the other locks.
            states.retain(|state| !state.label.as_deref().is_some_and(is_ours));
            for line in shown(&states) {
                talk(format!("waiting: {line}"));
            }
        }
        std::future::pending::<T>().await
    };
    match race(wait, explanation).await {
        fencepost::Raced::First(output) | fencepost::Raced::Second(output) => output,
    }
}

/// Says who has the locks that were not acquired.
pub(crate) fn explain_contention(locks: &[(Locks, LockName)], error: &Error, printer: Printer) {
    let clock = Clock::system();
    let give_up_at = Some(clock.now().after(EXPLAIN_MOST));
    let mut states = block_on(until(&clock, give_up_at, taken(locks))).unwrap_or_default();
    // Why there is a quarantine, the error says.
    states.retain(|state| state.status != Status::Quarantined);
    if states.is_empty() {
        // It was given back a moment ago.
        printer.failure(error);
    }
    for line in shown(&states) {
        printer.error(format_args!("not acquired: {line}"));
    }
}

/// A line for each of the locks, but for those beyond the first few.
fn shown(states: &[LockState]) -> Vec<String> {
    let mut lines: Vec<_> = states.iter().take(MOST_SHOWN).map(sentence).collect();
    if states.len() > MOST_SHOWN {
        lines.push(format!("{} more are not free", states.len() - MOST_SHOWN));
    }
    lines
}

/// Whether a label is one of this process.
fn is_ours(label: &str) -> bool {
    label.ends_with(&format!("(fencepost pid {})", std::process::id()))
}

/// Those of the locks that are not free.
async fn taken(locks: &[(Locks, LockName)]) -> Vec<LockState> {
    let mut states = Vec::new();
    for (locks, name) in locks {
        states.extend(locks.inspect(name.as_str()).await);
    }
    states.retain(|state| state.status != Status::Free);
    states
}
