//! Locks on a ZooKeeper when nothing goes wrong: several of them, their names, order and options.

use super::{Scene, all_end, number};
use crate::support::{Home, Running, eventually};

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn run_itself_is_silent_when_all_goes_well_and_leaves_nothing() {
    let scene = Scene::new();
    assert_eq!(scene.home.run(["run", "demo", "--", "true"]).exits(0).stderr, "");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiters_come_in_the_order_of_their_arrival() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiters: Vec<Running> = (1..=5)
        .map(|count| {
            let script = format!("echo {count} $FENCEPOST_TOKEN >>order");
            let waiter = scene.home.start(["run", "demo", "--", "sh", "-c", &script]);
            eventually("one more waiter", || scene.queue("demo").len() == count + 1);
            waiter
        })
        .collect();
    scene.end(holder);
    all_end(waiters, 0);
    let order = scene.home.read("order");
    let order: Vec<_> = order.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert!(order.is_sorted() && order.len() == 5, "{order:?}");
    assert!(order.is_sorted_by_key(|(_, token)| number(token)), "{order:?}");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn odd_names_are_different_locks_and_shown_as_they_are() {
    let scene = Scene::new();
    let long = "x".repeat(1000);
    let names = ["a//b", "a/b", "..", "zookeeper", "a/../b", "a b", ".", "%2F", "🔒", &long];
    let holders = scene.hold_each_of(&names);
    let mut client = scene.server.client();
    assert_eq!(client.children("/").unwrap().len(), 2, "nothing is made outside of /fencepost");
    assert_eq!(client.children("/zookeeper").unwrap().len(), 2);
    client.close().unwrap();
    drop(holders);
    // Their guardians give back what they held; the sessions of the killed end by themselves.
    eventually("no node of a session", || scene.server.counted("zk_ephemerals_count") == 0);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn locks_below_different_chroots_are_different() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let other = format!("{}/jobs/nightly", scene.server.url());
    let home = Home::on(&other);
    home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    assert_eq!(scene.server.client().children("/jobs/nightly/fencepost").unwrap(), ["demo"]);
    scene.end(holder);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn ttl_that_the_server_does_not_grant_is_said_and_obeyed() {
    let settings = ["tickTime=1000", "minSessionTimeout=2000", "maxSessionTimeout=3000"];
    let server = fencepost_testkit::servers::ZooKeeperSetup::default().settings(&settings).start();
    let home = Home::on(&server.url());
    let run = home.run(["run", "--ttl", "30s", "demo", "--", "true"]).exits(0);
    assert!(run.stderr.contains("a ttl of 3s was granted, not 30s"), "{}", run.stderr);
    // Half of what is certain after a renewal, which is half of what was granted.
    let run = home.run(["run", "--ttl", "3s", "--grace", "700ms", "demo", "--", "true"]).exits(0);
    assert_eq!(run.stderr, "");
    let run = home.run(["run", "--ttl", "3s", "--grace", "800ms", "demo", "--", "touch", "ran"]).exits(64);
    assert!(run.stderr.contains("certain") && !home.path("ran").exists(), "{}", run.stderr);
    home.run(["status", "demo"]).exits(1);
}
