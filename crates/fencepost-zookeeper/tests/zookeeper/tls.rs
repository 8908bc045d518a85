//! TLS: with a certificate that is trusted, and not without.

use std::time::Duration;

use fencepost_core::{ErrorKind, block_on};
use fencepost_testkit::servers::ZooKeeperSetup;

use crate::stage::locks;

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn locks_over_tls_need_a_certificate_that_is_trusted() {
    let server = ZooKeeperSetup::default().tls().start();
    let ttl = Duration::from_secs(4);
    let trusting = locks(&server.tls_url());
    let lock = trusting.lock("orders").unwrap().ttl(ttl);
    let mut last = None;
    for _ in 0..20 {
        let lease = block_on(lock.acquire()).unwrap();
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        block_on(lease.release()).unwrap();
    }
    let lease = block_on(lock.acquire()).unwrap();
    crate::stage::sleep(ttl * 3 / 2);
    lease.check().expect("it is renewed");
    block_on(lease.release()).unwrap();

    let mistrusting = locks(&format!("zookeeper://127.0.0.1:{}?tls=on", server.tls_port()));
    let refused = block_on(mistrusting.lock("orders").unwrap().ttl(ttl).try_acquire()).unwrap_err();
    assert!([ErrorKind::Denied, ErrorKind::InvalidArgument].contains(&refused.kind()), "{refused:?}");
    let plain = locks(&format!("zookeeper://127.0.0.1:{}", server.tls_port()));
    let refused = block_on(plain.lock("orders").unwrap().ttl(ttl).try_acquire()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
}
