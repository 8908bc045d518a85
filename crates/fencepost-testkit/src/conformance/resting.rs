//! Keeping a lock taken after its release, as long as its last holder asked.

use std::time::Duration;

use fencepost_core::{ErrorKind, Status};

use super::stage::{Stage, take};

pub(super) async fn released_lock_rests_and_is_then_free(stage: &Stage<'_>) {
    let rest = stage.ttl() / 2;
    let asked = stage.now();
    let lease = take(&stage.lock("orders").at_least(rest)).await;
    let token = lease.token();
    lease.release().await.expect("a lease that is held can be released");

    let seen = stage.state("orders").await;
    assert_eq!(seen.status, Status::Resting, "it was to rest for {rest:?}");
    assert_eq!(seen.holder, None, "a lock that rests is held by nobody");
    assert_eq!(seen.token, Some(token), "it rests from the lease with token {token}");
    assert!(seen.remaining.is_some_and(|left| left <= rest), "it rests for {:?} more", seen.remaining);
    let listed = stage.locks().list("").await.expect("locks can be listed");
    assert_eq!(listed.len(), 1, "a lock that rests is listed");
    let refused = stage.other("orders").try_acquire().await.expect("a lock that rests can be asked for");
    assert!(refused.is_none(), "a lock that rests was given");

    let free = stage.until_state("orders", "it rests no more", |seen| seen.status == Status::Free);
    free.await;
    let rested = stage.now().since(asked);
    assert!(rested + stage.tolerance() >= rest, "it rested for {rested:?} of {rest:?}");
    stage.take("orders").await.release().await.expect("a lease that is held can be released");
}

pub(super) async fn waiter_gets_a_resting_lock_when_its_time_has_come(stage: &Stage<'_>) {
    let rest = stage.ttl() / 2;
    let asked = stage.now();
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl()).at_least(rest)).await;
    let granted = stage.now();
    lease.release().await.expect("a lease that is held can be released");

    let short = stage.other("orders").wait(rest / 10);
    let refused = stage.within(stage.slack(), "a short wait", short.acquire()).await;
    assert_eq!(refused.expect_err("a lock that rests was given").kind(), ErrorKind::Contended);
    let next = stage.within(rest + stage.slack(), "a long wait", stage.other("orders").acquire()).await;
    let (next, rested) = (next.expect("it rests no more"), stage.now());
    assert!(rested.since(asked) + stage.tolerance() >= rest, "it rested for {:?}", rested.since(asked));
    assert!(rested.since(granted) < rest + stage.slack(), "it rested for {:?}", rested.since(granted));
    next.check().expect("a lease that was just granted is held");
    next.release().await.expect("a lease that is held can be released");
    assert_eq!(
        stage.state("orders").await.status,
        Status::Free,
        "the rest was asked for by the first holder"
    );
}

pub(super) async fn rest_is_counted_from_the_grant(stage: &Stage<'_>) {
    let rest = Duration::from_millis(100);
    let lease = take(&stage.lock("orders").at_least(rest)).await;
    stage.sleep(rest + stage.tolerance()).await;
    lease.check().expect("a short hold is not lost");
    lease.release().await.expect("a lease that is held can be released");
    assert_eq!(stage.state("orders").await.status, Status::Free, "its time was over before the release");
    stage.take("orders").await.release().await.expect("a lease that is held can be released");
}

pub(super) async fn rest_is_refused_where_it_is_not_promised(stage: &Stage<'_>) {
    let refused = stage.lock("orders").at_least(Duration::from_secs(1)).try_acquire().await;
    assert_eq!(refused.expect_err("the profile does not promise it").kind(), ErrorKind::Unsupported);
    assert_eq!(stage.state("orders").await.status, Status::Free, "what was refused left a holder");
}
