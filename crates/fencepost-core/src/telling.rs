//! How observers are told: an attempt from its beginning to its end, and what becomes of the lease.
//!
//! Where nobody observes, nothing is made, and no clock is read. Invariant: a bug in an observer ends no attempt and no release; in
//! the keeping of a lease alone it is felt, since nobody should go on under a lease whose loss it may not hear of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Attempt, Event, Observer};
use crate::lease::Lease;
use crate::name::LockName;

/// Tells `observer` what `event` makes, where there is one.
pub(crate) fn tell(observer: Option<&Arc<dyn Observer>>, lock: &LockName, event: impl FnOnce() -> Event) {
    if let Some(observer) = observer {
        guarded(|| observer.observe(lock, &event()));
    }
}

/// Tells of a fence that has refused the token, if that is what `error` says.
pub(crate) fn tell_stale(observer: Option<&Arc<dyn Observer>>, lock: &LockName, error: &Error) {
    if error.kind() == ErrorKind::Stale {
        tell(observer, lock, || Event::Stale { error: error.clone() });
    }
}

/// Tells of a store that has granted another ttl than was asked for, which counts.
pub(crate) fn tell_other_ttl(observer: Option<&Arc<dyn Observer>>, lease: &Lease, asked: Duration) {
    if let Some(granted) = lease.ttl().filter(|granted| *granted != asked) {
        let what = || format!("a ttl of {granted:?} was granted, not {asked:?}");
        tell(observer, lease.lock(), || Event::Noticed { what: what() });
    }
}

/// The panic is printed where it happens.
fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// An attempt under way, of which observers are told; dropped before its end, it was given up.
pub(crate) struct Asking<'a> {
    lock: &'a LockName,
    told: Option<Told<'a>>,
}

struct Told<'a> {
    observer: Arc<dyn Observer>,
    clock: &'a Clock,
    since: Moment,
}

impl<'a> Asking<'a> {
    /// Begins to tell `observer` of an attempt.
    pub(crate) fn begin(
        observer: Option<&Arc<dyn Observer>>,
        attempt: Attempt<'a>,
        clock: &'a Clock,
    ) -> Self {
        let told = observer.map(|observer| {
            let own = guarded(|| observer.attempt(&attempt)).flatten();
            let observer = own.unwrap_or_else(|| Arc::clone(observer));
            Told { observer, clock, since: clock.now() }
        });
        let asking = Self { lock: attempt.lock, told };
        tell(asking.observer(), asking.lock, || Event::Asked);
        asking
    }

    /// Who is told of the attempt and of its lease.
    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.told.as_ref().map(|told| &told.observer)
    }

    /// The attempt has come to its end.
    pub(crate) fn end(mut self, outcome: &Result<Lease>) {
        let Some(told) = self.told.take() else { return };
        let waited = told.waited();
        match outcome {
            Ok(lease) => {
                lease.begin();
                let (token, holder) = (lease.token(), lease.holder());
                tell(Some(&told.observer), lease.lock(), || Event::Granted { token, holder, waited });
            }
            Err(error) => {
                tell(Some(&told.observer), self.lock, || Event::NotGranted { error: error.clone(), waited });
            }
        }
    }
}

impl Told<'_> {
    fn waited(&self) -> Duration {
        self.clock.now().since(self.since)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            tell(Some(&told.observer), self.lock, || Event::GivenUp { waited: told.waited() });
        }
    }
}
