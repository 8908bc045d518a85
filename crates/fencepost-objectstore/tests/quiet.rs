//! What a constructor does, in a process in which nothing else has called a store.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use fencepost_core::{Fence, block_on};
use fencepost_objectstore::ObjectStoreFence;
use fencepost_testkit::servers::S3Server;

/// How many threads this process has.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn constructor_starts_no_thread_and_connects_to_nothing() {
    let server = S3Server::start();
    let address = server.address();
    let url = format!("s3://bucket?endpoint=http://{address}&allow_http=on&test_keys=on");
    let before = threads();
    let fence = ObjectStoreFence::from_url(&url.parse().unwrap()).unwrap();
    assert_eq!((threads(), server.methods().len()), (before, 0));
    let lock = "ledger".parse().unwrap();
    assert_eq!(block_on(fence.mark(&lock)).unwrap(), None);
    assert!(threads() > before && server.methods().len() == 1);
}
