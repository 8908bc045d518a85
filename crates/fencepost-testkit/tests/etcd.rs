//! The etcd servers that tests stand on: stopped, killed, restarted, restored, and three that are one cluster.

use fencepost_testkit::servers::{EtcdCluster, EtcdServer, EtcdSetup, wait_until};

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn etcd_keeps_its_data_over_a_kill_and_goes_back_to_a_snapshot() {
    let mut server = EtcdServer::start();
    server.control(&["put", "a", "1"]);
    let snapshot = server.snapshot();
    server.control(&["put", "b", "2"]);
    let pid = server.pid();
    server.restart();
    assert_ne!(server.pid(), pid);
    assert_eq!(server.keys(""), ["a", "b"]);
    server.restore(&snapshot);
    assert_eq!(server.keys(""), ["a"]);
    server.kill();
    assert!(!server.is_running() && server.try_control(&["get", "a", "--dial-timeout=200ms"]).is_err());
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn etcd_asks_for_a_login_and_for_certificates_where_it_is_told_to() {
    let mut server = EtcdSetup::default().client_certificates().start();
    assert!(server.url().starts_with("etcds://") && server.certificates().authority().is_file());
    server.require_login("s3cret");
    server.add_user("ann", "secret", "/a/");
    server.control(&["put", "/a/b", "1"]);
    assert!(server.figure("grpc_server_started_total{grpc_method=\"Authenticate\"") >= 1.0);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn etcd_cluster_has_another_leader_when_the_first_is_gone() {
    let mut cluster = EtcdCluster::start();
    let leader = cluster.leader();
    assert_ne!(cluster.follower(), leader);
    cluster[leader].kill();
    wait_until("another leads", || cluster.leader() != leader);
    cluster.heal();
    let follower = cluster.follower();
    cluster[follower].stop();
    cluster[cluster.leader()].control(&["put", "a", "1"]);
    cluster.heal();
    assert_eq!(cluster[follower].keys(""), ["a"]);
    assert_eq!(cluster.url_from(1).matches(',').count() + 1, cluster.count());
}
