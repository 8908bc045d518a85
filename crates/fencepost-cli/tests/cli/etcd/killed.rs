//! Runners, guardians and waiters that are killed: what they held comes free, and what they waited for goes on.

use fencepost_testkit::proxy::Mode;
use rustix::process::Signal;
use serde_json::Value;

use super::{Scene, all_end, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Running, child_of, eventually, is_alive, now_micros, send};

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn killed_runner_gives_its_lease_back_long_before_the_ttl() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "60s", "--grace", "300ms"], trap);
        run.kill();
        let next = scene.home.run(["run", "--wait", "30s", "demo", "--", "date", "+%s%6N"]).exits(0);
        assert!(last_act(&scene.home) < number(&next.stdout));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn killed_runner_keeps_the_lock_taken_as_long_as_it_was_to_rest() {
    let scene = Scene::new();
    let before = now_micros();
    let (run, _) =
        start_tree(&scene.home, &["run", "--ttl", "60s", "--grace", "100ms", "--at-least", "2s"], "");
    run.kill();
    let next = scene.home.run(["run", "--wait", "30s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(number(&next.stdout) > before + 2_000_000);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn killed_guardian_takes_the_command_and_the_lease_with_it() {
    let scene = Scene::new();
    let args = ["run", "--ttl", "60s", "--report", "report"];
    let (run, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    send(child_of(run.pid()), Signal::KILL);
    run.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(scene.home.json("report")["lost_reason"], "guardian_died");
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn killed_runner_behind_a_black_hole_gives_its_lease_back_when_that_is_over() {
    let scene = Scene::new();
    let run = scene.start_holder(&["--backend", &scene.through(), "--ttl", "60s"]);
    let guardian = child_of(run.pid());
    scene.proxy.set(Mode::Blackhole);
    run.kill();
    eventually("its own connection", || scene.proxy.connections() > 1);
    assert!(scene.has_place("demo") && is_alive(guardian));
    scene.proxy.set(Mode::Pass);
    eventually("the lease given back", || !scene.has_place("demo"));
    eventually("its end", || !is_alive(guardian));
}

/// Nobody is left to give anything back.
fn kill_everything(run: Running, pids: &[i32]) {
    let guardian = child_of(run.pid());
    // Stopped first, so that neither can act on the other's death.
    send(guardian, Signal::STOP);
    run.signal(Signal::STOP);
    send(guardian, Signal::KILL);
    run.kill();
    pids.iter().filter(|pid| is_alive(**pid)).for_each(|pid| send(*pid, Signal::KILL));
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiter_gets_the_lease_of_the_dead_after_its_ttl() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "2s"], "");
    let waiter = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
    scene.home.await_waiter("demo");
    let killed_at = now_micros();
    kill_everything(run, &pids);
    let began = number(&waiter.ends().exits(0).stdout);
    assert!(began > killed_at + 1_000_000 && began < killed_at + 8_000_000, "{}", began - killed_at);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_and_leaves_no_waiter() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let waiter = scene.home.start(["run", "--report", "report", "demo", "--", "touch", "ran"]);
        scene.home.await_waiter("demo");
        let sent_at = now_micros();
        waiter.signal(signal);
        waiter.ends().exits(code);
        assert!(now_micros() - sent_at < 1_500_000, "at once");
        assert_eq!(scene.status("demo")["waiters"], Value::Array(Vec::new()));
        assert_eq!(scene.home.json("report")["outcome"], "interrupted");
    }
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiters_that_are_killed_or_give_up_leave_the_others_alone() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "2s"]);
    let waiter = |_| scene.home.start(["run", "--wait", "300ms", "demo", "--", "touch", "ran"]);
    all_end((0..6).map(waiter).collect(), 75);
    assert_eq!(scene.status("demo")["waiters"], Value::Array(Vec::new()));
    let killed = scene.home.start(["run", "--ttl", "2s", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    let next = scene.home.start(["run", "demo", "--", "true"]);
    eventually("two waiters", || scene.status("demo")["waiters"].as_array().unwrap().len() == 2);
    killed.kill();
    assert_eq!(scene.status("demo")["token"], number(&scene.home.read("held")));
    scene.home.write("stop", "");
    holder.ends().exits(0);
    next.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn stopped_runner_loses_its_lease_and_touches_nothing_when_it_goes_on() {
    let scene = Scene::new();
    let args = ["run", "--ttl", "1s", "--grace", "200ms", "--report", "report"];
    let (run, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    let script = "date +%s%6N >next; while [ ! -e stop ]; do sleep 0.02; done";
    let next = scene.home.start(["run", "--report", "second", "demo", "--", "sh", "-c", script]);
    scene.home.await_waiter("demo");
    run.signal(Signal::STOP);
    assert!(last_act(&scene.home) < number(&scene.home.await_line("next")));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    run.signal(Signal::CONT);
    run.ends().exits(76);
    assert_eq!(scene.status("demo")["state"], "held");
    scene.home.write("stop", "");
    next.ends().exits(0);
    let tokens = ["report", "second"].map(|report| scene.home.json(report)["token"].as_u64().unwrap());
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}
