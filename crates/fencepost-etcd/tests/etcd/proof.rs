//! Writes to etcd under a lock of etcd.

use std::time::Duration;

use fencepost_core::{ErrorKind, Locks};
use fencepost_etcd::Proof;
use fencepost_testkit::servers::EtcdServer;

use super::stage::{backend, block_on, locks};

/// Writes `value` with another client, if what is compared holds.
fn write(server: &EtcdServer, proof: &Proof, value: &str) -> bool {
    let Proof { key, create_revision, .. } = proof;
    let transaction = format!("create(\"{key}\") = \"{create_revision}\"\n\nput data {value}\n\n\n");
    server.control_with(&["txn"], &transaction).contains("SUCCESS")
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn transaction_of_a_former_holder_writes_nothing() {
    let server = EtcdServer::start();
    let backend = backend(&server.url());
    let client = Locks::new(backend.clone());
    block_on(async {
        let ttl = Duration::from_secs(20);
        let lease = client.lock("orders").unwrap().ttl(ttl).acquire().await.unwrap();
        let proof = backend.proof(&lease).await.unwrap();
        assert!(write(&server, &proof, "first"));
        locks(&server.url()).revoke("orders", lease.token(), "a test").await.unwrap();
        let next = client.lock("orders").unwrap().ttl(ttl).acquire().await.unwrap();
        assert!(!write(&server, &proof, "late"), "a former holder has written");
        assert!(write(&server, &backend.proof(&next).await.unwrap(), "second"));
        assert_eq!(server.control(&["get", "--print-value-only", "data"]), "second");
        assert_eq!(backend.proof(&lease).await.unwrap_err().kind(), ErrorKind::Lost);
        next.release().await.unwrap();
    });
}
