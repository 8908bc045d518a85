//! Processes that are killed or stopped while they hold the lock, wait for it, or have just asked for it.

use std::time::Duration;

use fencepost_core::{Expiry, Waiting};

use super::stage::Stage;
use super::terms::acquire;
use crate::worker::{Answer, Command, Held, Patience, Worker};

pub(super) fn lock_of_a_killed_holder_comes_free(stage: &Stage<'_>) {
    let mut worker = stage.worker();
    let held = acquire(stage, &mut worker);
    worker.kill();
    let next = stage.within(stage.recovery(), "freeing the lock of a killed holder", async {
        stage.lock("orders").acquire().await.expect("its holder is gone")
    });
    let next = stage.block_on(next);
    assert!(next.token() > held.token, "the next token {} is not greater", next.token());
    stage.block_on(next.release()).expect("a lease that is held can be released");
}

/// At whatever instant it dies: before it has asked, while the store grants, or before it has read the answer.
pub(super) fn process_killed_at_any_instant_leaves_no_holder(stage: &Stage<'_>) {
    let times = if stage.profile().expiry == Expiry::WithProcess { 10 } else { 3 };
    for _ in 0..times {
        let mut worker = stage.worker();
        stage.tell_to_acquire(&mut worker, "orders", Patience::Forever);
        stage.pass(stage.random_duration(Duration::from_millis(4)));
        worker.kill();
        stage.block_on(async {
            let lock = stage.lock("orders");
            let next = stage.within(stage.recovery(), "freeing the lock of a killed process", lock.acquire());
            let next = next.await;
            next.expect("its holder is gone").release().await.expect("a lease that is held can be released");
        });
    }
}

pub(super) fn stopped_holder_keeps_the_lock(stage: &Stage<'_>) {
    let mut worker = stage.worker();
    let held = acquire(stage, &mut worker);
    worker.stop();
    stage.block_on(async {
        let waiting = stage.lock("orders").wait(stage.ttl() * 3 / 2);
        let limit = stage.ttl() * 2 + stage.slack();
        let refused = stage.within(limit, "a wait with a limit", waiting.acquire()).await;
        assert!(refused.is_err(), "the lock of a stopped holder was given to another");
        assert_eq!(stage.state("orders").await.token, Some(held.token), "another token is seen");
    });
    worker.go_on();
    worker.tell(&Command::Check);
    assert_eq!(worker.answer(stage.slack()), Answer::Yes, "the stopped holder believes it has lost the lock");
    worker.tell(&Command::Release);
    assert_eq!(worker.answer(stage.slack()), Answer::Yes, "the stopped holder has lost the lock");
    stage.block_on(async {
        stage.take("orders").await.release().await.expect("a lease that is held can be released");
    });
}

/// The grant is on its way while its waiter stands still, so it is old when the waiter reads of it.
pub(super) fn lease_granted_to_a_stopped_waiter_is_not_believed_in_too_long(stage: &Stage<'_>) {
    for stop in [stage.ttl() / 3, stage.ttl() * 9 / 10, stage.ttl() * 3 / 2] {
        let lease = stage.block_on(stage.take("orders"));
        let worker = waiter(stage, 0);
        worker.stop();
        stage.block_on(lease.release()).expect("waiters do not disturb a holder");
        stage.pass(stop);
        worker.go_on();
        match worker.answer(stage.hand_on()) {
            Answer::Held(held) => assert_believes_what_the_store_keeps(stage, worker, held),
            Answer::Refused { .. } => worker.kill(),
            other => panic!("the waiter that was stopped was told {other:?}"),
        }
        let next = stage.within(stage.recovery(), "the next holder", async {
            stage.lock("orders").acquire().await.expect("its holder is gone")
        });
        let next = stage.block_on(next);
        stage.block_on(next.release()).expect("a lease that is held can be released");
    }
}

fn assert_believes_what_the_store_keeps(stage: &Stage<'_>, mut worker: Worker, held: Held) {
    worker.tell(&Command::Deadline);
    let Answer::Until(Some(deadline)) = worker.answer(stage.slack()) else { panic!("the lease runs out") };
    let seen = stage.block_on(stage.state("orders"));
    let end = seen.remaining.map(|left| stage.now().after(left));
    if seen.holder == Some(held.holder) {
        let end = end.expect("it is seen when the lease runs out");
        let too_long = deadline.since(end);
        assert!(
            deadline <= end,
            "the holder believes in its lease for {too_long:?} longer than the store keeps it"
        );
    } else {
        let left = deadline.since(stage.now());
        assert!(
            left.is_zero(),
            "the store keeps nothing for a holder that believes in its lease for {left:?}"
        );
    }
    worker.kill();
}

/// A worker that waits for the lock behind `waiters` others.
fn waiter(stage: &Stage<'_>, waiters: usize) -> Worker {
    let mut worker = stage.worker();
    stage.tell_to_acquire(&mut worker, "orders", Patience::Forever);
    assert_eq!(worker.answer(stage.slack()), Answer::Waiting, "somebody else holds the lock");
    if stage.profile().waiting != Waiting::Polled {
        let seen = stage.until_state("orders", "the waiter is seen", |seen| seen.waiters.len() > waiters);
        stage.block_on(seen);
    }
    worker
}

/// The lock, in whose turn it comes; each gives it back.
fn assert_are_served(stage: &Stage<'_>, mut waiters: Vec<Worker>) {
    let give_up_at = stage.now().after(stage.hand_on() + stage.slack());
    while !waiters.is_empty() {
        assert!(stage.now() < give_up_at, "{} waiters were not served", waiters.len());
        let served = waiters.iter().position(|worker| {
            let answer = worker.answer_within(Duration::from_millis(20));
            assert!(matches!(answer, None | Some(Answer::Held(_))), "a waiter was told {answer:?}");
            answer.is_some()
        });
        if let Some(served) = served {
            let mut worker = waiters.swap_remove(served);
            worker.tell(&Command::Release);
            assert_eq!(worker.answer(stage.slack()), Answer::Yes, "a holder could not give the lock back");
        }
    }
}

pub(super) fn killed_waiter_does_not_keep_others_from_the_lock(stage: &Stage<'_>) {
    let lease = stage.block_on(stage.take("orders"));
    let (first, second, third) = (waiter(stage, 0), waiter(stage, 1), waiter(stage, 2));
    second.kill();
    stage.block_on(lease.release()).expect("waiters do not disturb a holder");
    assert_are_served(stage, vec![first, third]);

    // The one whose turn has come dies at that moment.
    for _ in 0..3 {
        let lease = stage.block_on(stage.take("orders"));
        let (first, second) = (waiter(stage, 0), waiter(stage, 1));
        stage.block_on(lease.release()).expect("waiters do not disturb a holder");
        first.kill();
        assert_are_served(stage, vec![second]);
    }
}

pub(super) fn stopped_waiter_does_not_keep_others_from_the_lock(stage: &Stage<'_>) {
    let lease = stage.block_on(stage.take("orders"));
    let (stopped, mut other) = (waiter(stage, 0), waiter(stage, 1));
    stopped.stop();
    stage.block_on(lease.release()).expect("waiters do not disturb a holder");
    let Answer::Held(held) = other.answer(stage.hand_on()) else { panic!("the other waits for a free lock") };

    stopped.go_on();
    let early = stopped.answer_within(Duration::from_millis(300));
    assert!(!matches!(early, Some(Answer::Held(_))), "there is a second holder");
    other.tell(&Command::Check);
    assert_eq!(other.answer(stage.slack()), Answer::Yes, "the holder lost the lock to one that was stopped");
    let seen = stage.block_on(stage.state("orders"));
    assert_eq!(seen.holder, Some(held.holder), "there is a second holder");
    other.tell(&Command::Release);
    assert_eq!(other.answer(stage.slack()), Answer::Yes, "a holder could not give the lock back");
    match early.unwrap_or_else(|| stopped.answer(stage.hand_on())) {
        Answer::Held(late) => assert!(late.token > held.token, "the token {} came after", late.token),
        Answer::Refused { .. } => {}
        other => panic!("the waiter that was stopped was told {other:?}"),
    }
}
