//! Encrypted connections: whom we trust, and who we are.

use std::time::Duration;

use fencepost_core::ErrorKind;
use fencepost_testkit::servers::EtcdServer;
#[cfg(feature = "tls")]
use fencepost_testkit::servers::EtcdSetup;

use super::stage::{block_on, lock};

const TTL: Duration = Duration::from_secs(10);

#[cfg(feature = "tls")]
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn server_with_a_known_authority_is_trusted_and_others_are_not() {
    let server = EtcdSetup::default().tls().start();
    let lease = block_on(lock(&server.url(), "orders", TTL).acquire()).unwrap();
    block_on(lease.release()).unwrap();
    let other = EtcdSetup::default().tls().start();
    let wrong = format!("etcds://{}?ca={}", server.address(), other.certificates().authority().display());
    let refused = block_on(lock(&wrong, "orders", TTL).try_acquire()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused:?}");
    let unknown = format!("etcds://{}?ca=/nosuchfile.pem", server.address());
    let refused = block_on(lock(&unknown, "orders", TTL).try_acquire()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused:?}");
    let plain = format!("etcd://{}", server.address());
    let refused = block_on(lock(&plain, "orders", TTL).try_acquire()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
}

#[cfg(feature = "tls")]
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn server_that_asks_for_a_certificate_gets_ours() {
    let server = EtcdSetup::default().client_certificates().start();
    let certificates = server.certificates();
    let with = format!(
        "{}&cert={}&key={}",
        server.url(),
        certificates.certificate().display(),
        certificates.key().display()
    );
    let lease = block_on(lock(&with, "orders", TTL).acquire()).unwrap();
    block_on(lease.release()).unwrap();
    let refused = block_on(lock(&server.url(), "orders", TTL).try_acquire()).unwrap_err();
    let told = format!("{refused} {}", refused.advice().unwrap_or_default());
    assert!(told.contains("cert="), "{told}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn encryption_that_this_build_lacks_is_refused() {
    let refused = block_on(lock("etcds://127.0.0.1:1", "orders", TTL).try_acquire()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn encryption_with_a_server_that_has_none_is_no_lock() {
    let server = EtcdServer::start();
    let refused = block_on(lock(&format!("etcds://{}", server.address()), "orders", TTL).try_acquire());
    refused.expect_err("it speaks no TLS");
}
