//! Getting the locks, while signals can end the wait.

use std::pin::pin;
use std::time::Duration;

use fencepost::{Clock, Error, ErrorKind, Lease, Lock, LockState, Result, Status, Wait, race};

use super::plan::Plan;
use crate::child::{Asks, Heard, Inbox, meaning, stop_this_process};
use crate::commands::state::sentence;
use crate::printer::Printer;

/// After how long a wait is explained.
const EXPLAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a backend that cannot be reached is tried.
const UNREACHABLE_FOR: Duration = Duration::from_secs(5);

/// The pause between two tries, and as much again at random.
const PAUSE: Duration = Duration::from_millis(100);

/// How the wait has ended.
#[derive(Debug)]
pub(super) enum Waited {
    Granted(Vec<Lease>),
    Failed(Error),
    Interrupted(i32),
    GuardianGone,
}

/// Waits for the locks. Signals that are meant for the command are kept in `pending`; `tell_notices` passes on what the backend
/// has noticed meanwhile.
pub(super) fn wait(
    plan: &Plan,
    locks: &[Lock],
    patience: Wait,
    inbox: &Inbox,
    pending: &mut Vec<i32>,
    printer: Printer,
    mut tell_notices: impl FnMut(),
) -> std::io::Result<Waited> {
    let mut granted = pin!(explained(plan, patience, printer, persistently(locks, patience, printer)));
    loop {
        match inbox.next(None, granted.as_mut())? {
            Heard::Done(Ok(leases)) => return Ok(Waited::Granted(leases)),
            Heard::Done(Err(error)) => return Ok(Waited::Failed(error)),
            Heard::GuardianGone => return Ok(Waited::GuardianGone),
            Heard::Signal(signal) => match meaning(signal) {
                Asks::ToEnd => return Ok(Waited::Interrupted(signal)),
                // Equal ones that are pending are one, as the kernel has it.
                Asks::ForTheCommand if pending.contains(&signal) => {}
                Asks::ForTheCommand => pending.push(signal),
                Asks::ToStop => stop_this_process(),
                Asks::ToContinue | Asks::Nothing => {}
            },
            Heard::Bell => tell_notices(),
            Heard::Message(_) | Heard::Alarm => {}
        }
    }
}

/// Acquires, and tries again for a while where the backend cannot be reached.
async fn persistently(locks: &[Lock], patience: Wait, printer: Printer) -> Result<Vec<Lease>> {
    let clock = Clock::system();
    let mut failing_since = None;
    loop {
        let tried_at = clock.now();
        let error = match Lock::acquire_all(locks, patience).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => error,
            outcome => return outcome,
        };
        // A backend that loses touch while it waits has tried for as long itself, and kept its place. Of a set nobody knows which
        // lock was waited for.
        if locks.len() == 1 && clock.now().since(tried_at) >= UNREACHABLE_FOR {
            return Err(error);
        }
        let first = failing_since;
        let since = first.unwrap_or_else(|| clock.now());
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

/// Says after a second who has the locks.
async fn explained<T>(plan: &Plan, patience: Wait, printer: Printer, wait: impl Future<Output = T>) -> T {
    let explanation = async {
        if patience != Wait::No {
            Clock::system().sleep(EXPLAIN_AFTER).await;
            for state in taken(plan).await {
                printer.note(format_args!("waiting: {}", sentence(&state)));
            }
        }
        std::future::pending::<T>().await
    };
    match race(wait, explanation).await {
        fencepost::Raced::First(output) | fencepost::Raced::Second(output) => output,
    }
}

/// Those of the locks that are not free.
pub(super) async fn taken(plan: &Plan) -> Vec<LockState> {
    let mut states = Vec::new();
    for target in &plan.targets {
        states.extend(target.locks.inspect(target.name.as_str()).await);
    }
    states.retain(|state| state.status != Status::Free);
    states
}
