//! What holders leave beside the token for those to come: the last grants, and the last period that was done.

use std::time::Duration;

use fencepost_core::{Ended, ErrorKind, Lock, Logbook, MarkOn, Raced, Revoked, Status, Wait, race};
use futures_util::future::join_all;

use super::stage::{Stage, take};

pub(super) async fn logbook_is_there_for_the_next_holder(stage: &Stage<'_>) {
    let name = "orders".parse().expect("the suite's names are valid");
    let request = stage.request("orders", Wait::No);
    let mut claim = stage.locks().backend().acquire(&request).await.expect("a free lock can be had");
    let read = async || stage.client().backend().logbook(&name).await.expect("a logbook can be read");
    assert_eq!(read().await, None, "nobody has written yet");
    let long = vec![b'x'; 20_000];
    for content in [&long[..], b"\0 any bytes \xff\n'\"", b""] {
        claim.write_logbook(content).await.expect("its holder can write");
        assert_eq!(read().await.as_deref(), Some(content), "it is what was written");
    }
    claim.write_logbook(b"the last").await.expect("its holder can write");
    claim.release().await.expect("a lease that is held can be released");
    assert_eq!(read().await.as_deref(), Some(&b"the last"[..]), "it outlives the lease");
    let other = "payments".parse().expect("the suite's names are valid");
    let elsewhere = stage.locks().backend().logbook(&other).await.expect("a logbook can be read");
    assert_eq!(elsewhere, None, "each lock has its own");
}

pub(super) async fn lease_that_is_gone_writes_no_logbook(stage: &Stage<'_>) {
    let name = "orders".parse().expect("the suite's names are valid");
    let backend = stage.locks().backend();
    let request = stage.request("orders", Wait::No);
    let mut late = backend.acquire(&request).await.expect("a free lock can be had");
    late.write_logbook(b"early").await.expect("its holder can write");
    let revoked = stage.client().backend().revoke(&name, late.grant().token, "a test").await;
    assert_eq!(revoked.expect("the holder can be revoked"), Revoked::Done);
    let refused = late.write_logbook(b"late").await.expect_err("a lease that is gone wrote");
    assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");

    let client = stage.client();
    let request = stage.request("orders", Wait::No);
    let mut next = client.backend().acquire(&request).await.expect("a lock that was taken away is free");
    next.write_logbook(b"next").await.expect("its holder can write");
    let refused = late.write_logbook(b"too late").await.expect_err("a lease that is gone wrote");
    assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
    let read = backend.logbook(&name).await.expect("a logbook can be read");
    assert_eq!(read.as_deref(), Some(&b"next"[..]), "it is what the present holder wrote");
    next.release().await.expect("a lease that is held can be released");
    drop(late.release().await);
}

pub(super) async fn revoked_lease_writes_no_logbook(stage: &Stage<'_>) {
    let name = "orders".parse().expect("the suite's names are valid");
    let backend = stage.locks().backend();
    let request = stage.request("orders", Wait::No);
    let mut late = backend.acquire(&request).await.expect("a free lock can be had");
    late.write_logbook(b"early").await.expect("its holder can write");
    let revoked = stage.client().backend().revoke(&name, late.grant().token, "a test").await;
    assert_eq!(revoked.expect("the holder can be revoked"), Revoked::Done);
    let refused = late.write_logbook(b"late").await.expect_err("a lease that was taken away wrote");
    assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
    drop(late.release().await);

    let request = stage.request("orders", Wait::No);
    let mut next = stage.client().backend().acquire(&request).await.expect("a lock that was let go is free");
    let read = backend.logbook(&name).await.expect("a logbook can be read");
    assert_eq!(read.as_deref(), Some(&b"early"[..]), "it is what was written before");
    next.write_logbook(b"next").await.expect("its holder can write");
    next.release().await.expect("a lease that is held can be released");
}

pub(super) async fn period_is_begun_once(stage: &Stage<'_>) {
    let first = take(&once(stage, "tick-9", MarkOn::Start)).await;
    let refused = once(stage, "tick-9", MarkOn::Start).try_acquire().await;
    assert_eq!(refused.expect_err("it has begun").kind(), ErrorKind::AlreadyDone);
    first.release().await.expect("a lease that is held can be released");
    for done in ["tick-9", "tick-8"] {
        let refused = once(stage, done, MarkOn::Start).try_acquire().await;
        assert_eq!(refused.expect_err("it is done").kind(), ErrorKind::AlreadyDone, "{done}");
    }
    let next = take(&once(stage, "tick-10", MarkOn::Start)).await;
    next.release().await.expect("a lease that is held can be released");
    let book = stage.client().logbook("orders").await.expect("a logbook can be read");
    assert_eq!(book.last_period.as_deref(), Some("tick-10"));
    // Who asks for no period is not held up by any.
    stage.take("orders").await.release().await.expect("a lease that is held can be released");
}

pub(super) async fn period_counts_as_done_when_its_holder_says_so(stage: &Stage<'_>) {
    let fails = take(&once(stage, "day-1", MarkOn::Success)).await;
    fails.release().await.expect("a lease that is held can be released");
    let succeeds = take(&once(stage, "day-1", MarkOn::Success)).await;
    succeeds.complete().await.expect("a lease that is held can be completed");
    let refused = once(stage, "day-1", MarkOn::Success).try_acquire().await;
    assert_eq!(refused.expect_err("it is done").kind(), ErrorKind::AlreadyDone);
}

pub(super) async fn period_of_many_attempts_is_begun_once(stage: &Stage<'_>) {
    for period in 0..5 {
        let attempt = |_| async move {
            match once(stage, &format!("tick {period}"), MarkOn::Start).acquire().await {
                Ok(lease) => lease.release().await.map(|()| 1),
                Err(error) if error.kind() == ErrorKind::AlreadyDone => Ok(0),
                Err(error) => Err(error),
            }
        };
        let begun =
            join_all((0..8).map(attempt)).await.into_iter().map(|begun| begun.expect("it is asked for"));
        assert_eq!(begun.sum::<u32>(), 1, "so often was period {period} begun");
    }
}

/// A grant is followed by requests about the logbook; whoever drops the call then holds nothing.
pub(super) async fn dropped_acquire_of_a_period_leaves_no_holder(stage: &Stage<'_>) {
    const DROPS: u64 = 100;
    for drop_number in 0..DROPS {
        let lock = once(stage, &drop_number.to_string(), MarkOn::Start);
        let most = Duration::from_millis(6);
        if let Raced::Second(lease) = race(stage.sleep(stage.random_duration(most)), lock.acquire()).await {
            lease.expect("everybody gives the lock back").release().await.expect("it is held");
        }
    }
    stage
        .until_state("orders", "nothing is left of the dropped calls", |seen| seen.status == Status::Free)
        .await;
    stage.take("orders").await.release().await.expect("a lease that is held can be released");
}

pub(super) async fn history_shows_the_last_grants_and_how_they_ended(stage: &Stage<'_>) {
    let mut tokens = Vec::new();
    for _ in 0..4 {
        let lease = take(&stage.other("orders").history(3)).await;
        tokens.push(lease.token());
        lease.release().await.expect("a lease that is held can be released");
    }
    let held = take(&stage.other("orders").history(3)).await;
    tokens.push(held.token());
    let Logbook { grants, .. } = stage.client().logbook("orders").await.expect("a logbook can be read");
    assert_eq!(grants.iter().map(|grant| grant.token).collect::<Vec<_>>(), tokens[2..]);
    assert_eq!((grants[1].ended, grants[2].ended), (Some(Ended::Released), None));
    assert!(grants[1].to_micros >= Some(grants[1].from_micros), "{grants:?}");
    assert_eq!((grants[2].holder, grants[2].label.as_str()), (held.holder(), super::stage::LABEL));
    held.release().await.expect("a lease that is held can be released");
}

pub(super) async fn logbook_is_refused_where_it_is_not_promised(stage: &Stage<'_>) {
    for lock in [once(stage, "day-1", MarkOn::Start), stage.lock("orders").history(1)] {
        let refused = lock.try_acquire().await.expect_err("the profile does not promise it");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
}

fn once(stage: &Stage<'_>, period: &str, mark_on: MarkOn) -> Lock {
    let period = period.parse().expect("the suite's periods are valid");
    stage.other("orders").ttl(stage.long_ttl()).once_per(period, mark_on)
}
