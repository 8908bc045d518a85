//! Getting the locks, while signals can end the wait.

use std::pin::pin;

use fencepost::{Error, Lease, Lock, Wait};

use super::plan::Plan;
use crate::child::{Asks, Heard, Inbox, meaning, stop_this_process};
use crate::commands::patience::{explained, persistently};
use crate::printer::Printer;

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
    let targets = plan.locks();
    let acquire = async || Lock::acquire_all(locks, patience).await;
    let acquiring = persistently(locks.len() == 1, patience, printer, acquire);
    let mut granted = pin!(explained(&targets, patience, plan.is_unattended, printer, acquiring));
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
