//! What a constructor does, in a process in which nothing else has called a store.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use fencepost_core::{Fence, block_on};
use fencepost_objectstore::ObjectStoreFence;
use fencepost_testkit::servers::S3Server;

/// How many threads there are that run clients of stores.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("fencepost-objec")).count()
}

#[test]
fn constructor_starts_no_thread_and_connects_to_nothing() {
    let server = S3Server::start();
    let address = server.address();
    let url = format!("s3://bucket?endpoint=http://{address}&allow_http=on&test_keys=on");
    let fence = ObjectStoreFence::from_url(&url.parse().unwrap()).unwrap();
    assert_eq!((threads(), server.methods().len()), (0, 0));
    let lock = "ledger".parse().unwrap();
    assert_eq!(block_on(fence.mark(&lock)).unwrap(), None);
    assert_eq!((threads(), server.methods().len()), (1, 1));
}
