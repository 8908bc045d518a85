//! A holder whose way to the ensemble is lost in every manner: all of its command has ended before the next one begins.

use fencepost_testkit::proxy::Mode;

use super::{Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Home, eventually, is_alive};

const ROUNDS: usize = 2;

/// The next holder goes straight to the server and waits for the lock while the first one's way there is lost.
fn first_has_ended_before_the_next_begins(fault: Mode, trap: &str) {
    let scene = Scene::new();
    for _ in 0..ROUNDS {
        let home = Home::on(&scene.server.url());
        let through = scene.through();
        let args = ["run", "--backend", &through, "--ttl", "2s", "--grace", "200ms", "--report", "report"];
        let (first, pids) = start_tree(&home, &args, trap);
        let next = home.start(["run", "--report", "next", "demo", "--", "date", "+%s%6N"]);
        home.await_waiter("demo");
        scene.proxy.set(fault);
        let first_act = number(&next.ends().exits(0).stdout);
        assert!(last_act(&home) < first_act, "{} then {first_act}", last_act(&home));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        scene.proxy.set(Mode::Pass);
        let first = first.ends().exits(76);
        let (report, next) = (home.json("report"), home.json("next"));
        assert_eq!(report["outcome"], "lost");
        assert!(report["token"].as_u64().unwrap() < next["token"].as_u64().unwrap());
        let token = report["token"].to_string();
        let line = first.stderr.lines().find(|line| line.contains("error:")).unwrap();
        assert!(line.contains("demo") && line.contains(&token), "{line}");
        home.run(["status", "demo"]).exits(1);
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_behind_a_black_hole_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::Blackhole, "");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_behind_a_black_hole_that_ignores_sigterm_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::Blackhole, "trap '' TERM;");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_that_was_cut_off_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::Cut, "trap '' TERM;");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_that_gets_no_replies_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::ReplyHole, "trap '' TERM;");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_whose_requests_are_lost_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::RequestHole, "trap '' TERM;");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_of_a_stopped_server_has_ended_before_it_goes_on() {
    let scene = Scene::new();
    let args = ["run", "--ttl", "1s", "--grace", "200ms"];
    let (first, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    scene.server.stop();
    first.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    scene.server.go_on();
    let next = scene.home.run(["run", "--wait", "10s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(last_act(&scene.home) < number(&next.stdout));
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_that_was_cut_off_for_a_moment_goes_on() {
    let scene = Scene::new();
    let through = scene.through();
    let args = ["--backend", &through, "--ttl", "4s", "--events", "events", "--report", "report"];
    let run = scene.start_holder(&args);
    for _ in 0..3 {
        scene.reset_connections();
        scene.await_renewals();
    }
    scene.end(run);
    assert_eq!(scene.home.json("report")["token"], number(&scene.home.read("held")));
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn black_hole_that_is_shorter_than_the_lease_is_survived() {
    let scene = Scene::new();
    let through = scene.through();
    let args =
        ["--backend", &through, "--ttl", "20s", "--grace", "1s", "--events", "events", "--report", "report"];
    let run = scene.start_holder(&args);
    scene.proxy.set(Mode::Blackhole);
    // The silent connection is given up after a tenth of the ttl.
    eventually("a second connection", || scene.proxy.connections() > 1);
    scene.proxy.set(Mode::Pass);
    scene.await_renewals();
    scene.end(run);
    assert_eq!(scene.home.json("report")["token"], number(&scene.home.read("held")));
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_lives_through_cuts_and_is_granted_once() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let through = scene.through();
    let script = "echo $FENCEPOST_TOKEN >>ran";
    let waiter = scene.home.start(["run", "--backend", &through, "demo", "--", "sh", "-c", script]);
    scene.home.await_waiter("demo");
    for _ in 0..3 {
        scene.reset_connections();
        assert_eq!(scene.queue("demo").len(), 2, "it keeps its place");
    }
    scene.end(holder);
    waiter.ends().exits(0);
    assert_eq!(scene.home.read("ran").lines().count(), 1);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lease_is_kept_while_the_command_takes_all_processors() {
    let scene = Scene::new();
    let script = "for i in $(seq 12); do timeout 2 sh -c 'while :; do :; done' & done; wait";
    let args = ["run", "--ttl", "4s", "--events", "events", "demo", "--", "sh", "-c", script];
    scene.home.run(args).exits(0);
    assert!(scene.home.read("events").matches("\"renewed\"").count() >= 2);
}
