//! Fencepost is stopped, or the server is: what happens to the lock is what the URL's `on_pause` says, and time limits hold.

use std::time::Duration;

use rustix::process::Signal;

use super::{LOCK, Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Running, child_of, ends_within, eventually, is_alive, now_micros, send, sleep};

const SHORT: [&str; 7] = ["run", "--ttl", "1s", "--grace", "200ms", "--report", "report"];

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_runner_that_holds_keeps_the_lock_and_not_its_command() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::with("on_pause=hold");
        let (run, pids) = start_tree(&scene.home, &SHORT, trap);
        let next = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
        scene.home.await_waiter("demo");
        let stopped_at = now_micros();
        run.signal(Signal::STOP);
        eventually("the end of the command", || pids.iter().all(|pid| !is_alive(*pid)));
        assert!(last_act(&scene.home) < stopped_at + 1_000_000, "before the deadline, by the guardian");
        sleep(Duration::from_millis(1_500));
        scene.home.run(["run", "-n", "demo", "--", "touch", "ran"]).exits(75);
        let went_on_at = now_micros();
        run.signal(Signal::CONT);
        run.ends().exits(76);
        assert_eq!(scene.home.json("report")["outcome"], "lost");
        assert!(number(&next.ends().exits(0).stdout) > went_on_at);
        assert!(!scene.home.path("ran").exists());
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_runner_whose_lease_expires_has_ended_its_command_before_the_next_begins() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::with("on_pause=expire");
        let (run, pids) = start_tree(&scene.home, &SHORT, trap);
        let script = "date +%s%6N >next; while [ ! -e stop ]; do sleep 0.02; done";
        let next = scene.home.start(["run", "--report", "second", "demo", "--", "sh", "-c", script]);
        scene.home.await_waiter("demo");
        let stopped_at = now_micros();
        run.signal(Signal::STOP);
        let began = number(&scene.home.await_line("next"));
        assert!(last_act(&scene.home) < began);
        assert!(began < stopped_at + 4_000_000, "after the ttl: {} µs", began - stopped_at);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        run.signal(Signal::CONT);
        run.ends().exits(76);
        assert_eq!(scene.status("demo")["state"], "held", "the first one touches nothing when it goes on");
        scene.end(next);
        let tokens = ["report", "second"].map(|report| scene.home.json(report)["token"].as_u64().unwrap());
        assert!(tokens[0] < tokens[1], "{tokens:?}");
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_guardian_does_not_keep_a_command_whose_session_has_ended() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &SHORT, "trap '' TERM;");
    send(child_of(run.pid()), Signal::STOP);
    let ended_at = now_micros();
    scene.server.terminate(scene.holding("demo").unwrap());
    eventually("the end of the command", || pids.iter().all(|pid| !is_alive(*pid)));
    assert!(last_act(&scene.home) < ended_at + 4_000_000);
    run.ends().exits(76);
}

/// Has a waiter stopped while it waits, and the lock given to it; `None` where it was stopped between two of its requests.
fn granted_to_a_stopped_waiter(scene: &Scene) -> Option<Running> {
    let mut keeper = scene.server.client().unwrap();
    let call = |what: &str| format!("select {what}({LOCK}, id) from fencepost.lock where name = 'demo'");
    keeper.query(&call("pg_advisory_lock")).unwrap();
    let waiter = scene.home.start(["run", "--ttl", "3200ms", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    waiter.signal(Signal::STOP);
    keeper.query(&call("pg_advisory_unlock")).unwrap();
    sleep(Duration::from_millis(300));
    scene.holding("demo").is_some().then_some(waiter)
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn stopped_waiter_gets_no_lock_that_it_would_keep() {
    let scene = Scene::with("on_pause=hold");
    scene.home.run(["run", "demo", "--", "true"]).exits(0);
    let stopped =
        (0..20).find_map(|_| granted_to_a_stopped_waiter(&scene)).expect("one of them is granted it");
    scene.home.run(["run", "--wait", "12s", "demo", "--", "true"]).exits(0);
    assert!(!scene.home.path("ran").exists());
    // It asks anew, on another session.
    stopped.signal(Signal::CONT);
    stopped.ends().exits(0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_of_a_stopped_server_has_ended_before_its_deadline() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let (first, pids) = start_tree(&scene.home, &SHORT, trap);
        let stopped_at = now_micros();
        scene.server.stop();
        let first = first.ends().exits(76);
        assert!(last_act(&scene.home) < stopped_at + 1_000_000, "before the deadline");
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert!(first.stderr.contains("demo"), "{}", first.stderr);
        scene.server.go_on();
        let next = scene.home.run(["run", "--wait", "10s", "demo", "--", "date", "+%s%6N"]).exits(0);
        assert!(last_act(&scene.home) < number(&next.stdout));
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn wait_for_a_stopped_server_ends_in_time() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "30s"]);
    let queued_at = now_micros();
    let queued = scene.home.start(["run", "--wait", "2s", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    scene.server.stop();
    let queued = ends_within(queued, queued_at, Duration::from_millis(5_500));
    assert!([Some(69), Some(75)].contains(&queued.code), "{queued:?}");
    for args in [&["--wait", "1500ms"][..], &["-n"]] {
        let before = now_micros();
        let args = ["run"].into_iter().chain(args.iter().copied()).chain(["demo", "--", "touch", "ran"]);
        ends_within(scene.home.start(args), before, Duration::from_millis(4_500)).exits(69);
    }
    scene.server.go_on();
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_for_a_stopped_server_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let scene = Scene::new();
        let holder = scene.start_holder(&["--ttl", "30s"]);
        let waiter = scene.home.start(["run", "demo", "--", "touch", "ran"]);
        scene.home.await_waiter("demo");
        scene.server.stop();
        let asking = scene.home.start(["run", "--backend", &scene.through(), "other", "--", "touch", "ran"]);
        eventually("a connection", || scene.proxy.connections() > 0);
        let sent_at = now_micros();
        waiter.signal(signal);
        asking.signal(signal);
        ends_within(waiter, sent_at, Duration::from_secs(2)).exits(code);
        ends_within(asking, sent_at, Duration::from_secs(2)).exits(code);
        scene.server.go_on();
        scene.end(holder);
        assert!(!scene.home.path("ran").exists());
        scene.assert_nothing_is_left();
    }
}
