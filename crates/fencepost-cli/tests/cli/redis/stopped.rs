//! A server that is stopped, so that it takes connections and answers nothing: signals hold all the same.

use std::time::Duration;

use rustix::process::Signal;

use super::Scene;
use crate::support::{Running, ends_within, eventually, now_micros};

/// A run that has asked a stopped server, for the lock or to connect.
fn start_asking(scene: &Scene, args: &[&str]) -> Running {
    let through = scene.through();
    let args = ["run", "--backend", &through].into_iter().chain(args.iter().copied());
    let run = scene.home.start(args.chain(["demo", "--", "touch", "ran"]));
    eventually("a connection", || scene.proxy.connections() > 0 && scene.proxy.passed_requests() > 0);
    run
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn signal_ends_the_try_to_reach_a_stopped_server_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let scene = Scene::new();
        scene.server.stop();
        let run = start_asking(&scene, &[]);
        let sent_at = now_micros();
        run.signal(signal);
        ends_within(run, sent_at, Duration::from_millis(1_500)).exits(code);
        scene.server.go_on();
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_in_the_queue_of_a_stopped_server_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let scene = Scene::new();
        let holder = scene.start_holder(&["--ttl", "20s"]);
        let waiter = scene.home.start(["run", "demo", "--", "touch", "ran"]);
        scene.home.await_waiter("demo");
        scene.server.stop();
        let sent_at = now_micros();
        waiter.signal(signal);
        ends_within(waiter, sent_at, Duration::from_millis(1_500)).exits(code);
        scene.server.go_on();
        scene.home.write("stop", "");
        holder.ends().exits(0);
        assert!(!scene.home.path("ran").exists());
    }
}
