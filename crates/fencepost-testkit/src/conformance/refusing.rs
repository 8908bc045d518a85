//! What is refused before anything is asked of the store.

use std::time::Duration;

use fencepost_core::{ErrorKind, Lock, Status};

use super::stage::Stage;

async fn assert_is_refused(stage: &Stage<'_>, lock: Lock, kind: ErrorKind) {
    let refused = lock.acquire().await.expect_err("it makes no sense, or is not promised");
    assert_eq!(refused.kind(), kind, "{refused:?}");
    assert!(lock.try_acquire().await.is_err(), "a try is refused as well");
    assert_eq!(stage.state("orders").await.status, Status::Free, "what was refused left a holder");
}

pub(super) async fn ttl_of_zero_is_refused(stage: &Stage<'_>) {
    let lock = stage.lock("orders").ttl(Duration::ZERO);
    assert_is_refused(stage, lock, ErrorKind::InvalidArgument).await;
}

pub(super) async fn ttl_above_the_longest_is_refused(stage: &Stage<'_>) {
    let longest = stage.profile().longest_ttl.expect("the case is for profiles that have one");
    let above = stage.lock("orders").ttl(longest + Duration::from_millis(1));
    assert_is_refused(stage, above, ErrorKind::InvalidArgument).await;
    let lease = super::stage::take(&stage.lock("orders").ttl(longest)).await;
    lease.release().await.expect("a lease that is held can be released");
}

pub(super) async fn durable_tokens_are_refused_where_they_are_not_promised(stage: &Stage<'_>) {
    let lock = stage.lock("orders").require_durable();
    assert_is_refused(stage, lock, ErrorKind::Unsupported).await;
}

pub(super) async fn name_that_is_none_is_refused(stage: &Stage<'_>) {
    for name in ["", "a\0b", "a\nb", &"x".repeat(1025)] {
        let refused = stage.locks().lock(name).expect_err("it is no name");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        let refused = stage.locks().inspect(name).await.expect_err("it is no name");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
}
