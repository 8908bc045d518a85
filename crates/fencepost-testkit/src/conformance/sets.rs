//! Several locks at once: all or none, in whatever order they are named.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::{ErrorKind, Lease, Lock, LockName, Moment, Status, Wait, release_all};
use futures_util::future::BoxFuture;

use super::stage::Stage;
use crate::history::{self, Hold};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

pub(super) async fn set_comes_in_the_order_in_which_it_was_named(stage: &Stage<'_>) {
    let named = ["d", "a", "e", "b", "c"];
    let set = named.map(|name| stage.lock(name));
    let leases = Lock::acquire_all(&set, Wait::No).await.expect("all are free");
    let given: Vec<&str> = leases.iter().map(|lease| lease.lock().as_str()).collect();
    assert_eq!(given, named);
    for lease in &leases {
        lease.check().expect("a lease that was just granted is held");
    }
    assert_eq!(release_all(leases).await.len(), 0, "a set that is held can be released");
    for name in named {
        assert_eq!(stage.state(name).await.status, Status::Free, "{name} was released with its set");
    }
}

pub(super) async fn lock_named_twice_in_a_set_is_refused(stage: &Stage<'_>) {
    let set = ["b", "a", "b"].map(|name| stage.lock(name));
    let refused = Lock::acquire_all(&set, Wait::No).await;
    assert_eq!(refused.expect_err("no set has a lock twice").kind(), ErrorKind::InvalidArgument);
    for name in ["a", "b"] {
        assert_eq!(stage.state(name).await.status, Status::Free, "a set that was refused left {name} held");
    }
}

pub(super) async fn contended_set_leaves_nothing_held(stage: &Stage<'_>) {
    let lease = stage.take("d").await;
    for wait in [Wait::No, Wait::Until(stage.now().after(Duration::from_millis(100)))] {
        let set = ["e", "d", "c", "a"].map(|name| stage.other(name).ttl(stage.long_ttl()));
        let refused = stage.within(stage.slack(), "giving the set up", Lock::acquire_all(&set, wait)).await;
        assert_eq!(refused.expect_err("a part of it is held").kind(), ErrorKind::Contended);
        for name in ["a", "c", "e"] {
            assert_eq!(
                stage.state(name).await.status,
                Status::Free,
                "a set that was refused left {name} held"
            );
        }
        assert_eq!(stage.state("d").await.holder, Some(lease.holder()), "its holder was disturbed");
    }
    lease.release().await.expect("the holder was not disturbed");
}

const TASKS: usize = 5;
const TIMES: usize = 8;

pub(super) fn sets_in_any_order_neither_overlap_nor_wait_for_each_other(stage: &Stage<'_>) {
    let tasks = (0..TASKS).map(|_| Box::pin(acquire_sets(stage)) as BoxFuture<'_, _>).collect();
    let holds = stage.run_all(tasks).concat();
    let mut by_name: BTreeMap<LockName, Vec<Hold>> = BTreeMap::new();
    for (name, hold) in holds {
        by_name.entry(name).or_default().push(hold);
    }
    assert_eq!(by_name.values().map(Vec::len).sum::<usize>(), TASKS * TIMES * 3);
    for holds in by_name.values() {
        history::assert_clean(holds);
    }
}

async fn acquire_sets(stage: &Stage<'_>) -> Vec<(LockName, Hold)> {
    let mut holds = Vec::new();
    for _ in 0..TIMES {
        let set = three_of(stage).map(|name| stage.lock(name).ttl(stage.long_ttl()));
        let asked = stage.now();
        let leases = Lock::acquire_all(&set, Wait::Forever).await.expect("everybody gives its set back");
        let granted = stage.now();
        stage.sleep(stage.random_duration(Duration::from_millis(2))).await;
        let ended = stage.now();
        holds.extend(leases.iter().map(|lease| hold(lease, asked, granted, ended)));
        let errors = release_all(leases).await;
        assert!(errors.is_empty(), "a set that is held can be released: {errors:?}");
    }
    holds
}

/// Three different names in a random order.
fn three_of(stage: &Stage<'_>) -> [&'static str; 3] {
    let mut names = NAMES;
    for place in 0..3 {
        let rest = u64::try_from(NAMES.len() - place).expect("there are five");
        let chosen = usize::try_from(stage.random(rest)).expect("it is below five");
        names.swap(place, place + chosen);
    }
    [names[0], names[1], names[2]]
}

fn hold(lease: &Lease, asked: Moment, granted: Moment, ended: Moment) -> (LockName, Hold) {
    lease.check().expect("a short hold is not lost");
    (lease.lock().clone(), Hold { asked, granted, ended, token: lease.token(), holder: lease.holder() })
}
