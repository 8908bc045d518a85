//! Watching: a change is told soon and once, by a signal where the store pushes, and nothing is told where nothing has changed.

use std::time::Duration;

use fencepost_core::{Change, ChangeKind, LockState, NamePrefix, Wait, Watch};
use futures_util::stream::StreamExt;

use super::stage::{LABEL, Stage, take};

/// By when a look without any signal has seen it.
const LOOKED_ANYWAY: Duration = Duration::from_secs(6);

pub(super) async fn watch_begins_with_what_is_not_free(stage: &Stage<'_>) {
    let (held, other) = (stage.take("a/1").await, stage.take("b").await);
    stage.take("a/2").await.release().await.expect("a lease that is held can be released");
    let mut watch = stage.client().watch("a/");
    let changes = next(stage, &mut watch).await;
    let seen: Vec<(&str, ChangeKind)> =
        changes.iter().map(|change| (change.state.name.as_str(), change.kind)).collect();
    assert_eq!(seen, [("a/1", ChangeKind::Held)], "what is not free and begins with a/");
    assert_held(&changes[0].state, &held);
    for lease in [held, other] {
        lease.release().await.expect("watching did not disturb the holder");
    }
}

pub(super) async fn changes_of_the_holder_are_told_in_their_order(stage: &Stage<'_>) {
    let mut watch = stage.client().watch("");
    assert!(next(stage, &mut watch).await.is_empty(), "nobody holds anything yet");
    for _ in 0..3 {
        // Nothing is repaired by its running out.
        let lease = take(&stage.other("orders").ttl(stage.long_ttl())).await;
        let held = next_of(stage, &mut watch, ChangeKind::Held).await;
        assert_held(&held, &lease);
        lease.release().await.expect("watching did not disturb the holder");
        let free = next_of(stage, &mut watch, ChangeKind::Free).await;
        assert_eq!((free.name.as_str(), free.holder, free.token), ("orders", None, None));
    }
}

pub(super) async fn change_is_signalled_where_the_store_pushes(stage: &Stage<'_>) {
    let client = stage.client();
    let asked = client.backend().signals(&NamePrefix::new("ord")).await;
    let Some(mut signals) = asked.expect("signals can be asked for") else { return };
    let lease = stage.take("orders").await;
    let signal = stage.within(stage.slack(), "the signal of a grant", signals.next()).await;
    assert!(signal.is_some(), "the signals have ended");
    // More than one may tell of the grant.
    while let Ok(signal) = quiet(stage, signals.next()).await {
        assert!(signal.is_some(), "the signals have ended");
    }
    lease.release().await.expect("watching did not disturb the holder");
    let signal = stage.within(stage.slack(), "the signal of a release", signals.next()).await;
    assert!(signal.is_some(), "the signals have ended");
}

/// What comes before nothing has come for a while.
async fn quiet<T>(stage: &Stage<'_>, future: impl Future<Output = T>) -> Result<T, ()> {
    let until = stage.now().after(stage.ttl() / 10);
    fencepost_core::until(stage.clock(), Some(until), future).await.ok_or(())
}

pub(super) async fn nothing_is_told_when_nothing_changes(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let mut watch = stage.client().watch("");
    assert_eq!(next(stage, &mut watch).await.len(), 1, "the lock is held");
    let until = stage.now().after(3 * stage.ttl());
    let told = fencepost_core::until(stage.clock(), Some(until), watch.next()).await;
    assert!(told.is_none(), "the holder renews and nothing else happens, but {told:?}");
    lease.release().await.expect("watching did not disturb the holder");
}

pub(super) async fn waiter_that_comes_and_goes_is_told(stage: &Stage<'_>) {
    let lease = take(&stage.lock("orders").ttl(stage.long_ttl())).await;
    let mut watch = stage.client().watch("");
    assert!(next(stage, &mut watch).await[0].state.waiters.is_empty(), "nobody waits yet");
    let other = stage.other("orders");
    let mut waiter = Box::pin(other.acquire());
    let told = async {
        let seen = next_of(stage, &mut watch, ChangeKind::Waiters).await;
        assert_eq!(seen.waiters.len(), 1, "one waits");
    };
    match fencepost_core::race(told, waiter.as_mut()).await {
        fencepost_core::Raced::First(()) => {}
        fencepost_core::Raced::Second(lease) => panic!("it is held, and was given away: {lease:?}"),
    }
    drop(waiter);
    let seen = next_of(stage, &mut watch, ChangeKind::Waiters).await;
    assert!(seen.waiters.is_empty(), "nobody waits any more");
    lease.release().await.expect("watching did not disturb the holder");
}

pub(super) async fn reader_that_comes_is_told(stage: &Stage<'_>) {
    let mut watch = stage.client().watch("");
    assert!(next(stage, &mut watch).await.is_empty(), "nobody holds anything yet");
    let first = take(&stage.lock("orders").shared()).await;
    assert_eq!(next_of(stage, &mut watch, ChangeKind::Held).await.readers.len(), 1);
    let second = take(&stage.other("orders").shared()).await;
    let seen = next_of(stage, &mut watch, ChangeKind::Readers).await;
    let tokens: Vec<_> = seen.readers.iter().map(|reader| reader.token).collect();
    assert_eq!(tokens, [first.token(), second.token()]);
    for lease in [first, second] {
        lease.release().await.expect("watching did not disturb the holder");
    }
}

pub(super) async fn lease_that_runs_out_is_told(stage: &Stage<'_>) {
    let request = stage.request("orders", Wait::No);
    let claim = stage.locks().backend().acquire(&request).await.expect("a free lock can be had");
    let mut watch = stage.client().watch("");
    assert_eq!(next(stage, &mut watch).await[0].state.token, Some(claim.grant().token));
    // Nobody renews it.
    next_of(stage, &mut watch, ChangeKind::Free).await;
    drop(claim.release().await);
}

pub(super) async fn grants_between_two_looks_are_told_from_the_logbook(stage: &Stage<'_>) {
    let first = take(&stage.lock("orders").history(9)).await;
    let mut watch = stage.client().watch("");
    assert_eq!(next(stage, &mut watch).await[0].state.token, Some(first.token()));
    let mut tokens = Vec::new();
    first.release().await.expect("a lease that is held can be released");
    for _ in 0..3 {
        let lease = take(&stage.other("orders").history(9)).await;
        tokens.push(lease.token());
        lease.release().await.expect("a lease that is held can be released");
    }
    let mut told = Vec::new();
    while told.len() < tokens.len() {
        let changes = next(stage, &mut watch).await;
        told.extend(changes.iter().filter_map(|change| change.state.token));
    }
    assert_eq!(told, tokens, "so it was held while nobody looked");
}

/// The next changes, which must come.
async fn next(stage: &Stage<'_>, watch: &mut Watch) -> Vec<Change> {
    let limit = stage.ttl() + stage.slack() + LOOKED_ANYWAY;
    stage.within(limit, "the next change", watch.next()).await.expect("locks can be watched")
}

/// The next change, which must be of this kind.
async fn next_of(stage: &Stage<'_>, watch: &mut Watch, kind: ChangeKind) -> LockState {
    let mut changes = next(stage, watch).await;
    let change = changes.pop().expect("there is a change");
    assert!(changes.is_empty() && change.kind == kind, "{kind:?} was due, but {change:?} after {changes:?}");
    change.state
}

fn assert_held(seen: &LockState, lease: &fencepost_core::Lease) {
    assert_eq!(
        (seen.holder, seen.token),
        (Some(lease.holder()), Some(lease.token())),
        "another grant is told"
    );
    assert_eq!(seen.label.as_deref(), Some(LABEL), "the holder's label is not told");
}
