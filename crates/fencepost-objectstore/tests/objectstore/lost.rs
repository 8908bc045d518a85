//! Answers that are lost, and stores that are busy: what was done is told as done.

use fencepost_core::{ErrorKind, Fence, block_on};
use fencepost_testkit::servers::Fate::{DoneUnanswered, Refused};
use fencepost_testkit::servers::S3Server;

use crate::support::{OBJECT, current, fence, ledger, mark, publish, seal, sealed, stamp};

#[test]
fn seal_whose_answer_is_lost_is_no_stale_one() {
    let (server, fence) = sealed();
    for token in 8..12 {
        server.doom(&[DoneUnanswered]);
        seal(&fence, token).unwrap();
        assert_eq!(mark(&fence), Some(token));
    }
}

#[test]
fn first_seal_whose_answer_is_lost_is_done() {
    let server = S3Server::start();
    // Two puts of the probe come before it.
    let fence = fence(server.address());
    block_on(fence.findings(&ledger())).unwrap();
    server.doom(&[DoneUnanswered]);
    seal(&fence, 7).unwrap();
    assert_eq!(mark(&fence), Some(7));
}

#[test]
fn forgotten_mark_whose_answer_is_lost_was_there() {
    let (server, fence) = sealed();
    server.doom(&[DoneUnanswered]);
    assert!(block_on(fence.forget(&ledger())).unwrap());
    assert!(!block_on(fence.forget(&ledger())).unwrap());
}

#[test]
fn result_whose_answers_are_lost_is_published_once() {
    let (server, fence) = sealed();
    for text in ["one", "two"] {
        server.doom(&[DoneUnanswered, DoneUnanswered]);
        publish(&fence, 7, text).unwrap();
        assert_eq!(current(&fence).as_deref(), Some(text));
    }
    let data = server.keys().iter().filter(|key| key.contains("/data/")).count();
    assert_eq!(data, 2, "{:?}", server.keys());
}

#[test]
fn busy_store_is_asked_again() {
    let (server, fence) = sealed();
    server.doom(&[Refused(503), Refused(409), Refused(500), Refused(429)]);
    seal(&fence, 8).unwrap();
    assert_eq!(mark(&fence), Some(8));
}

#[test]
fn data_that_are_refused_for_a_moment_are_put_all_the_same() {
    let (server, fence) = sealed();
    server.doom(&[Refused(409), Refused(503)]);
    publish(&fence, 7, "one").unwrap();
    assert_eq!(current(&fence).as_deref(), Some("one"));
}

#[test]
fn lower_token_is_stale_also_after_a_lost_answer() {
    let (server, fence) = sealed();
    server.doom(&[DoneUnanswered]);
    seal(&fence, 9).unwrap();
    let error = seal(&fence, 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
}

#[test]
fn seal_that_is_never_answered_is_open() {
    let (server, fence) = sealed();
    server.doom(&vec![Refused(503); 10_000]);
    let error = seal(&fence, 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    server.doom(&[]);
    assert_eq!(mark(&fence), Some(7));
}

#[test]
fn refusal_for_good_is_told_at_once_and_changes_nothing() {
    let (server, fence) = sealed();
    let before = server.content(OBJECT);
    for (status, kind) in
        [(403, ErrorKind::Denied), (501, ErrorKind::Unsupported), (400, ErrorKind::Unexpected)]
    {
        server.doom(&[Refused(status)]);
        let error = seal(&fence, 8).unwrap_err();
        assert_eq!(error.kind(), kind, "{status}: {error:?}");
    }
    assert_eq!(server.content(OBJECT), before);
    block_on(fence.check(&stamp(7, "a"))).unwrap();
}

#[test]
fn store_that_nobody_is_at_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = seal(&fence(address), 7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
