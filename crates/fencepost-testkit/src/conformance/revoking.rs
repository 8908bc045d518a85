//! Taking a lease away by force, and giving one back for a holder that cannot: only ever the lease that is meant.

use std::time::Duration;

use fencepost_core::{
    Error, ErrorKind, FencingToken, Handover, HolderId, Lease, Loss, LossReason, Revoked, Status,
};

use super::holding::what_is_seen;
use super::stage::{Stage, take};

const REASON: &str = "the night shift needs it";

pub(super) async fn revoke_with_another_token_changes_nothing(stage: &Stage<'_>) {
    let first = stage.take("orders").await;
    let passed = first.token();
    first.release().await.expect("a lease that is held can be released");
    let lease = stage.take("orders").await;
    let before = what_is_seen(&stage.state("orders").await);

    for token in [passed, beside(lease.token(), 1), beside(lease.token(), -1)] {
        let revoked = stage.client().revoke("orders", token, REASON).await;
        let revoked = revoked.expect("a lease can be revoked that is not the present one");
        assert_eq!(revoked, Revoked::NotCurrent, "the lease with token {token} is not held");
    }
    assert_eq!(what_is_seen(&stage.state("orders").await), before, "revoking another lease changed this one");
    lease.check().expect("the holder was not disturbed");
    lease.release().await.expect("the holder was not disturbed");

    let revoked = stage.client().revoke("orders", passed, REASON).await.expect("a free lock can be revoked");
    assert_eq!(revoked, Revoked::NotCurrent, "nobody holds the lock");
}

fn beside(token: FencingToken, by: i64) -> FencingToken {
    token.get().saturating_add_signed(by).try_into().expect("a token that was given has neighbours")
}

/// The ttl is long where the store tells its holders, so that the deadline cannot be what they hear of.
pub(super) async fn revoked_holder_hears_of_it_and_the_next_token_is_greater(stage: &Stage<'_>) {
    let pushed = stage.profile().loss == Loss::Pushed;
    let ttl = if pushed { stage.long_ttl() } else { stage.ttl() };
    let heard_within = if pushed { stage.slack() } else { ttl + stage.slack() };
    let lease = take(&stage.lock("orders").ttl(ttl)).await;
    let token = lease.token();

    let revoked = stage.client().revoke("orders", token, REASON).await.expect("a lease can be revoked");
    assert_eq!(revoked, Revoked::Done, "the lease with that token is held");
    let error = stage.within(heard_within, "hearing of the revocation", lease.lost()).await;
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(lease.check().expect_err("a revoked lease is not held").kind(), ErrorKind::Lost);

    // A lock that ends with its process is free once that process has let go of it.
    let lease = if stage.profile().frees_when_revoked() {
        Some(lease)
    } else {
        assert_is_told_of_the_loss(lease).await;
        None
    };
    let next = stage.within(stage.slack(), "the next holder", stage.other("orders").acquire()).await;
    let next = next.expect("the lease was taken away");
    assert!(next.token() > token, "the next token {} is not greater than {token}", next.token());
    if let Some(lease) = lease {
        assert_is_told_of_the_loss(lease).await;
    }
    next.check().expect("the next holder was not disturbed by the release of the lost lease");
    assert_eq!(
        stage.state("orders").await.holder,
        Some(next.holder()),
        "the lost lease's release hit the next"
    );
    next.release().await.expect("the next holder was not disturbed");
}

/// Its work may not have stopped yet.
pub(super) async fn revoked_lock_is_free_when_its_holder_has_let_go_and_not_before(stage: &Stage<'_>) {
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl())).await;
    stage.client().revoke("orders", lease.token(), REASON).await.expect("a lease can be revoked");
    let waiting = stage.other("orders").wait(stage.ttl() / 4);
    let refused =
        waiting.acquire().await.expect_err("the next holder came before the revoked one had let go");
    assert_eq!(refused.kind(), ErrorKind::Contended);
    assert_eq!(stage.state("orders").await.holder, Some(lease.holder()), "it is seen who has the lock still");
    assert_is_told_of_the_loss(lease).await;
    let next = stage.within(stage.slack(), "the next holder", stage.other("orders").acquire()).await;
    let next = next.expect("the revoked holder has let go");
    next.check().expect("what was said to the one before is not said to this one");
    next.release().await.expect("the next holder was not disturbed");
}

async fn assert_is_told_of_the_loss(lease: Lease) {
    let error = lease.release().await.expect_err("a lost lease cannot be released as if it were held");
    assert_eq!(error.kind(), ErrorKind::Lost);
}

pub(super) async fn revoked_holder_is_told_why(stage: &Stage<'_>) {
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl())).await;
    stage.client().revoke("orders", lease.token(), REASON).await.expect("a lease can be revoked");
    let error = stage.within(stage.slack(), "hearing of the revocation", lease.lost()).await;
    assert_eq!(error.loss_reason(), Some(LossReason::Revoked), "it was revoked: {error}");
    assert!(error.to_string().contains(REASON), "the reason is not in {error:?}");
    assert_is_told_of_the_loss(lease).await;
}

pub(super) async fn revoke_is_refused_where_it_is_not_promised(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let refused = stage.client().revoke("orders", lease.token(), REASON).await;
    assert_eq!(refused.expect_err("the profile does not promise it").kind(), ErrorKind::Unsupported);
    lease.check().expect("the holder was not disturbed");
    lease.release().await.expect("the holder was not disturbed");
}

pub(super) async fn foreign_give_back_changes_nothing(stage: &Stage<'_>) {
    let first = stage.take("orders").await;
    let passed = handover(&first);
    first.release().await.expect("a lease that is held can be released");
    let lease = stage.take("orders").await;
    let ours = handover(&lease);
    let before = what_is_seen(&stage.state("orders").await);

    let holder = HolderId::draw(stage.clock());
    let wrong_holder = Handover { holder, ..ours.clone() };
    let wrong_token = Handover { token: beside(lease.token(), 1), ..ours };
    for (what, handover) in [
        ("a lease that was given back", passed),
        ("another holder", wrong_holder),
        ("another token", wrong_token),
    ] {
        let answer = stage.client().backend().give_back(&handover).await;
        assert_is_refused(what, answer, lease.handover().is_some());
        assert_eq!(what_is_seen(&stage.state("orders").await), before, "giving back {what} changed the lock");
    }
    lease.check().expect("the holder was not disturbed");
    assert!(
        stage.other("orders").try_acquire().await.expect("it can be asked for").is_none(),
        "it was freed"
    );
    lease.release().await.expect("the holder was not disturbed");
}

/// What another process would give back; made up where the backend has nothing to hand over.
fn handover(lease: &Lease) -> Handover {
    let (lock, holder, token) = (lease.lock().clone(), lease.holder(), lease.token());
    lease.handover().cloned().unwrap_or(Handover { lock, holder, token, detail: None })
}

fn assert_is_refused(what: &str, answer: Result<(), Error>, is_handed_over: bool) {
    let Err(error) = answer else { panic!("{what} was given back") };
    let is_refusal =
        error.kind() == ErrorKind::Lost || (error.kind() == ErrorKind::Unsupported && !is_handed_over);
    assert!(is_refusal, "giving back {what} failed in another way: {error:?}");
}

pub(super) async fn lease_can_be_freed_by_another_process(stage: &Stage<'_>) {
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl())).await;
    let Some(handover) = lease.handover().cloned() else {
        assert!(!lease.descriptors().is_empty(), "there is neither a handover nor a descriptor to close");
        lease.release().await.expect("a lease that is held can be released");
        return;
    };
    let client = stage.client();
    client.backend().give_back(&handover).await.expect("what was handed over can be given back");
    let again = client.backend().give_back(&handover).await;
    assert_eq!(again.expect_err("it was given back already").kind(), ErrorKind::Lost);
    let next = stage.take("orders").await;
    assert!(next.token() > handover.token, "the next token is not greater");
    let released = lease.release().await;
    assert_eq!(released.expect_err("it was given back already").kind(), ErrorKind::Lost);
    assert_eq!(stage.state("orders").await.status, Status::Held, "the late release hit the next holder");
    next.release().await.expect("the next holder was not disturbed");
}

pub(super) async fn set_gives_up_when_a_lease_in_it_is_lost(stage: &Stage<'_>) {
    let barrier = take(&stage.lock("b").ttl(stage.long_ttl())).await;
    let set = [stage.other("a").ttl(stage.long_ttl()), stage.other("b").ttl(stage.long_ttl())];
    let acquiring = fencepost_core::Lock::acquire_all(&set, fencepost_core::Wait::Forever);
    let revoking = async {
        // Whoever waits for the second holds the first.
        super::waiting::until_waiting(stage, "b", 1).await;
        let token = stage.state("a").await.token.expect("the set waits for the rest of it");
        stage.client().revoke("a", token, REASON).await.expect("a lease can be revoked");
    };
    let limit = stage.slack() + Duration::from_secs(1);
    let both = futures_util::future::join(acquiring, revoking);
    let (refused, ()) = Box::pin(stage.within(limit, "giving the set up", both)).await;
    assert_eq!(refused.expect_err("a part of it was lost").kind(), ErrorKind::Lost);
    stage.until_state("a", "nothing of the set is held", |seen| seen.status == Status::Free).await;
    barrier.release().await.expect("the other holder was not disturbed");
    stage.until_state("b", "nobody waits for the rest", |seen| seen.status == Status::Free).await;
}
