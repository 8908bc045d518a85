//! The end of a run: the locks are given back, and a slot that was done is marked.
//!
//! Invariant: a run whose slot may not be marked never ends as one that has marked it.

use std::pin::pin;
use std::time::Duration;

use fencepost::{Clock, Error, ErrorKind, Lease, block_on};
use futures_util::future::join_all;

use super::Job;
use super::outcome::{Ending, Outcome, reason};
use crate::args::SlotOn;
use crate::child::{Asks, Heard, Inbox, meaning};
use crate::exit::Exit;

/// How long a release may still take after a signal.
const HURRIED_RELEASE_MOST: Duration = Duration::from_millis(250);

impl Job<'_> {
    /// Gives the locks back. A lease that turns out to be lost means that the command may have overlapped.
    pub(super) fn release(&mut self, inbox: &Inbox, leases: Vec<Lease>, ending: Ending) -> Ending {
        let names: Vec<_> = leases.iter().map(|lease| lease.lock().clone()).collect();
        let errors = released(inbox, leases, ending.is_success());
        for (name, grant) in names.iter().zip(self.grants.clone()) {
            let error = errors.iter().find(|error| error.lock() == Some(name));
            let (event, detail) = match error {
                None => ("released", None),
                Some(error) if error.kind() == ErrorKind::Lost => ("lost", Some(reason(error))),
                Some(_) => ("release_failed", None),
            };
            self.journal.event(event, name, Some((grant.token, grant.holder)), detail);
        }
        if ending.outcome == Outcome::Lost {
            return ending;
        }
        for error in &errors {
            self.printer.failure(error);
        }
        let lost = errors.iter().find(|error| error.kind() == ErrorKind::Lost);
        let ending = self.with_the_slot(ending, errors.first());
        lost.map_or(ending, |error| Ending::lost(reason(error)))
    }

    /// The end of a run whose slot counts as done when its command succeeds: whether it could be marked.
    fn with_the_slot(&mut self, ending: Ending, error: Option<&Error>) -> Ending {
        let slot = self.args.once_per.as_ref().filter(|_| self.args.slot_on == SlotOn::Success);
        let Some(slot) = slot else { return ending };
        if ending.was_asked_to_end && ending.outcome == Outcome::Ran && ending.exit == Exit::OK {
            self.printer
                .note(format_args!("a signal asked the command to end, so {slot} does not count as done"));
        }
        if error.is_none() || !ending.is_success() {
            return ending;
        }
        self.printer.error(format_args!(
            "the command has succeeded, but {slot} may not count as done: it may run again"
        ));
        for (target, grant) in self.plan.targets.iter().zip(&self.grants) {
            let grant = Some((grant.token, grant.holder));
            self.journal.event("mark_failed", &target.name, grant, Some(slot.as_str()));
        }
        Ending::new(Outcome::Unavailable, Exit::UNAVAILABLE)
    }
}

/// Gives the locks back, as those of work that is done or not, and says what has failed. Whoever then sends a signal does not wait for
/// a backend that is silent.
fn released(inbox: &Inbox, leases: Vec<Lease>, is_done: bool) -> Vec<Error> {
    let unknown = |lease: &Lease| {
        let error =
            Error::new(ErrorKind::Indeterminate, "release the lock", "a signal has ended the wait for it");
        error.on(lease.lock())
    };
    let unknown: Vec<_> = leases.iter().map(unknown).collect();
    let (mut released, mut give_up_at) = (pin!(release_all(leases, is_done)), None);
    loop {
        match inbox.next(give_up_at, released.as_mut()) {
            Ok(Heard::Done(errors)) => return errors,
            Ok(Heard::Alarm) => return unknown,
            Ok(Heard::Signal(signal)) if meaning(signal) == Asks::ToEnd => {
                give_up_at.get_or_insert_with(|| Clock::system().now().after(HURRIED_RELEASE_MOST));
            }
            // There is nothing more to hear.
            Ok(Heard::GuardianGone) | Err(_) => return block_on(released),
            Ok(Heard::Signal(_) | Heard::Message(_) | Heard::Bell) => {}
        }
    }
}

/// All at once: a store that does not answer for one must not keep the others taken.
async fn release_all(leases: Vec<Lease>, is_done: bool) -> Vec<Error> {
    let release = async |lease: Lease| {
        let lock = lease.lock().clone();
        let released = if is_done { lease.complete().await } else { lease.release().await };
        released.err().map(|error| error.on(&lock))
    };
    join_all(leases.into_iter().rev().map(release)).await.into_iter().flatten().collect()
}
