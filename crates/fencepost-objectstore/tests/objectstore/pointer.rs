//! Results behind a pointer.

use fencepost_core::{ErrorKind, Fence, block_on};

use crate::support::{OBJECT, current, ledger, publish, seal, sealed, stamp};

#[test]
fn result_is_whole_under_the_url_that_is_told() {
    let (server, fence) = sealed();
    assert_eq!(current(&fence), None);
    let url = publish(&fence, 7, "one").unwrap();
    let located = block_on(fence.locate(&ledger(), "totals")).unwrap();
    assert_eq!(located.as_ref(), Some(&url));
    let key = url.strip_prefix("s3://bucket/").unwrap();
    assert!(key.starts_with("exports/fencepost/data/ledger/7-"), "{key}");
    assert_eq!(server.content(key).unwrap(), b"one");
}

#[test]
fn newer_seal_keeps_the_result_and_stops_the_older_holder() {
    let (server, fence) = sealed();
    publish(&fence, 7, "one").unwrap();
    seal(&fence, 8).unwrap();
    assert_eq!(current(&fence).as_deref(), Some("one"));
    let before = server.keys();
    let error = publish(&fence, 7, "two").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    assert_eq!(server.keys(), before, "nothing is put for a stale stamp");
    publish(&fence, 8, "three").unwrap();
    assert_eq!(current(&fence).as_deref(), Some("three"));
}

#[test]
fn stamp_that_was_not_sealed_publishes_nothing() {
    let (_server, fence) = sealed();
    for stamp in [stamp(8, "a"), stamp(7, "b"), stamp(6, "a")] {
        let error = block_on(fence.publish(&stamp, "totals", b"x".to_vec())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    }
    assert_eq!(current(&fence), None);
}

#[test]
fn results_of_one_lock_have_names_of_their_own() {
    let (_server, fence) = sealed();
    for (name, text) in [("totals", "one"), ("details.csv", "two"), ("totals", "three")] {
        block_on(fence.publish(&stamp(7, "a"), name, text.into())).unwrap();
    }
    assert_eq!(current(&fence).as_deref(), Some("three"));
    let details = block_on(fence.read_current(&ledger(), "details.csv")).unwrap();
    assert_eq!(details.as_deref(), Some(&b"two"[..]));
    for name in ["", "a/b", "a b", "ü"] {
        let error = block_on(fence.publish(&stamp(7, "a"), name, Vec::new())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
    }
}

#[test]
fn forgotten_lock_keeps_its_result() {
    let (server, fence) = sealed();
    publish(&fence, 7, "one").unwrap();
    assert!(block_on(fence.forget(&ledger())).unwrap());
    assert_eq!(current(&fence).as_deref(), Some("one"));
    assert!(server.keys().contains(&OBJECT.to_owned()));
    assert_eq!(publish(&fence, 7, "two").unwrap_err().kind(), ErrorKind::Stale);
}
