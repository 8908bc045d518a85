//! What is counted of attempts and leases, as a scrape shows it.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{
    Clock, Error, ErrorKind, Event, Fence, FencingToken, Lock, Locks, MemoryBackend, MemoryFence, Observer,
    Raced, Stamp, VirtualTime, race,
};
use fencepost_metrics::Metrics;
use prometheus_client::registry::Registry;

/// A world with a registry.
struct World {
    time: VirtualTime,
    locks: Locks,
    metrics: Arc<Metrics>,
    registry: Registry,
}

impl World {
    fn new(metrics: Metrics) -> Self {
        let time = VirtualTime::new(1);
        let locks = Locks::new(MemoryBackend::new(time.clock()));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        Self { time, locks, metrics: Arc::new(metrics), registry }
    }

    fn clock(&self) -> Clock {
        self.time.clock()
    }

    fn lock(&self, name: &str) -> Lock {
        let observer: Arc<dyn Observer> = Arc::<Metrics>::clone(&self.metrics);
        self.locks.lock(name).expect("it is a name").observer(observer)
    }

    fn scrape(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a string takes all");
        text
    }

    /// The value of one sample, with its labels.
    fn value(&self, sample: &str) -> Option<f64> {
        let text = self.scrape();
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.map(|value| value.parse().expect("it is a number"))
    }
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn attempts_are_counted_by_outcome_and_measured() {
    let world = World::new(Metrics::new());
    world.time.block_on(async {
        let lease = world.lock("a").acquire().await.unwrap();
        assert!(world.lock("a").try_acquire().await.unwrap().is_none());
        let dropped = race(world.clock().sleep(MINUTE), world.lock("a").acquire()).await;
        assert!(matches!(dropped, Raced::First(())));
        assert_eq!(world.value("fencepost_held{backend=\"memory\"}"), Some(1.0));
        lease.release().await.unwrap();
        drop(world.lock("b").acquire().await.unwrap());
        world.clock().sleep(MINUTE).await;
    });
    let value = |sample: &str| world.value(sample);
    assert_eq!(value("fencepost_attempts_total{backend=\"memory\"}"), Some(4.0));
    for (outcome, count) in [("granted", 2.0), ("not_acquired", 1.0), ("given_up", 1.0)] {
        let sample = format!("fencepost_acquisitions_total{{backend=\"memory\",outcome=\"{outcome}\"}}");
        assert_eq!(value(&sample), Some(count), "{outcome}");
    }
    assert_eq!(value("fencepost_held{backend=\"memory\"}"), Some(0.0));
    assert_eq!(value("fencepost_releases_total{backend=\"memory\",outcome=\"released\"}"), Some(2.0));
    assert_eq!(value("fencepost_wait_seconds_count{backend=\"memory\"}"), Some(4.0));
    assert_eq!(value("fencepost_wait_seconds_sum{backend=\"memory\"}"), Some(60.0));
    assert_eq!(value("fencepost_hold_seconds_sum{backend=\"memory\"}"), Some(60.0));
    assert_eq!(value("fencepost_hold_seconds_bucket{le=\"30.0\",backend=\"memory\"}"), Some(1.0));
    let renewed = value("fencepost_renewals_total{backend=\"memory\",outcome=\"acknowledged\"}");
    assert!(renewed.is_some_and(|renewed| renewed >= 3.0), "{renewed:?}");
}

#[test]
fn lost_leases_are_counted_by_reason_and_refused_tokens_too() {
    let world = World::new(Metrics::new());
    world.time.block_on(async {
        let lease = world.lock("a").acquire().await.unwrap();
        world.locks.revoke("a", lease.token(), "a test").await.unwrap();
        lease.lost().await;
        lease.release().await.unwrap_err();

        let fence = Arc::new(MemoryFence::default());
        let lease = world.lock("b").acquire().await.unwrap();
        let token = FencingToken::try_from(lease.token().get() + 1_000_000_000).unwrap();
        fence.seal(&Stamp { token, ..lease.stamp() }).await.unwrap();
        lease.heed(fence.check(&lease.stamp()).await).unwrap_err();
        lease.release().await.unwrap_err();
        world.lock("b").fence(fence).acquire().await.unwrap_err();
    });
    for reason in ["revoked", "refused"] {
        let sample = format!("fencepost_leases_lost_total{{backend=\"memory\",reason=\"{reason}\"}}");
        assert_eq!(world.value(&sample), Some(1.0), "{}", world.scrape());
    }
    let value = |sample: &str| world.value(sample);
    assert_eq!(value("fencepost_stale_refused_total{backend=\"memory\"}"), Some(2.0));
    assert_eq!(value("fencepost_acquisitions_total{backend=\"memory\",outcome=\"stale\"}"), Some(1.0));
    assert_eq!(value("fencepost_releases_total{backend=\"memory\",outcome=\"lost\"}"), Some(2.0));
    assert_eq!(value("fencepost_held{backend=\"memory\"}"), Some(0.0));
}

/// At a store that may keep a lease beyond its deadline, the end is told twice.
#[test]
fn overdue_lease_that_is_then_lost_is_counted_once() {
    let world = World::new(Metrics::new());
    let name = "a".parse().unwrap();
    let error = || Error::new(ErrorKind::Lost, "keep the lease", "a test");
    let attempt = {
        let metrics = Arc::clone(&world.metrics);
        let kept = Arc::new(Kept(metrics, std::sync::Mutex::default()));
        let observer: Arc<dyn Observer> = Arc::<Kept>::clone(&kept);
        world.time.block_on(async {
            let lock = world.locks.lock("a").unwrap().observer(observer);
            lock.acquire().await.unwrap().release().await.unwrap();
        });
        kept.1.lock().unwrap().clone().unwrap()
    };
    attempt.observe(&name, &Event::Lost { error: error() });
    attempt.observe(&name, &Event::Lost { error: error() });
    attempt.observe(&name, &Event::Quarantined);
    attempt.observe(&name, &Event::Quarantined);
    let lost = "fencepost_leases_lost_total{backend=\"memory\",reason=\"deadline\"}";
    assert_eq!(world.value(lost), Some(1.0));
    assert_eq!(world.value("fencepost_quarantines_total{backend=\"memory\"}"), Some(1.0));
}

/// Keeps what counts an attempt.
#[derive(Debug)]
struct Kept(Arc<Metrics>, std::sync::Mutex<Option<Arc<dyn Observer>>>);

impl Observer for Kept {
    fn observe(&self, _: &fencepost_core::LockName, _: &Event) {}

    fn attempt(&self, attempt: &fencepost_core::Attempt<'_>) -> Option<Arc<dyn Observer>> {
        let counting = self.0.attempt(attempt);
        self.1.lock().expect("nobody panics here").clone_from(&counting);
        counting
    }
}

#[test]
fn name_of_the_lock_is_a_label_only_where_that_is_asked_for() {
    let (plain, by_lock) = (World::new(Metrics::new()), World::new(Metrics::by_lock()));
    for world in [&plain, &by_lock] {
        world
            .time
            .block_on(async { world.lock("a \"b\"").acquire().await.unwrap().release().await.unwrap() });
    }
    assert!(!plain.scrape().contains("lock="), "{}", plain.scrape());
    let labels = r#"lock="a \"b\"",backend="memory""#;
    assert_eq!(by_lock.value(&format!("fencepost_attempts_total{{{labels}}}")), Some(1.0));
    assert!(by_lock.value(&format!("fencepost_token{{{labels}}}")).unwrap() > 0.0);
}

#[test]
fn page_for_operators_lists_what_is_registered_and_nothing_else() {
    let world = World::new(Metrics::by_lock());
    let name = "a".parse().unwrap();
    let error = || Error::new(ErrorKind::Lost, "keep the lease", "a test");
    world.time.block_on(async { world.lock("a").acquire().await.unwrap().release().await.unwrap() });
    world.time.block_on(async {
        let lease = world.lock("a").acquire().await.unwrap();
        world.clock().sleep(MINUTE).await;
        lease.release().await.unwrap();
    });
    let noticed = Event::Noticed { what: "a test".to_owned() };
    for event in
        [noticed, Event::Quarantined, Event::Stale { error: error() }, Event::Lost { error: error() }]
    {
        world.metrics.observe(&name, &event);
    }
    let scrape = world.scrape();
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types = types.map(|(name, kind)| match kind {
        "counter" => (format!("{name}_total"), kind),
        _ => (name.to_owned(), kind),
    });
    let page = include_str!("../../../docs/operating.md");
    let table = page.split("<!-- metrics of the library -->").nth(1).unwrap();
    let table = table.split("<!-- /metrics").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let listed = rows.map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap()));
    assert_eq!(listed.collect::<Vec<_>>(), types.collect::<Vec<_>>());
}
