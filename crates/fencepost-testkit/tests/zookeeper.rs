//! `ZooKeeper` servers of the testkit: each start, fault and restart does what it says.

use fencepost_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer, ZooKeeperSetup, wait_until};

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn server_answers_at_its_url_and_counts() {
    let clock = fencepost_core::Clock::system();
    let before = clock.now();
    let server = ZooKeeperServer::start();
    println!("it answers after {:?}", clock.now().since(before));
    assert_eq!(server.url(), format!("zookeeper://127.0.0.1:{}", server.port()));
    assert!(server.ask("srvr").unwrap().contains("Mode: standalone"));
    assert!(server.counted("zk_znode_count") > 0);
    assert!(!server.leads());
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn server_that_cannot_start_says_why() {
    let started = std::panic::catch_unwind(|| ZooKeeperSetup::default().settings(&["tickTime=none"]).start());
    let message = started.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("none"), "{message}");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn stopped_server_answers_when_it_goes_on_and_a_killed_one_after_its_restart() {
    let mut server = ZooKeeperServer::start();
    let (port, process) = (server.port(), server.pid());
    server.stop();
    server.ask("srvr").unwrap_err();
    server.go_on();
    wait_until("it answers again", || server.ask("srvr").is_ok());
    server.kill();
    assert_eq!(server.ask("srvr").unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), process);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn ensemble_elects_another_leader_and_a_member_that_was_cut_off_comes_back() {
    let clock = fencepost_core::Clock::system();
    let before = clock.now();
    let mut ensemble = ZooKeeperEnsemble::start();
    println!("it serves after {:?}", clock.now().since(before));
    let leader = ensemble.leader();
    ensemble.member_mut(leader).kill();
    assert_ne!(ensemble.leader(), leader);
    ensemble.restart(leader);

    let [follower, _] = ensemble.followers();
    let follows =
        || ensemble.member(follower).ask("srvr").is_ok_and(|answer| answer.contains("Mode: follower"));
    ensemble.cut_off(follower);
    wait_until("it is without a leader", || !follows());
    ensemble.rejoin(follower);
    wait_until("it follows again", follows);
}
