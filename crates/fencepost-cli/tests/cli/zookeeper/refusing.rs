//! Ensembles that cannot grant anything: no command is started, and one line says why.

use std::io::{Read, Write};
use std::net::TcpListener;

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};

use super::Scene;
use crate::support::{Home, Outcome, now_micros};

/// A try that must not start its command, and says one line about it.
#[track_caller]
fn refuses(url: &str, code: i32, outcome: &str, why: &str) -> Outcome {
    let home = Home::on(url);
    let before = now_micros();
    let run = home.run(["run", "-n", "--report", "report", "demo", "--", "touch", "ran"]).exits(code);
    assert!(!home.path("ran").exists(), "{run:?}");
    assert_eq!(home.json("report")["outcome"], outcome);
    assert_eq!(run.stderr.matches("error:").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("error: demo: ") && run.stderr.contains(why), "{}", run.stderr);
    assert!(now_micros() - before < 8_000_000, "it did not wait for anything");
    run
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn server_that_is_down_starts_no_command() {
    let mut server = ZooKeeperServer::start();
    server.kill();
    refuses(&server.url(), 69, "unavailable", "Connection refused");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn server_behind_a_black_hole_starts_no_command() {
    let scene = Scene::new();
    scene.proxy.set(Mode::Blackhole);
    refuses(&scene.through(), 69, "unavailable", "does not answer");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn ensemble_without_a_majority_starts_no_command() {
    let mut ensemble = ZooKeeperEnsemble::start();
    for member in ensemble.followers() {
        ensemble.member_mut(member).kill();
    }
    refuses(&ensemble.url(), 69, "unavailable", "connect");
}

#[test]
fn what_is_no_zookeeper_starts_no_command() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("zookeeper://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream
                .read(&mut [0; 4096])
                .and_then(|_| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    refuses(&url, 69, "unavailable", "does not welcome us");
}

#[test]
fn url_that_makes_no_sense_is_refused_and_shows_no_password() {
    for (url, why) in [
        ("zookeeper://ann:s3cret@h?acl=none", "acl"),
        ("zookeeper://ann:s3cret@h?timeout=1s", "max_ttl"),
        ("zookeeper://ann@h", "password"),
        ("zookeeper://h/zookeeper/x", "ZooKeeper's own"),
    ] {
        let run = Home::on(url).run(["run", "-n", "demo", "--", "true"]).exits(64);
        assert!(run.stderr.contains(why) && !run.stderr.contains("s3cret"), "{}", run.stderr);
    }
}
