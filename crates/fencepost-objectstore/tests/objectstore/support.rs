//! What the tests share: fences of one server, and stamps.

use std::net::SocketAddr;

use fencepost_core::{Fence, LockName, Result, Stamp, StampHolder, block_on};
use fencepost_objectstore::ObjectStoreFence;
use fencepost_testkit::servers::S3Server;

/// Where the object of the lock `ledger` is.
pub(crate) const OBJECT: &str = "exports/fencepost/ledger.mark";

/// A fence in a new server, in which the lock `ledger` is sealed with token 7 of holder `a`.
pub(crate) fn sealed() -> (S3Server, ObjectStoreFence) {
    let server = S3Server::start();
    let fence = fence(server.address());
    seal(&fence, 7).unwrap();
    (server, fence)
}

pub(crate) fn fence(address: SocketAddr) -> ObjectStoreFence {
    let url = format!("s3://bucket/exports?endpoint=http://{address}&allow_http=on&test_keys=on");
    ObjectStoreFence::from_url(&url.parse().unwrap()).unwrap()
}

pub(crate) fn seal(fence: &ObjectStoreFence, token: u64) -> Result<()> {
    block_on(fence.seal(&stamp(token, "a")))
}

/// The token that is sealed.
pub(crate) fn mark(fence: &ObjectStoreFence) -> Option<u64> {
    block_on(fence.mark(&ledger())).unwrap().map(|mark| mark.token.get())
}

pub(crate) fn publish(fence: &ObjectStoreFence, token: u64, text: &str) -> Result<String> {
    block_on(fence.publish(&stamp(token, "a"), "totals", text.into()))
}

/// The current result.
pub(crate) fn current(fence: &ObjectStoreFence) -> Option<String> {
    let bytes = block_on(fence.read_current(&ledger(), "totals")).unwrap();
    bytes.map(|bytes| String::from_utf8(bytes).unwrap())
}

pub(crate) fn ledger() -> LockName {
    "ledger".parse().unwrap()
}

pub(crate) fn stamp(token: u64, holder: &str) -> Stamp {
    let holder = StampHolder::new(holder).unwrap();
    Stamp { lock: ledger(), token: token.try_into().unwrap(), holder }
}
