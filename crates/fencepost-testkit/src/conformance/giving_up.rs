//! Dropping a call to acquire leaves nothing behind: no holder, no waiter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{Lock, Raced, Status, race};
use futures_util::future::BoxFuture;

use super::stage::{Stage, take};

pub(super) async fn dropped_waiter_leaves_no_trace(stage: &Stage<'_>) {
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl())).await;
    let waiting = stage.other("orders");
    let seen = stage.until_state("orders", "the waiter is seen", |state| !state.waiters.is_empty());
    match race(waiting.acquire(), seen).await {
        Raced::First(_) => panic!("there is a second holder"),
        Raced::Second(_) => {}
    }
    stage.until_state("orders", "the dropped waiter is gone", |state| state.waiters.is_empty()).await;
    lease.release().await.expect("a lease that is held can be released");
    let lease = stage.within(stage.slack(), "the next holder", stage.lock("orders").acquire()).await;
    let lease = lease.expect("nobody else wants it");
    lease.release().await.expect("a lease that is held can be released");
}

const DROPPERS: usize = 4;
const DROPS: usize = 250;

/// The longest that a dropper waits, and much more than a quick store needs to grant.
const MOST: Duration = Duration::from_millis(3);

/// The ttl is long, so a holder that is left behind is not repaired by its running out.
pub(super) fn acquire_dropped_at_any_instant_leaves_nothing(stage: &Stage<'_>) {
    let still_dropping = AtomicUsize::new(DROPPERS);
    let mut tasks: Vec<BoxFuture<'_, ()>> = vec![Box::pin(hold_and_release(stage, &still_dropping))];
    for _ in 0..DROPPERS {
        tasks.push(Box::pin(drop_at_random(stage, &still_dropping)));
    }
    stage.run_all(tasks);
    stage.block_on(async {
        let nobody =
            |state: &fencepost_core::LockState| state.status == Status::Free && state.waiters.is_empty();
        stage.until_state("orders", "nothing is left of the dropped calls", nobody).await;
        stage.take("orders").await.release().await.expect("a lease that is held can be released");
    });
}

async fn hold_and_release(stage: &Stage<'_>, still_dropping: &AtomicUsize) {
    let lock = stage.other("orders").ttl(stage.long_ttl());
    while still_dropping.load(Ordering::Relaxed) > 0 {
        let lease =
            stage.within(stage.slack(), "the next holder among calls that are dropped", lock.acquire());
        let lease = lease.await.expect("the others drop their calls");
        stage.sleep(MOST / 3).await;
        lease.release().await.expect("nobody disturbs a holder");
    }
}

async fn drop_at_random(stage: &Stage<'_>, still_dropping: &AtomicUsize) {
    let lock = stage.other("orders").ttl(stage.long_ttl());
    for _ in 0..DROPS {
        acquire_and_drop(stage, &lock, stage.random_duration(MOST)).await;
    }
    still_dropping.fetch_sub(1, Ordering::Relaxed);
}

async fn acquire_and_drop(stage: &Stage<'_>, lock: &Lock, after: Duration) {
    // The sleep comes first, so that a call which never yields is dropped as well.
    if let Raced::Second(lease) = race(stage.sleep(after), lock.acquire()).await {
        let lease = lease.expect("everybody gives the lock back");
        lease.check().expect("a lease that was just granted is held");
        drop(lease);
    }
}
