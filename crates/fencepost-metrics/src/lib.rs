#![doc = include_str!("../README.md")]

mod lease;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use fencepost_core::{Attempt, Event, LockName, Observer};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use lease::Counting;

/// The library of metrics, in the version that a [`Metrics`] registers itself with.
pub use prometheus_client;

/// What tells the series of one metric apart.
type Labels = Vec<(&'static str, String)>;

/// The upper bounds of what is counted by length, in seconds: from a grant at once to a job of hours.
const BOUNDS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0];

/// The metrics of locks: an observer, to be registered and given to each lock.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    families: Families,
    by_lock: bool,
}

/// The metrics, each with its series. Clones share them.
#[derive(Clone, Debug)]
struct Families {
    acquisitions: Family<Labels, Counter>,
    attempts: Family<Labels, Counter>,
    held: Family<Labels, Gauge>,
    hold: Family<Labels, Histogram, fn() -> Histogram>,
    leases_lost: Family<Labels, Counter>,
    notices: Family<Labels, Counter>,
    quarantines: Family<Labels, Counter>,
    releases: Family<Labels, Counter>,
    renewals: Family<Labels, Counter>,
    stale_refused: Family<Labels, Counter>,
    token: Family<Labels, Gauge<i64, AtomicI64>>,
    wait: Family<Labels, Histogram, fn() -> Histogram>,
}

fn histogram() -> Histogram {
    Histogram::new(BOUNDS)
}

impl Default for Families {
    fn default() -> Self {
        Self {
            acquisitions: Family::default(),
            attempts: Family::default(),
            held: Family::default(),
            hold: Family::new_with_constructor(histogram),
            leases_lost: Family::default(),
            notices: Family::default(),
            quarantines: Family::default(),
            releases: Family::default(),
            renewals: Family::default(),
            stale_refused: Family::default(),
            token: Family::default(),
            wait: Family::new_with_constructor(histogram),
        }
    }
}

impl Metrics {
    /// Metrics by backend.
    pub fn new() -> Self {
        Self::default()
    }

    /// Metrics by backend and by the name of the lock, for programs whose locks are few and always the same.
    pub fn by_lock() -> Self {
        Self { by_lock: true, ..Self::default() }
    }

    /// Adds the metrics to `registry`, under names that begin with `fencepost_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("fencepost");
        let all = self.families.clone();
        registry.register(
            "acquisitions",
            "Attempts to acquire a lock that have ended, by outcome",
            all.acquisitions,
        );
        registry.register("attempts", "Attempts to acquire a lock that have begun", all.attempts);
        registry.register("held", "Leases that this process holds now", all.held);
        let help = "How long leases were held, in seconds";
        registry.register_with_unit("hold", help, Unit::Seconds, all.hold);
        registry.register("leases_lost", "Leases that were lost, by reason", all.leases_lost);
        registry.register("notices", "What backends have noticed that people should know", all.notices);
        let help = "Attempts that met a store which grants nothing after a loss of data";
        registry.register("quarantines", help, all.quarantines);
        registry.register("releases", "Leases that were let go of, by outcome", all.releases);
        registry.register("renewals", "Renewals of leases, by outcome", all.renewals);
        let help = "Tokens that a fence has refused to this process";
        registry.register("stale_refused", help, all.stale_refused);
        if self.by_lock {
            registry.register("token", "The fencing token of the last grant to this process", all.token);
        }
        let help = "How long attempts to acquire a lock have taken, in seconds";
        registry.register_with_unit("wait", help, Unit::Seconds, all.wait);
    }

    fn counting(&self, lock: &LockName, backend: &'static str) -> Counting {
        let lock = self.by_lock.then(|| ("lock", lock.to_string()));
        let labels = lock.into_iter().chain([("backend", backend.to_owned())]).collect();
        Counting::new(self.families.clone(), labels, self.by_lock)
    }
}

impl Observer for Metrics {
    /// What comes by way of an observer that does not pass attempts on; the backend is not known then.
    fn observe(&self, lock: &LockName, event: &Event) {
        self.counting(lock, "").count(event);
    }

    fn attempt(&self, attempt: &Attempt<'_>) -> Option<Arc<dyn Observer>> {
        Some(Arc::new(self.counting(attempt.lock, attempt.backend)))
    }
}
