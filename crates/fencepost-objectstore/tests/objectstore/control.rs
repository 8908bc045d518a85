//! The usual way, with the token in the metadata of the object, accepts a stale holder; the envelope does not.

use fencepost_core::{ErrorKind, Fence, block_on};
use fencepost_testkit::servers::S3Server;

use crate::support::{OBJECT, current, publish, seal, sealed, stamp};

const TOKEN: &str = "x-amz-meta-token";

/// Reads as a holder would, and gives the ETag if the token in the metadata is not greater.
fn admitted(server: &S3Server, token: u64) -> Option<String> {
    let (etag, metadata) = server.head("totals").unwrap();
    let (_, written) = metadata.into_iter().find(|(name, _)| name == TOKEN).unwrap();
    (written.parse::<u64>().unwrap() <= token).then_some(etag)
}

fn put(server: &S3Server, token: u64, etag: &str, body: &str) -> u16 {
    server.put("totals", &[("if-match", etag), (TOKEN, &token.to_string())], body.as_bytes())
}

#[test]
fn token_in_the_metadata_accepts_a_stale_holder_after_a_put_of_the_same_content() {
    let server = S3Server::start();
    assert_eq!(server.put("totals", &[("if-none-match", "*"), (TOKEN, "7")], b"same"), 200);
    // The old holder looks, and is paused before it puts.
    let seen_by_old = admitted(&server, 7).unwrap();
    // The new one writes the same content once more, under its own token.
    let seen_by_new = admitted(&server, 8).unwrap();
    assert_eq!(put(&server, 8, &seen_by_new, "same"), 200);
    assert_eq!(put(&server, 7, &seen_by_old, "stale"), 200, "the ETag is that of the content alone");
    assert_eq!(server.content("totals").unwrap(), b"stale");
}

#[test]
fn envelope_refuses_a_stale_holder_after_a_result_of_the_same_content() {
    let (server, fence) = sealed();
    publish(&fence, 7, "same").unwrap();
    let (seen_by_old, _) = server.head(OBJECT).unwrap();
    let stale = server.content(OBJECT).unwrap();
    seal(&fence, 8).unwrap();
    publish(&fence, 8, "same").unwrap();
    assert_eq!(server.put(OBJECT, &[("if-match", &seen_by_old)], &stale), 412);
    let error = publish(&fence, 7, "stale").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    assert_eq!(current(&fence).as_deref(), Some("same"));
}

#[test]
fn lock_that_was_forgotten_and_sealed_alike_refuses_the_put_of_before() {
    let (server, fence) = sealed();
    let (seen, _) = server.head(OBJECT).unwrap();
    let late = server.content(OBJECT).unwrap();
    assert!(block_on(fence.forget(&stamp(7, "a").lock)).unwrap());
    for headers in [[("if-match", seen.as_str())], [("if-none-match", "*")]] {
        assert_eq!(server.put(OBJECT, &headers, &late), 412);
    }
    seal(&fence, 7).unwrap();
    assert_eq!(server.put(OBJECT, &[("if-match", &seen)], &late), 412, "no two envelopes have one ETag");
    assert!(!server.methods().contains("DELETE"));
}
