//! Waiting for a lock: with a limit and without, seen by others, ended by a release, and in order where that is promised.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fencepost_core::{ErrorKind, LockState, Status, Waiting};
use futures_util::future::{BoxFuture, join, join_all};

use super::stage::{LABEL, Stage, take};
use crate::history::{self, Hold};

pub(super) async fn wait_with_a_limit_ends_on_time_and_leaves_no_trace(stage: &Stage<'_>) {
    let limit = Duration::from_millis(300);
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl())).await;
    let waiting = stage.other("orders").wait(limit);

    let asked = stage.now();
    let refused = stage.within(limit + stage.slack(), "a wait with a limit", waiting.acquire()).await;
    let waited = stage.now().since(asked);
    assert_eq!(refused.expect_err("there is a second holder").kind(), ErrorKind::Contended);
    assert!(waited >= limit, "the wait was over after {waited:?} of {limit:?}");

    let seen = stage.until_state("orders", "the waiter that gave up is gone", |seen| seen.waiters.is_empty());
    assert_eq!(seen.await.holder, Some(lease.holder()));
    lease.release().await.expect("a lease that is held can be released");
    let third = stage.within(stage.slack(), "the third", stage.other("orders").try_acquire()).await;
    let third = third.expect("a free lock can be asked for").expect("it is free, for whoever comes next");
    third.release().await.expect("a lease that is held can be released");
}

pub(super) async fn wait_of_no_time_is_one_try(stage: &Stage<'_>) {
    let lock = stage.lock("orders").wait(Duration::ZERO);
    let lease = lock.acquire().await.expect("the lock was free, and one try was due");
    let refused = stage.within(stage.slack(), "a wait of no time", lock.acquire()).await;
    assert_eq!(refused.expect_err("there is a second holder").kind(), ErrorKind::Contended);
    lease.release().await.expect("a lease that is held can be released");
}

pub(super) async fn release_wakes_a_waiter(stage: &Stage<'_>) {
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl())).await;
    let first = lease.token();
    let waiting = stage.other("orders");
    let waiter = async { (waiting.acquire().await.expect("it is released"), stage.now()) };
    let holder = async {
        until_waiting(stage, "orders", 1).await;
        lease.release().await.expect("a lease that is held can be released");
        stage.now()
    };
    let ((lease, granted), released) = join(waiter, holder).await;
    let late = granted.since(released);
    assert!(late < stage.slack(), "the waiter was not woken by the release, but had the lock {late:?} later");
    assert!(lease.token() > first);
    lease.check().expect("a lease that was just granted is held");
    lease.release().await.expect("a lease that is held can be released");
}

/// Until so many are seen to wait; where the store knows no waiters, until they have had time to begin.
pub(super) async fn until_waiting(stage: &Stage<'_>, name: &str, waiters: usize) {
    match stage.profile().waiting {
        Waiting::Polled => stage.sleep(Duration::from_millis(50)).await,
        Waiting::Queued => {
            let all = |seen: &LockState| seen.waiters.len() == waiters;
            stage.until_state(name, "all waiters are seen", all).await;
        }
        // One process may be seen as one waiter.
        _ => {
            let some = |seen: &LockState| !seen.waiters.is_empty();
            stage.until_state(name, "a waiter is seen", some).await;
        }
    }
}

pub(super) async fn waiter_is_seen_while_it_waits(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let waiting = stage.other("orders");
    let waiter = async { waiting.acquire().await.expect("it is released") };
    let onlooker = async {
        let seen = stage.until_state("orders", "a waiter is seen", |seen| !seen.waiters.is_empty()).await;
        assert_eq!(seen.holder, Some(lease.holder()), "a waiter changed who is seen to hold the lock");
        let label = seen.waiters[0].label.as_deref();
        let this_process = format!("pid {}", std::process::id());
        let is_named = label.is_none_or(|label| label == LABEL || label.contains(&this_process));
        assert!(is_named, "the waiter is called {label:?}");
        lease.release().await.expect("a lease that is held can be released");
        seen
    };
    let (lease, _) = join(waiter, onlooker).await;
    let seen =
        stage.until_state("orders", "a waiter that was served waits no more", |seen| seen.waiters.is_empty());
    assert_eq!(seen.await.holder, Some(lease.holder()));
    lease.release().await.expect("a lease that is held can be released");
}

const WAITERS: usize = 8;

pub(super) fn every_waiter_is_served(stage: &Stage<'_>) {
    let lease = stage.block_on(stage.take("orders"));
    let release = async {
        until_waiting(stage, "orders", WAITERS).await;
        lease.release().await.expect("a lease that is held can be released");
        Vec::new()
    };
    let mut tasks: Vec<BoxFuture<'_, _>> = vec![Box::pin(release)];
    tasks.extend((0..WAITERS).map(|_| Box::pin(wait_in_turn(stage)) as BoxFuture<'_, _>));
    let holds = stage.run_all(tasks).concat();
    assert_eq!(holds.len(), WAITERS, "each waiter is served once");
    history::assert_clean(&holds);
}

async fn wait_in_turn(stage: &Stage<'_>) -> Vec<Hold> {
    let lock = stage.other("orders").ttl(stage.long_ttl());
    vec![Hold::during(&lock, stage.clock(), stage.sleep(Duration::from_millis(1))).await]
}

/// Each waiter joins when all before it are in the queue, so the order is certain.
pub(super) async fn waiters_are_served_in_order(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let served = Mutex::new(Vec::new());
    let waiters = (0..WAITERS).map(|place| {
        let (served, lock) = (&served, stage.other("orders"));
        async move {
            until_in_front(stage, place).await;
            let lease = lock.acquire().await.expect("it is released");
            served.lock().unwrap_or_else(PoisonError::into_inner).push(place);
            lease.release().await.expect("a lease that is held can be released");
        }
    });
    let release = async {
        until_in_front(stage, WAITERS).await;
        lease.release().await.expect("a lease that is held can be released");
    };
    join(join_all(waiters), release).await;
    let served = served.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(served.iter().copied().eq(0..WAITERS), "the waiters were served in another order: {served:?}");
}

async fn until_in_front(stage: &Stage<'_>, waiters: usize) {
    stage.until_state("orders", "the earlier waiters are seen", |seen| seen.waiters.len() == waiters).await;
}

pub(super) async fn lease_won_after_a_wait_is_a_whole_one(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let waiting = stage.other("orders");
    let waiter = async { waiting.acquire().await.expect("it is released, and the lease is not over yet") };
    let holder = async {
        stage.sleep(stage.ttl() * 2).await;
        lease.release().await.expect("a lease that is held can be released");
    };
    let (lease, ()) = join(waiter, holder).await;
    lease.check().expect("a lease that was just granted is held");
    let left = lease.remaining().expect("it runs out");
    let certain = stage.profile().assured.of(stage.ttl());
    assert!(left > certain / 2, "only {left:?} of {:?} are left after the wait", lease.ttl());
    super::terms::assert_ends_inside_the_term(stage, &lease).await;
    assert_eq!(stage.state("orders").await.status, Status::Held);
    lease.release().await.expect("a lease that is held can be released");
}
