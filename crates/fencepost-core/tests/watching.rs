//! Watching, in virtual time and on a store that fails as told: how often it looks, and that it misses nothing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod store;

use std::pin::pin;
use std::time::Duration;

use fencepost_core::{
    Change, ChangeKind, Clock, ErrorKind, Lease, Locks, MarkOn, Status, VirtualTime, Wait, until,
};

use store::{Signals, Store};

const SECOND: Duration = Duration::from_secs(1);

/// A store in virtual time.
fn stage() -> (VirtualTime, Store, Locks) {
    let time = VirtualTime::new(1);
    let store = Store::new(time.clock());
    let locks = Locks::new(store.clone());
    (time, store, locks)
}

async fn take(locks: &Locks, name: &str) -> Lease {
    locks.lock(name).unwrap().history(9).try_acquire().await.unwrap().unwrap()
}

/// Takes the lock and gives it back; the token.
async fn pass_by(locks: &Locks, name: &str) -> u64 {
    let lease = take(locks, name).await;
    let token = lease.token().get();
    lease.release().await.unwrap();
    token
}

/// What is told in words: the lock, what has changed, and the token.
fn told(changes: &[Change]) -> Vec<(&str, ChangeKind, Option<u64>)> {
    let word = |change: &Change| change.state.token.map(fencepost_core::FencingToken::get);
    changes.iter().map(|change| (change.state.name.as_str(), change.kind, word(change))).collect()
}

/// What is told within `limit`.
async fn within(clock: &Clock, limit: Duration, watch: &mut fencepost_core::Watch) -> Vec<Change> {
    let mut changes = Vec::new();
    let end = clock.now().after(limit);
    while let Some(next) = until(clock, Some(end), watch.next()).await {
        changes.extend(next.unwrap());
    }
    changes
}

#[test]
fn burst_of_signals_is_joined() {
    let (time, store, locks) = stage();
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        assert!(watch.next().await.unwrap().is_empty());
        within(&clock, SECOND, &mut watch).await;
        let before = store.looks();
        let flood = async {
            for number in 0..1_000 {
                pass_by(&locks, &format!("flood/{number}")).await;
                clock.sleep(SECOND / 1_000).await;
            }
            take(&locks, "last").await
        };
        let watching = within(&clock, SECOND + SECOND / 10, &mut watch);
        let (changes, _last) = futures_util::future::join(watching, flood).await;
        assert_eq!(changes.last().unwrap().state.name.as_str(), "last");
        let count = store.looks() - before;
        assert!((2..=23).contains(&count), "{count} looks in 1.1 s");
    });
}

#[test]
fn endless_signals_keep_nobody_from_looking() {
    let (time, store, locks) = stage();
    store.set(Signals::Endless);
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        watch.next().await.unwrap();
        let lease = take(&locks, "a").await;
        let changes = within(&clock, SECOND, &mut watch).await;
        assert_eq!(told(&changes), [("a", ChangeKind::Held, Some(lease.token().get()))]);
        assert!(store.looks() <= 23, "{} looks in a second", store.looks());
    });
}

#[test]
fn quiet_store_is_looked_at_every_second_or_every_five_where_it_pushes() {
    for (signals, expected) in [(Signals::None, 9..=11), (Signals::Healthy, 1..=3)] {
        let (time, store, locks) = stage();
        store.set(signals);
        let clock = time.clock();
        let mut watch = locks.watch("");
        time.block_on(async {
            watch.next().await.unwrap();
            within(&clock, SECOND, &mut watch).await;
            let before = store.looks();
            within(&clock, 10 * SECOND, &mut watch).await;
            assert!(expected.contains(&(store.looks() - before)), "{signals:?}: {}", store.looks() - before);
        });
    }
}

#[test]
fn change_is_told_at_once_where_the_store_pushes_and_else_at_the_next_look() {
    for (signals, least, most) in [
        (Signals::Healthy, Duration::ZERO, SECOND / 10),
        (Signals::None, SECOND / 10, SECOND),
        (Signals::Silent, SECOND, 5 * SECOND),
    ] {
        let (time, store, locks) = stage();
        store.set(signals);
        let clock = time.clock();
        let mut watch = locks.watch("");
        time.block_on(async {
            watch.next().await.unwrap();
            within(&clock, SECOND / 2, &mut watch).await;
            let _lease = take(&locks, "a").await;
            let begun = clock.now();
            watch.next().await.unwrap();
            let took = clock.now().since(begun);
            assert!((least..=most).contains(&took), "{signals:?}: {took:?}");
        });
    }
}

#[test]
fn stream_that_ends_is_asked_for_again_and_not_in_a_loop() {
    let (time, store, locks) = stage();
    store.set(Signals::Ended);
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        watch.next().await.unwrap();
        within(&clock, 30 * SECOND, &mut watch).await;
        assert!((3..=8).contains(&store.asked()), "{} times in 30 s", store.asked());
        assert!(store.looks() < 45, "{} looks in 30 s", store.looks());
        store.set(Signals::Healthy);
        within(&clock, 60 * SECOND, &mut watch).await;
        let _lease = take(&locks, "a").await;
        assert_eq!(within(&clock, SECOND / 10, &mut watch).await.len(), 1, "it is listened to again");
    });
}

#[test]
fn outage_is_told_once_and_then_what_is_different() {
    let (time, store, locks) = stage();
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        let (stays, goes) = (take(&locks, "stays").await, take(&locks, "goes").await);
        assert_eq!(watch.next().await.unwrap().len(), 2);
        within(&clock, SECOND, &mut watch).await;
        store.fail(true);
        assert_eq!(watch.next().await.unwrap_err().kind(), ErrorKind::Unavailable);
        let before = store.looks();
        let away = until(&clock, Some(clock.now().after(60 * SECOND)), watch.next()).await;
        assert!(away.is_none(), "it was told");
        let tries = store.looks() - before;
        assert!((8..=25).contains(&tries), "{tries} tries in a minute");
        goes.release().await.unwrap();
        let comes = take(&locks, "comes").await;
        store.fail(false);
        let changes = watch.next().await.unwrap();
        let expected =
            [("comes", ChangeKind::Held, Some(comes.token().get())), ("goes", ChangeKind::Free, None)];
        assert_eq!(told(&changes), expected);
        // A second outage is told, and so is its end, when nothing is different.
        store.fail(true);
        within_error(&clock, &mut watch).await;
        store.fail(false);
        assert!(watch.next().await.unwrap().is_empty());
        drop((stays, comes));
    });
}

async fn within_error(clock: &Clock, watch: &mut fencepost_core::Watch) {
    let next = until(clock, Some(clock.now().after(6 * SECOND)), watch.next()).await;
    assert_eq!(next.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn store_that_gives_no_answer_is_an_outage() {
    let (time, store, locks) = stage();
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        store.hang(true);
        let begun = clock.now();
        assert_eq!(watch.next().await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(clock.now().since(begun) <= 11 * SECOND);
        store.hang(false);
        let _lease = take(&locks, "a").await;
        assert_eq!(watch.next().await.unwrap().len(), 1);
    });
}

#[test]
fn grants_between_two_looks_are_told_in_their_order() {
    let (time, _, locks) = stage();
    let mut watch = locks.watch("");
    time.block_on(async {
        pass_by(&locks, "a").await;
        let first = take(&locks, "a").await;
        assert_eq!(told(&watch.next().await.unwrap()), [("a", ChangeKind::Held, Some(first.token().get()))]);
        first.release().await.unwrap();
        let second = pass_by(&locks, "a").await;
        let third = pass_by(&locks, "a").await;
        let fourth = take(&locks, "a").await;
        let expected = [
            ("a", ChangeKind::Free, None),
            ("a", ChangeKind::Held, Some(second)),
            ("a", ChangeKind::Free, None),
            ("a", ChangeKind::Held, Some(third)),
            ("a", ChangeKind::Free, None),
            ("a", ChangeKind::Held, Some(fourth.token().get())),
        ];
        assert_eq!(told(&watch.next().await.unwrap()), expected);
        fourth.release().await.unwrap();
        assert_eq!(told(&watch.next().await.unwrap()), [("a", ChangeKind::Free, None)]);
    });
}

#[test]
fn grant_of_a_lock_that_was_free_before_and_after_is_told() {
    let (time, _, locks) = stage();
    let clock = time.clock();
    let mut watch = locks.watch("a");
    time.block_on(async {
        pass_by(&locks, "a").await;
        assert!(watch.next().await.unwrap().is_empty(), "what was before the watch is not told");
        assert!(within(&clock, SECOND, &mut watch).await.is_empty());
        for _ in 0..3 {
            let token = pass_by(&locks, "a").await;
            let expected = [("a", ChangeKind::Held, Some(token)), ("a", ChangeKind::Free, None)];
            assert_eq!(told(&watch.next().await.unwrap()), expected);
        }
        assert!(within(&clock, 10 * SECOND, &mut watch).await.is_empty());
    });
}

#[test]
fn grant_that_a_crash_has_ended_between_two_looks_is_told() {
    let (time, _, locks) = stage();
    let clock = time.clock();
    let mut watch = locks.watch("a");
    time.block_on(async {
        watch.next().await.unwrap();
        let lease = take(&locks, "a").await;
        let token = lease.token();
        // It is taken away, so that nobody writes its end down.
        locks.revoke("a", token, "a test").await.unwrap();
        let changes = within(&clock, SECOND, &mut watch).await;
        let expected = [("a", ChangeKind::Held, Some(token.get())), ("a", ChangeKind::Free, None)];
        assert_eq!(told(&changes), expected);
        drop(lease);
        assert!(within(&clock, 10 * SECOND, &mut watch).await.is_empty());
    });
}

#[test]
fn grant_that_begins_during_a_look_is_told_once() {
    let (time, store, locks) = stage();
    let clock = time.clock();
    let mut watch = locks.watch("a");
    time.block_on(async {
        let first = take(&locks, "a").await;
        assert_eq!(watch.next().await.unwrap().len(), 1);
        within(&clock, SECOND, &mut watch).await;
        // What is listed is what was there when the look began.
        store.slow(SECOND / 5);
        let work = async {
            first.release().await.unwrap();
            clock.sleep(SECOND / 10).await;
            take(&locks, "a").await
        };
        let (changes, second) =
            futures_util::future::join(within(&clock, 2 * SECOND, &mut watch), work).await;
        let expected = [("a", ChangeKind::Free, None), ("a", ChangeKind::Held, Some(second.token().get()))];
        assert_eq!(told(&changes), expected);
    });
}

#[test]
fn next_that_is_dropped_at_any_instant_loses_no_change() {
    let (time, store, locks) = stage();
    store.slow(SECOND / 100);
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        let work = async {
            for _ in 0..40 {
                let lease = take(&locks, "a").await;
                clock.sleep(SECOND / 2 + clock.jitter(SECOND / 10)).await;
                lease.release().await.unwrap();
                clock.sleep(SECOND / 2 + clock.jitter(SECOND / 10)).await;
            }
        };
        let mut work = pin!(work);
        let mut changes = Vec::new();
        let mut is_over = false;
        while !is_over {
            let impatient = async {
                let end = clock.now().after(clock.jitter(SECOND / 20));
                if let Some(next) = until(&clock, Some(end), watch.next()).await {
                    changes.extend(next.unwrap());
                }
            };
            is_over = matches!(
                fencepost_core::race(work.as_mut(), impatient).await,
                fencepost_core::Raced::First(())
            );
        }
        changes.extend(within(&clock, SECOND, &mut watch).await);
        let kinds: Vec<ChangeKind> = changes.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [ChangeKind::Held, ChangeKind::Free].repeat(40));
        assert!(changes.windows(2).all(|two| two[0].state.token != two[1].state.token));
    });
}

#[test]
fn lease_that_runs_out_is_told_when_it_does() {
    let (time, store, locks) = stage();
    store.set(Signals::Silent);
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        let request = store::request(&clock, "a", Wait::No, 2 * SECOND);
        let _claim = locks.backend().acquire(&request).await.unwrap();
        let begun = clock.now();
        watch.next().await.unwrap();
        assert_eq!(told(&watch.next().await.unwrap()), [("a", ChangeKind::Free, None)]);
        let took = clock.now().since(begun);
        assert!((2 * SECOND..=2 * SECOND + SECOND / 10).contains(&took), "{took:?}");
    });
}

#[test]
fn renewals_are_told_on_request_alone() {
    for on_request in [true, false] {
        let (time, _, locks) = stage();
        let clock = time.clock();
        let watch = locks.watch("");
        let mut watch = if on_request { watch.with_renewals() } else { watch };
        time.block_on(async {
            let _lease = locks.lock("a").unwrap().ttl(4 * SECOND).try_acquire().await.unwrap().unwrap();
            watch.next().await.unwrap();
            let changes = within(&clock, 20 * SECOND, &mut watch).await;
            assert!(changes.iter().all(|change| change.kind == ChangeKind::Renewed));
            assert_eq!(!changes.is_empty(), on_request, "{changes:?}");
        });
    }
}

#[test]
fn rest_and_waiters_and_readers_are_told() {
    let (time, _, locks) = stage();
    let clock = time.clock();
    let mut watch = locks.watch("");
    time.block_on(async {
        watch.next().await.unwrap();
        let rests = locks.lock("rests").unwrap().at_least(3 * SECOND).try_acquire().await.unwrap().unwrap();
        rests.release().await.unwrap();
        let changes = within(&clock, 4 * SECOND, &mut watch).await;
        let kinds: Vec<_> = changes.iter().map(|change| (change.kind, change.state.status)).collect();
        assert_eq!(kinds, [(ChangeKind::Resting, Status::Resting), (ChangeKind::Free, Status::Free)]);

        let reader =
            || async { locks.lock("shared").unwrap().shared().try_acquire().await.unwrap().unwrap() };
        let first = reader().await;
        assert_eq!(watch.next().await.unwrap()[0].kind, ChangeKind::Held);
        let second = reader().await;
        let changes = watch.next().await.unwrap();
        assert_eq!((changes[0].kind, changes[0].state.readers.len()), (ChangeKind::Readers, 2));
        let lock = locks.lock("shared").unwrap().once_per("p".parse().unwrap(), MarkOn::Start);
        let mut writer = Box::pin(lock.acquire());
        assert!(until(&clock, Some(clock.now().after(SECOND / 100)), writer.as_mut()).await.is_none());
        let changes = watch.next().await.unwrap();
        assert_eq!((changes[0].kind, changes[0].state.waiters.len()), (ChangeKind::Waiters, 1));
        drop(writer);
        assert_eq!(watch.next().await.unwrap()[0].kind, ChangeKind::Waiters);
        first.release().await.unwrap();
        assert_eq!(watch.next().await.unwrap()[0].kind, ChangeKind::Readers);
        second.release().await.unwrap();
        assert_eq!(watch.next().await.unwrap()[0].kind, ChangeKind::Free);
    });
}
