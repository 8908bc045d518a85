//! A store that ignores a condition is refused before anything of a lock is put.

use fencepost_core::{ErrorKind, Fence, Severity, block_on};
use fencepost_testkit::servers::{Ignored, S3Server};

use crate::support::{OBJECT, fence, ledger, publish, seal, stamp};

#[test]
fn store_that_ignores_a_condition_is_refused_and_it_is_said_which() {
    for (ignored, header) in [(Ignored::IfMatch, "If-Match"), (Ignored::IfNoneMatch, "If-None-Match")] {
        let server = S3Server::start();
        server.ignore(ignored);
        let fence = fence(server.address());
        let forgotten = block_on(fence.forget(&ledger())).map(drop);
        for answer in [seal(&fence, 7), seal(&fence, 7), forgotten] {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
            assert!(error.to_string().contains(&format!("({header}")), "{error:?}");
        }
        let findings = block_on(fence.findings(&ledger())).unwrap();
        assert!(findings.len() == 1 && findings[0].evidence.contains(header), "{findings:?}");
        assert_eq!(server.keys(), ["exports/fencepost/probe"]);
    }
}

#[test]
fn store_is_probed_once() {
    let server = S3Server::start();
    let fence = fence(server.address());
    seal(&fence, 7).unwrap();
    let probe = server.content("exports/fencepost/probe");
    seal(&crate::support::fence(server.address()), 8).unwrap();
    publish(&fence, 8, "a").unwrap();
    assert_eq!(block_on(fence.findings(&ledger())).unwrap(), []);
    assert!(probe.is_some() && server.content("exports/fencepost/probe") == probe);
}

/// Without a probe, what is put is not what is read.
#[test]
fn seal_in_a_store_that_begins_to_ignore_conditions_is_not_noticed() {
    let server = S3Server::start();
    let fence = fence(server.address());
    seal(&fence, 7).unwrap();
    server.ignore(Ignored::IfMatch);
    let old = server.content(OBJECT).unwrap();
    seal(&fence, 8).unwrap();
    // A put of an older holder that was on its way all the time.
    assert_eq!(server.put(OBJECT, &[("if-match", "\"0\"")], &old), 200);
    block_on(fence.check(&stamp(7, "a"))).unwrap();
}

#[test]
fn look_at_the_store_finds_that_it_ignores_conditions_and_leaves_nothing_behind() {
    let server = S3Server::start();
    let fence = fence(server.address());
    let seen = || block_on(fence.examine()).unwrap().findings;
    assert_eq!(seen()[0].severity, Severity::Note, "nothing was ever sealed there");
    assert_eq!(server.keys(), [""; 0]);
    seal(&fence, 7).unwrap();
    let before = server.content("exports/fencepost/probe");
    assert_eq!(seen(), []);
    assert_eq!(server.content("exports/fencepost/probe"), before);
    for (ignored, header) in [(Ignored::IfNoneMatch, "If-None-Match"), (Ignored::IfMatch, "If-Match")] {
        server.ignore(ignored);
        let found = seen();
        assert!(found[0].severity == Severity::Serious && found[0].evidence.contains(header), "{found:?}");
    }
}
