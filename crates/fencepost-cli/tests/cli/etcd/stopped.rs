//! A server that is stopped, so that it takes connections and answers nothing: time limits and signals hold all the same.

use std::time::Duration;

use rustix::process::Signal;

use super::Scene;
use crate::faults::{last_act, start_tree};
use crate::support::{Outcome, Running, eventually, is_alive, now_micros, number, sleep};

/// Ends with `outcome` and no more than `most` after `since`.
#[track_caller]
fn ends_within(run: Running, since: u64, most: Duration) -> Outcome {
    let outcome = run.ends();
    let took = Duration::from_micros(now_micros() - since);
    assert!(took < most, "{took:?}: {outcome:?}");
    outcome
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn wait_for_a_stopped_server_ends_in_time() {
    let scene = Scene::new();
    scene.server.stop();
    let before = now_micros();
    let run = scene.home.start(["run", "--wait", "1500ms", "demo", "--", "touch", "ran"]);
    ends_within(run, before, Duration::from_secs(4)).exits(69);
    let before = now_micros();
    let run = scene.home.start(["run", "-n", "demo", "--", "touch", "ran"]);
    ends_within(run, before, Duration::from_secs(4)).exits(69);
    assert!(!scene.home.path("ran").exists());
    scene.server.go_on();
    eventually("nothing held", || !scene.has_place("demo"));
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn wait_in_the_queue_of_a_stopped_server_ends_in_time() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let before = now_micros();
    let waiter = scene.home.start(["run", "--wait", "2s", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    scene.server.stop();
    let waiter = ends_within(waiter, before, Duration::from_millis(4_500));
    assert!([Some(69), Some(75)].contains(&waiter.code), "{waiter:?}");
    scene.server.go_on();
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
    scene.home.run(["run", "--wait", "40s", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_for_a_stopped_server_at_once() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiter = scene.home.start(["run", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    scene.server.stop();
    let through = scene.through();
    let asking = scene.home.start(["run", "--backend", &through, "other", "--", "touch", "ran"]);
    eventually("a connection", || scene.proxy.connections() > 0 && scene.proxy.passed_requests() > 0);
    for (run, signal, code) in [(waiter, Signal::TERM, 143), (asking, Signal::INT, 130)] {
        let sent_at = now_micros();
        run.signal(signal);
        ends_within(run, sent_at, Duration::from_millis(1_500)).exits(code);
    }
    scene.server.go_on();
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_of_a_stopped_server_has_ended_before_it_goes_on() {
    let scene = Scene::new();
    let args = ["run", "--ttl", "1s", "--grace", "200ms"];
    let (first, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    scene.server.stop();
    let first = first.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert!(first.stderr.contains("demo"), "{}", first.stderr);
    scene.server.go_on();
    let next = scene.home.run(["run", "--wait", "10s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(last_act(&scene.home) < number(&next.stdout));
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn server_that_stops_for_a_moment_costs_nothing() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "10s"]);
    let waiter = scene.home.start(["run", "demo", "--", "cat", "held"]);
    scene.home.await_waiter("demo");
    scene.server.stop();
    scene.home.write("stop", "");
    sleep(Duration::from_millis(300));
    scene.server.go_on();
    holder.ends().exits(0);
    waiter.ends().exits(0);
    scene.assert_nothing_is_left();
}
