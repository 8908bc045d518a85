//! Leases that no process keeps: others renew them and give them back, and one that has ended stays so.

use fencepost_core::{ErrorKind, Handover, HolderId, Status};

use super::stage::{Stage, take};

pub(super) async fn detached_lease_is_renewed_and_given_back_by_others(stage: &Stage<'_>) {
    let ttl = stage.ttl();
    let handover = take(&stage.lock("orders").ttl(ttl)).await.detach().await;
    let handover = handover.expect("the profile says that it can be detached");
    for _ in 0..6 {
        let before = stage.now();
        let renewal = stage.client().renew(&handover, ttl).await.expect("it has not run out");
        assert!(renewal.counted_from >= before, "the term is counted from before it was asked for");
        assert_eq!(renewal.ttl, Some(ttl));
        stage.sleep(ttl / 3).await;
    }
    let seen = stage.state("orders").await;
    assert_eq!((seen.status, seen.token), (Status::Held, Some(handover.token)), "it was renewed in time");
    stage.client().give_back(&handover).await.expect("it has not run out");
    let next = stage.take("orders").await;
    assert!(next.token() > handover.token, "the next token {} is not greater", next.token());

    let late = stage.client().give_back(&handover).await;
    assert_eq!(late.expect_err("it was given back already").kind(), ErrorKind::Lost);
    next.check().expect("the next holder was not disturbed");
    next.release().await.expect("the next holder was not disturbed");
}

pub(super) async fn detached_lease_that_has_ended_is_not_revived(stage: &Stage<'_>) {
    let ttl = stage.ttl();
    let handover = take(&stage.lock("orders").ttl(ttl)).await.detach().await;
    let handover = handover.expect("the profile says that it can be detached");
    let made_up = Handover { holder: HolderId::draw(stage.clock()), ..handover.clone() };
    let refused = stage.client().renew(&made_up, ttl).await;
    assert_eq!(refused.expect_err("nobody has that lease").kind(), ErrorKind::Lost);

    stage.sleep(ttl).await;
    stage.until_state("orders", "the lease has run out", |seen| seen.status == Status::Free).await;
    let revived = stage.client().renew(&handover, ttl).await;
    assert_eq!(revived.expect_err("a lease that ran out was revived").kind(), ErrorKind::Lost);
    assert_eq!(stage.state("orders").await.status, Status::Free, "the late renewal took the lock");

    let next = stage.take("orders").await;
    let revived = stage.client().renew(&handover, ttl).await;
    assert_eq!(revived.expect_err("a lease of the past was renewed").kind(), ErrorKind::Lost);
    next.check().expect("the next holder was not disturbed");
    next.release().await.expect("the next holder was not disturbed");
}

/// Whoever gives a lease back gives it back for good, though the lock stays taken for a while.
pub(super) async fn detached_lease_that_rests_is_renewed_by_nobody(stage: &Stage<'_>) {
    let rest = stage.ttl() * 2;
    let lock = stage.lock("orders").ttl(stage.ttl()).at_least(rest);
    let taken = stage.now();
    let handover = take(&lock).await.detach().await.expect("the profile says that it can be detached");
    stage.client().give_back(&handover).await.expect("it has not run out");
    stage.until_state("orders", "it rests", |seen| seen.status == Status::Resting).await;
    let renewed = stage.client().renew(&handover, stage.ttl()).await;
    assert_eq!(renewed.expect_err("a lease that was given back was renewed").kind(), ErrorKind::Lost);
    let again = stage.client().give_back(&handover).await;
    assert_eq!(again.expect_err("it was given back already").kind(), ErrorKind::Lost);
    assert_eq!(stage.state("orders").await.status, Status::Resting, "it rests on");

    // A look is patient for as long as the rest lasts, and not for what comes after it.
    stage.sleep(rest / 2).await;
    stage.until_state("orders", "the rest is over", |seen| seen.status == Status::Free).await;
    let rested = stage.now().since(taken);
    assert!(rested + stage.tolerance() >= rest, "it rested for {rested:?} of {rest:?}");
}

pub(super) async fn lease_that_ends_with_its_holder_is_not_detached(stage: &Stage<'_>) {
    let refused = stage.take("orders").await.detach().await;
    assert_eq!(refused.expect_err("the profile does not promise it").kind(), ErrorKind::Unsupported);
    stage.until_state("orders", "it was given back", |seen| seen.status == Status::Free).await;
}
