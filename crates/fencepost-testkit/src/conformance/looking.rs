//! Looking at locks: what `inspect` and `list` show, and that names come back as they were given.

use std::time::Duration;

use fencepost_core::{Expiry, Lease, LockState, Status};

use super::stage::{LABEL, Stage};

/// How far the store's wall clock may be from ours, which is that of the same machine.
const CLOCKS_APART: Duration = Duration::from_secs(2);

pub(super) async fn inspect_shows_the_holder_and_its_grant(stage: &Stage<'_>) {
    let before = stage.clock().wall_micros();
    let lease = stage.take("orders").await;
    let after = stage.clock().wall_micros();
    let seen = stage.state("orders").await;
    assert_shows(&seen, &lease);

    let since = seen.since_micros.expect("it is seen since when the lock is held");
    let apart = u64::try_from(CLOCKS_APART.as_micros()).expect("it is seconds");
    assert!(since + apart >= before && since <= after + apart, "held since {since}, not {before} to {after}");
    assert!(seen.waiters.is_empty(), "nobody waits, but {:?}", seen.waiters);
    assert_remaining(stage, &seen);
    let looked_again = stage.client().inspect("orders").await.expect("another client can look");
    assert_shows(&looked_again, &lease);
    lease.release().await.expect("looking did not disturb the holder");
}

fn assert_shows(seen: &LockState, lease: &Lease) {
    assert_eq!(&seen.name, lease.lock(), "another lock is seen");
    assert_eq!(seen.status, Status::Held, "{} is not seen as held", seen.name);
    assert_eq!(seen.holder, Some(lease.holder()), "another holder is seen");
    assert_eq!(seen.token, Some(lease.token()), "another token is seen");
    assert_eq!(seen.label.as_deref(), Some(LABEL), "the holder's label is not seen");
}

fn assert_remaining(stage: &Stage<'_>, seen: &LockState) {
    match (stage.profile().expiry, seen.remaining) {
        (Expiry::AfterTtl, Some(left)) => {
            assert!(
                !left.is_zero() && left <= stage.ttl(),
                "{left:?} are seen to remain of {:?}",
                stage.ttl()
            );
        }
        (Expiry::AfterTtl, None) => panic!("it is not seen when the lease runs out"),
        (Expiry::WithProcess, left) => assert_eq!(left, None, "a lease without ttl is seen to run out"),
        _ => {}
    }
}

pub(super) async fn free_lock_is_seen_as_free(stage: &Stage<'_>) {
    assert_free(&stage.state("orders").await);
    let listed = stage.locks().list("").await.expect("locks can be listed");
    assert!(listed.is_empty(), "looking at a lock made one: {listed:?}");

    stage.take("orders").await.release().await.expect("a lease that is held can be released");
    assert_free(&stage.state("orders").await);
    let listed = stage.locks().list("").await.expect("locks can be listed");
    assert!(listed.is_empty(), "a lock that was released is listed: {listed:?}");
}

fn assert_free(seen: &LockState) {
    assert_eq!(seen.status, Status::Free, "nobody holds it");
    let of_a_holder = (seen.holder, seen.label.as_ref(), seen.since_micros, seen.remaining);
    assert_eq!(of_a_holder, (None, None, None, None), "a free lock is seen with a holder's marks");
    assert!(seen.waiters.is_empty(), "a free lock is seen with waiters: {:?}", seen.waiters);
}

pub(super) async fn list_shows_held_locks_in_the_order_of_their_names(stage: &Stage<'_>) {
    let mut leases = Vec::new();
    for name in ["b/2", "a/2", "c", "a/10", "a", "a/1"] {
        leases.push(stage.take(name).await);
    }
    let released = leases.pop().expect("there are six");
    released.release().await.expect("a lease that is held can be released");

    for (prefix, names) in [
        ("", &["a", "a/10", "a/2", "b/2", "c"][..]),
        ("a/", &["a/10", "a/2"]),
        ("a/1", &["a/10"]),
        ("c", &["c"]),
        ("a%2F", &[]),
        ("d", &[]),
    ] {
        let listed = stage.locks().list(prefix).await.expect("locks can be listed");
        let found: Vec<&str> = listed.iter().map(|seen| seen.name.as_str()).collect();
        assert_eq!(found, names, "the list of {prefix:?}");
        for seen in &listed {
            let lease = leases.iter().find(|lease| lease.lock() == &seen.name);
            assert_shows(seen, lease.expect("it is held"));
        }
    }
    for lease in leases {
        lease.release().await.expect("looking did not disturb the holder");
    }
}

pub(super) async fn awkward_names_are_different_locks_and_come_back_as_given(stage: &Stage<'_>) {
    let mut names = awkward_names();
    let mut leases = Vec::new();
    for name in &names {
        leases.push(stage.take(name).await);
    }
    for (name, lease) in names.iter().zip(&leases) {
        let seen = stage.state(name).await;
        assert_eq!(seen.name.as_str(), name, "the name did not come back as it was given");
        assert_shows(&seen, lease);
    }
    let listed = stage.locks().list("").await.expect("locks can be listed");
    let listed: Vec<String> = listed.into_iter().map(|seen| seen.name.into()).collect();
    names.sort();
    assert_eq!(listed, names, "the names that are listed");
    for lease in leases {
        lease.release().await.expect("a lease that is held can be released");
    }
}

/// Names that a store, a shell, a path, a query or a pattern could take for something else, and pairs that it could
/// take for one another.
pub(crate) fn awkward_names() -> Vec<String> {
    let plain = [
        "a",
        "A",
        " a",
        "a ",
        "a b",
        "a+b",
        "a/b",
        "a/",
        "/a",
        "//",
        "a%2Fb",
        "a%2fb",
        "a%252Fb",
        "a\\b",
        "a:b",
        "a*",
        "a?",
        "[a]",
        "{a}b",
        "{}",
        "$(a)",
        "`a`",
        "a;b",
        "a'b",
        "a\"b",
        "a&b",
        "a=b",
        "a,b",
        "#a",
        "~a",
        "!a",
        "|a",
        ".",
        "..",
        ".a",
        "%2Ea",
        "%2E",
        "...",
        "../a",
        "-",
        "--help",
        "0",
        "00",
        "null",
        "h~",
        "ü",
        "u\u{308}",
        "Ü",
        "ß",
        "日本語",
        "🔒",
        "\u{200b}",
        "a\u{a0}b",
        "\u{202e}a",
    ];
    let long = [
        "x".repeat(200),
        "x".repeat(201),
        "x".repeat(1024),
        format!("{}y", "x".repeat(1023)),
        "/".repeat(1024),
        "ü".repeat(512),
        format!("h~{}", "0".repeat(64)),
    ];
    plain.into_iter().map(str::to_owned).chain(long).collect()
}
