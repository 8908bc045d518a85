//! Leases that run out: not before their time, soon after it, and never again for a holder that came too late.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{Claim, Deadline, ErrorKind, Fence, Lease, Stamp, Status, Wait};

use super::stage::Stage;
use crate::worker::{Answer, Command, Held, Patience, Worker};

pub(super) async fn claim_that_is_not_renewed_ends_after_its_ttl_and_not_before(stage: &Stage<'_>) {
    let claim = abandoned_claim(stage).await;
    let known = stage.now();
    let grant = claim.grant().clone();
    let ttl = grant.ttl.expect("the profile says that it runs out");
    let next = stage.within(ttl + stage.slack(), "the next holder", stage.other("orders").acquire()).await;
    let (next, granted) = (next.expect("the lease has run out"), stage.now());

    let kept = granted.since(grant.counted_from);
    assert!(kept + stage.tolerance() >= ttl, "the store took it back after {kept:?} of {ttl:?}");
    let believed = Deadline::of(grant.counted_from, Some(ttl));
    assert!(believed.passed(granted), "the first holder believes in its lease while there is another");
    assert!(granted.since(known) < ttl + stage.slack(), "the store kept it for {kept:?}");
    assert!(next.token() > grant.token, "the next token {} is not greater", next.token());
    next.release().await.expect("a lease that is held can be released");
}

/// A claim that nobody renews. It is kept, since dropping it could give it back.
async fn abandoned_claim(stage: &Stage<'_>) -> Box<dyn Claim> {
    let request = stage.request("orders", Wait::No);
    stage.locks().backend().acquire(&request).await.expect("it is free")
}

pub(super) async fn claim_that_ran_out_cannot_be_renewed(stage: &Stage<'_>) {
    let mut claim = abandoned_claim(stage).await;
    stage.sleep(stage.ttl()).await;
    stage.until_state("orders", "the lease has run out", |seen| seen.status == Status::Free).await;
    let revived = claim.renew().await;
    assert_eq!(revived.expect_err("a lease that ran out was revived").kind(), ErrorKind::Lost);
    assert_eq!(stage.state("orders").await.status, Status::Free, "the late renewal took the lock");

    let next = stage.take("orders").await;
    let revived = claim.renew().await;
    assert_eq!(revived.expect_err("a lease of the past was renewed").kind(), ErrorKind::Lost);
    assert_is_undisturbed(stage, next).await;
}

pub(super) async fn claim_that_ran_out_cannot_be_released(stage: &Stage<'_>) {
    let claim = abandoned_claim(stage).await;
    stage.sleep(stage.ttl()).await;
    let next = stage.within(stage.slack(), "the next holder", stage.other("orders").acquire()).await;
    let next = next.expect("the lease has run out");
    let released = claim.release().await;
    assert_eq!(released.expect_err("a lease of the past was released").kind(), ErrorKind::Lost);
    assert_is_undisturbed(stage, next).await;
}

async fn assert_is_undisturbed(stage: &Stage<'_>, next: Lease) {
    next.check().expect("the next holder was not disturbed");
    let seen = stage.state("orders").await;
    assert_eq!(seen.holder, Some(next.holder()), "a late call of the first holder hit the next one");
    next.release().await.expect("the next holder was not disturbed");
}

/// Renewals are fencepost's own affair: the application does nothing for them, and its thread is blocked.
pub(super) fn holder_keeps_the_lock_while_its_executor_is_blocked(stage: &Stage<'_>) {
    let lease = stage.block_on(stage.take("orders"));
    stage.pass(stage.ttl() * 5);
    lease.check().expect("a healthy holder keeps its lease");
    stage.block_on(async {
        let seen = stage.state("orders").await;
        assert_eq!(seen.token, Some(lease.token()), "the store gave the lock away from a healthy holder");
        let other = stage.other("orders").try_acquire().await.expect("a held lock can be asked for");
        assert!(other.is_none(), "there is a second holder");
        lease.release().await.expect("a healthy holder keeps its lease");
    });
}

pub(super) async fn deadline_ends_inside_the_term_of_the_store(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    for _ in 0..10 {
        assert_ends_inside_the_term(stage, &lease).await;
        stage.sleep(stage.ttl() / 7).await;
    }
    lease.release().await.expect("a healthy holder keeps its lease");
}

/// The deadline is read first: a renewal in between can only make the store's term longer.
pub(super) async fn assert_ends_inside_the_term(stage: &Stage<'_>, lease: &Lease) {
    let deadline = lease.deadline().moment().expect("the lease runs out");
    let left = stage.state("orders").await.remaining.expect("it is seen when the lease runs out");
    let latest_end = stage.now().after(left);
    assert!(
        deadline <= latest_end,
        "the holder believes in its lease for {:?} longer than the store keeps it",
        deadline.since(latest_end)
    );
}

/// The stop takes three ttls. The fence is what protects the data from a holder that was stopped after its last check.
pub(super) fn paused_holder_loses_the_lock_and_is_fenced_off(stage: &Stage<'_>) {
    match stage.virtual_time() {
        Some(time) => pause_everything(stage, &|duration| time.freeze(duration)),
        None => stop_a_process(stage),
    }
}

fn pause_everything(stage: &Stage<'_>, pause: &dyn Fn(Duration)) {
    let fence = stage.fence();
    let lock = stage.lock("orders").fence(Arc::clone(&fence));
    let lease = stage.block_on(super::stage::take(&lock));
    let stamp = lease.stamp();
    stage.block_on(fence.check(&stamp)).expect("the holder has sealed the fence");

    pause(stage.ttl() / 2);
    let early = stage.block_on(stage.other("orders").try_acquire()).expect("it can be asked for");
    assert!(early.is_none(), "there is another holder before the first one's ttl has run out");
    pause(stage.ttl() * 3);
    let other = stage.other("orders").fence(Arc::clone(&fence));
    let next = stage.block_on(other.try_acquire()).expect("it can be asked for");
    let next = next.expect("the lease has run out while its holder was stopped");

    assert!(next.token() > lease.token(), "the next token {} is not greater", next.token());
    let check = lease.check().expect_err("the first check after the stop believes in the lease");
    assert_eq!(check.kind(), ErrorKind::Lost);
    stage.block_on(stage.within(stage.slack(), "hearing of the loss", lease.lost()));
    stage.block_on(assert_is_fenced_off(&*fence, &stamp));
    stage.pass(stage.ttl() * 2);
    lease.check().expect_err("a lost lease came back");
    let released = stage.block_on(lease.release());
    assert_eq!(released.expect_err("it was lost").kind(), ErrorKind::Lost);
    stage.block_on(assert_is_undisturbed(stage, next));
}

async fn assert_is_fenced_off(fence: &dyn Fence, stamp: &Stamp) {
    let written = fence.check(stamp).await;
    assert_eq!(written.expect_err("the fence lets the stopped holder write").kind(), ErrorKind::Stale);
    let sealed = fence.seal(stamp).await;
    assert_eq!(sealed.expect_err("the fence lets the stopped holder seal").kind(), ErrorKind::Stale);
}

fn stop_a_process(stage: &Stage<'_>) {
    let fence = stage.fence();
    let mut worker = stage.worker();
    let held = acquire(stage, &mut worker);
    let stamp = Stamp {
        lock: "orders".parse().expect("it is a name"),
        token: held.token,
        holder: held.holder.into(),
    };
    stage.block_on(fence.seal(&stamp)).expect("nothing greater was sealed");
    worker.stop();
    let stopped = stage.now();

    let other = stage.other("orders").fence(Arc::clone(&fence));
    let limit = stage.ttl() + stage.slack();
    let next = stage.block_on(stage.within(limit, "the next holder", other.acquire()));
    let next = next.expect("the lease has run out while its holder was stopped");
    let kept = stage.now().since(held.asked);
    assert!(kept + stage.tolerance() >= stage.ttl(), "the store took it back after {kept:?}");
    assert!(next.token() > held.token, "the next token {} is not greater", next.token());
    stage.pass((stage.ttl() * 3).saturating_sub(stage.now().since(stopped)));

    worker.go_on();
    worker.tell(&Command::Check);
    assert_eq!(worker.answer(limit), Answer::No, "the first check after the stop believes in the lease");
    worker.tell(&Command::Lost(stage.slack()));
    assert_eq!(worker.answer(limit), Answer::Yes, "the stopped holder did not hear of its loss");
    stage.block_on(assert_is_fenced_off(&*fence, &stamp));
    worker.tell(&Command::Release);
    let released = worker.answer(limit);
    assert!(matches!(&released, Answer::Refused { kind, .. } if kind == "Lost"), "it was lost: {released:?}");
    stage.block_on(assert_is_undisturbed(stage, next));
}

/// A worker acquires the lock, which is free.
pub(super) fn acquire(stage: &Stage<'_>, worker: &mut Worker) -> Held {
    stage.tell_to_acquire(worker, "orders", Patience::None);
    match worker.answer(stage.slack()) {
        Answer::Held(held) => held,
        other => panic!("the lock is free, and the worker was told {other:?}"),
    }
}
