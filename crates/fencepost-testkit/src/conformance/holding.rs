//! One holder at a time, and a greater token for each: what a lock is for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencepost_core::{ErrorKind, FencingToken, LockState, Status};
use futures_util::future::BoxFuture;

use super::stage::Stage;
use crate::history::{self, Hold};

pub(super) async fn second_token_is_greater_and_the_lease_is_held_between(stage: &Stage<'_>) {
    let first = stage.take("orders").await;
    first.check().expect("a lease that was just granted is held");
    let (token, holder) = (first.token(), first.holder());
    first.release().await.expect("a lease that is held can be released");

    let second = stage.take("orders").await;
    second.check().expect("a lease that was just granted is held");
    assert!(second.token() > token, "the second token {} is not greater than {token}", second.token());
    assert_ne!(second.holder(), holder, "each attempt has a holder of its own");
    second.release().await.expect("a lease that is held can be released");
}

pub(super) async fn tokens_grow_over_two_hundred_acquisitions(stage: &Stage<'_>) {
    let locks = [stage.lock("orders"), stage.other("orders"), stage.other("orders")];
    let mut last: Option<FencingToken> = None;
    for lock in locks.iter().cycle().take(200) {
        let lease = super::stage::take(lock).await;
        assert!(Some(lease.token()) > last, "the token {} came after {last:?}", lease.token());
        last = Some(lease.token());
        lease.release().await.expect("a lease that is held can be released");
    }
}

pub(super) async fn held_lock_refuses_a_second_holder(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let before = what_is_seen(&stage.state("orders").await);

    let other = stage.other("orders");
    let answer = stage.within(stage.slack(), "refusing a second holder", other.try_acquire()).await;
    assert!(answer.expect("a held lock can be asked for").is_none(), "there is a second holder");

    let after = stage.state("orders").await;
    assert_eq!(what_is_seen(&after), before, "a refused try changed what is seen");
    assert!(after.waiters.is_empty(), "a refused try left a waiter: {:?}", after.waiters);
    lease.check().expect("the holder was not disturbed");
    lease.release().await.expect("the holder was not disturbed");
}

/// All but what changes with time.
pub(super) fn what_is_seen(state: &LockState) -> impl PartialEq + std::fmt::Debug + use<> {
    let LockState { name, status, holder, label, token, since_micros, .. } = state.clone();
    (name, status, holder, label, token, since_micros)
}

pub(super) async fn lock_is_not_reentrant(stage: &Stage<'_>) {
    let lock = stage.lock("orders").ttl(stage.long_ttl());
    let lease = lock.acquire().await.expect("it is free");
    let again = lock.try_acquire().await.expect("a held lock can be asked for");
    assert!(again.is_none(), "its holder was given it again");

    let waiting = lock.clone().wait(Duration::from_millis(50));
    let refused = stage.within(stage.slack(), "refusing its holder", waiting.acquire()).await;
    assert_eq!(refused.expect_err("its holder was given it again").kind(), ErrorKind::Contended);
    lease.check().expect("the holder was not disturbed");
    lease.release().await.expect("the holder was not disturbed");
}

pub(super) async fn locks_of_different_names_are_apart(stage: &Stage<'_>) {
    let orders = stage.take("orders").await;
    let payments = stage.take("payments").await;
    orders.release().await.expect("a lease that is held can be released");
    payments.check().expect("another lock's release does not disturb it");
    assert_eq!(stage.state("payments").await.status, Status::Held);
    assert_eq!(stage.state("orders").await.status, Status::Free);
    payments.release().await.expect("a lease that is held can be released");
}

const TASKS: u32 = 8;
const TIMES: u32 = 25;

pub(super) fn increments_of_many_tasks_do_not_overlap(stage: &Stage<'_>) {
    let counter = AtomicU32::new(0);
    let tasks = (0..TASKS).map(|_| Box::pin(increment(stage, &counter)) as BoxFuture<'_, _>);
    let holds: Vec<Hold> = stage.run_all(tasks.collect()).concat();
    history::assert_clean(&holds);
    assert_eq!(counter.into_inner(), TASKS * TIMES, "increments were lost");
}

/// Two at once lose an increment.
async fn increment(stage: &Stage<'_>, counter: &AtomicU32) -> Vec<Hold> {
    let lock = stage.other("counter").ttl(stage.long_ttl());
    let mut holds = Vec::new();
    for _ in 0..TIMES {
        let work = async {
            let number = counter.load(Ordering::Relaxed);
            stage.sleep(Duration::from_micros(200)).await;
            counter.store(number + 1, Ordering::Relaxed);
        };
        holds.push(Hold::during(&lock, stage.clock(), work).await);
    }
    holds
}
