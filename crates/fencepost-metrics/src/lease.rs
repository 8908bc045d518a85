//! What is counted of one attempt and its lease.
//!
//! Apart from the metrics because it remembers: a lease is counted as held, and as lost, once, whatever is told of it again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fencepost_core::{Error, ErrorKind, Event, LockName, LossReason, Observer};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Families, Labels};

/// Counts what it hears of one attempt and its lease.
#[derive(Debug)]
pub(super) struct Counting {
    families: Families,
    labels: Labels,
    by_lock: bool,
    is_held: AtomicBool,
    is_lost: AtomicBool,
    is_quarantined: AtomicBool,
}

impl Counting {
    pub(super) fn new(families: Families, labels: Labels, by_lock: bool) -> Self {
        let [is_held, is_lost, is_quarantined] = [false; 3].map(AtomicBool::new);
        Self { families, labels, by_lock, is_held, is_lost, is_quarantined }
    }

    pub(super) fn count(&self, event: &Event) {
        let all = &self.families;
        match event {
            Event::Asked => self.add(&all.attempts),
            Event::Granted { token, waited, .. } => {
                if !self.is_held.swap(true, Ordering::Relaxed) {
                    all.held.get_or_create(&self.labels).inc();
                }
                if self.by_lock {
                    let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
                    all.token.get_or_create(&self.labels).set(token);
                }
                self.end("granted", *waited);
            }
            Event::NotGranted { error, waited } => self.end(error.kind().outcome(), *waited),
            Event::GivenUp { waited } => self.end("given_up", *waited),
            Event::Quarantined if !self.is_quarantined.swap(true, Ordering::Relaxed) => {
                self.add(&all.quarantines);
            }
            Event::Renewed { .. } => {
                self.is_lost.store(false, Ordering::Relaxed);
                self.add_with(&all.renewals, "outcome", "acknowledged");
            }
            Event::RenewFailed { .. } => self.add_with(&all.renewals, "outcome", "failed"),
            Event::Noticed { .. } => self.add(&all.notices),
            Event::Stale { .. } => self.add(&all.stale_refused),
            Event::Lost { error } if !self.is_lost.swap(true, Ordering::Relaxed) => {
                self.add_with(&all.leases_lost, "reason", reason(error));
            }
            Event::Released { held, error } => {
                self.part(match error {
                    None => "released",
                    Some(error) if error.kind() == ErrorKind::Lost => "lost",
                    Some(_) => "failed",
                });
                all.hold.get_or_create(&self.labels).observe(held.as_secs_f64());
            }
            Event::Detached { held } => {
                self.part("detached");
                all.hold.get_or_create(&self.labels).observe(held.as_secs_f64());
            }
            _ => {}
        }
    }

    fn end(&self, outcome: &'static str, waited: Duration) {
        self.add_with(&self.families.acquisitions, "outcome", outcome);
        self.families.wait.get_or_create(&self.labels).observe(waited.as_secs_f64());
    }

    fn part(&self, outcome: &'static str) {
        self.add_with(&self.families.releases, "outcome", outcome);
        self.let_go();
    }

    fn let_go(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.families.held.get_or_create(&self.labels).dec();
        }
    }

    fn add(&self, family: &Family<Labels, Counter>) {
        family.get_or_create(&self.labels).inc();
    }

    fn add_with(&self, family: &Family<Labels, Counter>, label: &'static str, value: &'static str) {
        let mut labels = self.labels.clone();
        labels.push((label, value.to_owned()));
        family.get_or_create(&labels).inc();
    }
}

impl Observer for Counting {
    fn observe(&self, _: &LockName, event: &Event) {
        self.count(event);
    }
}

impl Drop for Counting {
    /// A lease whose end nobody could tell of, because a bug has ended its keeping, is not held for ever.
    fn drop(&mut self) {
        self.let_go();
    }
}

fn reason(error: &Error) -> &'static str {
    error.loss_reason().unwrap_or(LossReason::Deadline).as_str()
}
