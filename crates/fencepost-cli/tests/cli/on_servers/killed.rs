//! Runners, guardians and waiters that are killed or stopped: what they held comes free, and what they waited for goes on.

use fencepost_testkit::proxy::Mode;
use rustix::process::Signal;
use serde_json::Value;

use crate::faults::{kill_everything, last_act, start_tree};
use crate::scene::{Scene, Server};
use crate::support::{child_of, eventually, is_alive, now_micros, number, send};

on_servers!([redis, etcd, zookeeper] {
    killed_runner_gives_its_lease_back_long_before_the_ttl,
    killed_guardian_takes_the_command_and_the_lease_with_it,
    killed_runner_behind_a_black_hole_gives_its_lease_back_when_that_is_over,
    waiter_gets_the_lease_of_the_dead_after_its_ttl,
    signal_ends_the_wait_and_leaves_no_waiter,
    stopped_runner_loses_its_lease_and_touches_nothing_when_it_goes_on,
});

fn killed_runner_gives_its_lease_back_long_before_the_ttl<S: Server>() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::<S>::new();
        let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "60s", "--grace", "300ms"], trap);
        run.kill();
        let next = scene.home.run(["run", "--wait", "30s", "demo", "--", "date", "+%s%6N"]).exits(0);
        assert!(last_act(&scene.home) < number(&next.stdout));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        scene.server.assert_given_back();
    }
}

fn killed_guardian_takes_the_command_and_the_lease_with_it<S: Server>() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::<S>::new();
        let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "60s", "--report", "report"], trap);
        send(child_of(run.pid()), Signal::KILL);
        run.ends().exits(76);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert_eq!(scene.home.json("report")["lost_reason"], "guardian_died");
        scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    }
}

fn killed_runner_behind_a_black_hole_gives_its_lease_back_when_that_is_over<S: Server>() {
    let scene = Scene::<S>::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s"]);
    let guardian = child_of(run.pid());
    scene.proxy.set(Mode::Blackhole);
    run.kill();
    // What the guardian has become is still the guardian's process.
    eventually("its own connection", || scene.proxy.connections() > 1);
    assert!(scene.has_place("demo") && is_alive(guardian));
    scene.proxy.set(Mode::Pass);
    eventually("the lease given back", || !scene.has_place("demo"));
    eventually("its end", || !is_alive(guardian));
}

fn waiter_gets_the_lease_of_the_dead_after_its_ttl<S: Server>() {
    let scene = Scene::<S>::new();
    let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "2s"], "");
    let waiter = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
    scene.home.await_waiter("demo");
    let killed_at = now_micros();
    kill_everything(run, &pids);
    let began = number(&waiter.ends().exits(0).stdout);
    assert!(began > killed_at + 1_000_000 && began < killed_at + 8_000_000, "{}", began - killed_at);
    scene.assert_nothing_is_left();
}

fn signal_ends_the_wait_and_leaves_no_waiter<S: Server>() {
    let scene = Scene::<S>::new();
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
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

fn stopped_runner_loses_its_lease_and_touches_nothing_when_it_goes_on<S: Server>() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::<S>::new();
        let ttl = format!("{}s", S::TTL);
        let args = ["run", "--ttl", &ttl, "--grace", "200ms", "--report", "report"];
        let (run, pids) = start_tree(&scene.home, &args, trap);
        let script = "date +%s%6N >next; while [ ! -e stop ]; do sleep 0.02; done";
        let next = scene.home.start(["run", "--report", "second", "demo", "--", "sh", "-c", script]);
        scene.home.await_waiter("demo");
        run.signal(Signal::STOP);
        assert!(last_act(&scene.home) < number(&scene.home.await_line("next")));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        run.signal(Signal::CONT);
        run.ends().exits(76);
        assert_eq!(scene.status("demo")["state"], "held");
        scene.end(next);
        let tokens = ["report", "second"].map(|report| scene.home.json(report)["token"].as_u64().unwrap());
        assert!(tokens[0] < tokens[1], "{tokens:?}");
        scene.assert_nothing_is_left();
    }
}
