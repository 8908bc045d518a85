//! Requests whose reply is lost: a grant is never taken twice nor left behind, and a release is repeated until it is known.

use fencepost_testkit::proxy::Mode;
use rustix::process::Signal;

use super::Scene;
use crate::support::{eventually, now_micros};

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn grant_that_was_never_heard_of_starts_no_command_and_is_given_back() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let through = scene.through();
    let args = ["run", "--backend", &through, "--ttl", "60s", "-w", "4s", "--report", "report"];
    let waiter = scene.home.start(args.into_iter().chain(["demo", "--", "touch", "ran"]));
    scene.home.await_waiter("demo");
    scene.proxy.set(Mode::ReplyHole);
    scene.end(holder);
    let waiter = waiter.ends();
    assert!([Some(69), Some(75)].contains(&waiter.code), "{waiter:?}");
    assert!(!scene.home.path("ran").exists(), "{waiter:?}");
    scene.proxy.set(Mode::Pass);
    eventually("nothing is left", || scene.queue("demo").is_empty());
}

/// Loses the first try of a release in `hole` and then lets everything pass.
fn release_outlives(hole: Mode) {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s"]);
    scene.proxy.set(hole);
    scene.home.write("stop", "");
    eventually("something is held back", || scene.proxy.held_replies() + scene.proxy.held_requests() > 200);
    scene.reset_connections();
    let run = run.ends().exits(0);
    assert_eq!(run.stderr, "");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn release_whose_reply_was_lost_was_one() {
    release_outlives(Mode::ReplyHole);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn release_that_was_lost_on_its_way_is_sent_again() {
    release_outlives(Mode::RequestHole);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn release_that_could_not_be_sent_is_said_and_bounded_by_the_session() {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "2s"]);
    scene.proxy.set(Mode::Cut);
    scene.home.write("stop", "");
    let run = run.ends().exits(0);
    assert!(run.stderr.contains("demo: cannot release the lock"), "{}", run.stderr);
    scene.home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_for_a_release_that_nobody_answers() {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s", "--report", "report"]);
    scene.proxy.set(Mode::Blackhole);
    scene.home.write("stop", "");
    eventually("a lost release", || scene.proxy.held_requests() > 200);
    let sent_at = now_micros();
    run.signal(Signal::TERM);
    let run = run.ends().exits(0);
    assert!(now_micros() - sent_at < 1_800_000, "at once, and not at the end of the ttl");
    assert!(run.stderr.contains("demo: cannot release the lock"), "{run:?}");
    assert_eq!(scene.home.json("report")["outcome"], "ran");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_in_the_queue_of_a_stopped_server_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let scene = Scene::new();
        let holder = scene.start_holder(&["--ttl", "20s"]);
        let waiter = scene.home.start(["run", "demo", "--", "touch", "ran"]);
        scene.home.await_waiter("demo");
        scene.server.stop();
        let sent_at = now_micros();
        waiter.signal(signal);
        waiter.ends().exits(code);
        assert!(now_micros() - sent_at < 2_000_000, "{} µs", now_micros() - sent_at);
        scene.server.go_on();
        scene.end(holder);
        assert!(!scene.home.path("ran").exists());
    }
}
