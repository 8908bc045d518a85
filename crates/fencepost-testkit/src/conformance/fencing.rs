//! The lock together with a fence: it is sealed before anybody holds a lease, or there is no lease.

use std::sync::Arc;

use fencepost_core::{ErrorKind, FencingToken, HolderId, Mark, Stamp, Status};

use super::stage::{Stage, take};

/// An hour of microseconds: ahead of every token that the wall clock gives while the case runs.
const FAR: u64 = 3_600_000_000;

pub(super) async fn lease_comes_with_its_fences_sealed(stage: &Stage<'_>) {
    let fence = stage.fence();
    let lock = stage.lock("orders").fence(Arc::clone(&fence));
    let first = take(&lock).await;
    let stamp = first.stamp();
    assert_eq!(
        fence.mark(&stamp.lock).await.expect("it has a mark"),
        Some(mark(&stamp)),
        "it was not sealed"
    );
    fence.check(&stamp).await.expect("the holder may write");
    first.release().await.expect("a lease that is held can be released");
    fence.check(&stamp).await.expect("nobody has sealed it since");

    let second = take(&lock).await;
    assert_eq!(fence.check(&stamp).await.expect_err("its time is over").kind(), ErrorKind::Stale);
    fence.check(&second.stamp()).await.expect("the holder may write");
    second.release().await.expect("a lease that is held can be released");
}

fn mark(stamp: &Stamp) -> Mark {
    Mark { token: stamp.token, holder: stamp.holder.clone() }
}

pub(super) async fn fence_that_is_ahead_makes_the_acquisition_stale_and_frees_the_lock(stage: &Stage<'_>) {
    let fence = stage.fence();
    let lease = stage.take("orders").await;
    let mut ahead = lease.stamp();
    ahead.token = FencingToken::try_from(ahead.token.get() + FAR).expect("there are greater tokens");
    lease.release().await.expect("a lease that is held can be released");
    fence.seal(&ahead).await.expect("nothing greater was sealed");

    let lock = stage.lock("orders").ttl(stage.long_ttl()).fence(Arc::clone(&fence));
    let refused = lock.acquire().await.expect_err("its token is stale from the start");
    assert_eq!(refused.kind(), ErrorKind::Stale);
    assert!(refused.to_string().contains(&ahead.token.to_string()), "the mark is not in {refused:?}");
    assert_eq!(stage.state("orders").await.status, Status::Free, "a lock whose fence refused stayed held");

    let to = FencingToken::try_from(ahead.token.get() + 1).expect("there are greater tokens");
    stage.client().lift("orders", to).await.expect("a lock can be lifted");
    let lease = lock.acquire().await.expect("lifted above the mark");
    lease.release().await.expect("a lease that is held can be released");
}

pub(super) async fn fence_refuses_another_holder_with_the_same_token(stage: &Stage<'_>) {
    let fence = stage.fence();
    let lease = take(&stage.lock("orders").fence(Arc::clone(&fence))).await;
    let forged = Stamp { holder: HolderId::draw(stage.clock()).into(), ..lease.stamp() };
    assert_eq!(fence.check(&forged).await.expect_err("it is another holder").kind(), ErrorKind::Stale);
    assert_eq!(fence.seal(&forged).await.expect_err("it is another holder").kind(), ErrorKind::Stale);
    fence.check(&lease.stamp()).await.expect("the holder may write");
    lease.release().await.expect("a lease that is held can be released");
}
