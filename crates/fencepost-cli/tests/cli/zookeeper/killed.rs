//! Runners, guardians and waiters that are killed or stopped: what they held comes free, and what they waited for goes on.

use fencepost_testkit::proxy::Mode;
use rustix::process::Signal;

use super::{Scene, all_end, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Running, child_of, eventually, is_alive, now_micros, send};

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn killed_runner_gives_its_lease_back_long_before_the_ttl() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let args = ["run", "--ttl", "60s", "--grace", "300ms"];
        let (run, pids) = start_tree(&scene.home, &args, trap);
        run.kill();
        let next = scene.home.run(["run", "--wait", "30s", "demo", "--", "date", "+%s%6N"]).exits(0);
        assert!(last_act(&scene.home) < number(&next.stdout));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert!(scene.queue("demo").is_empty());
    }
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn killed_guardian_takes_the_command_and_the_lease_with_it() {
    let scene = Scene::new();
    let (run, pids) =
        start_tree(&scene.home, &["run", "--ttl", "60s", "--report", "report"], "trap '' TERM;");
    send(child_of(run.pid()), Signal::KILL);
    run.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(scene.home.json("report")["lost_reason"], "guardian_died");
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn killed_runner_behind_a_black_hole_gives_its_lease_back_when_that_is_over() {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s"]);
    let guardian = child_of(run.pid());
    scene.proxy.set(Mode::Blackhole);
    run.kill();
    // What the guardian has become is still the guardian's process.
    eventually("its own connection", || scene.proxy.connections() > 1);
    assert!(scene.queue("demo").len() == 1 && is_alive(guardian));
    scene.proxy.set(Mode::Pass);
    eventually("the lease given back", || scene.queue("demo").is_empty());
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
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_gets_the_lease_of_the_dead_after_its_ttl() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "2s"], "");
    let waiter = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
    scene.home.await_waiter("demo");
    let killed_at = now_micros();
    kill_everything(run, &pids);
    let began = number(&waiter.ends().exits(0).stdout);
    assert!(began > killed_at + 1_000_000 && began < killed_at + 8_000_000, "{}", began - killed_at);
    scene.assert_nothing_is_left();
}

/// Neither the runner nor its command goes on after the stop.
#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn stopped_runner_has_lost_its_lease_and_its_command_has_ended_before_the_next_begins() {
    let scene = Scene::new();
    let args = ["run", "--ttl", "2s", "--grace", "200ms"];
    let (first, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    first.signal(Signal::STOP);
    let next = scene.home.run(["run", "--wait", "20s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(last_act(&scene.home) < number(&next.stdout));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    first.signal(Signal::CONT);
    first.ends().exits(76);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_and_leaves_no_waiter() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let waiter = scene.home.start(["run", "demo", "--", "touch", "ran"]);
        scene.home.await_waiter("demo");
        let sent_at = now_micros();
        waiter.signal(signal);
        waiter.ends().exits(code);
        assert!(now_micros() - sent_at < 1_500_000, "at once");
        assert_eq!(scene.queue("demo").len(), 1);
    }
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn killed_waiters_do_not_keep_others_from_the_lock() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiters: Vec<Running> =
        (0..4).map(|_| scene.home.start(["run", "--ttl", "2s", "demo", "--", "true"])).collect();
    eventually("all wait", || scene.queue("demo").len() == 5);
    let mut waiters = waiters.into_iter();
    let (first, second) = (waiters.next().unwrap(), waiters.next().unwrap());
    second.kill();
    scene.home.write("stop", "");
    first.kill();
    holder.ends().exits(0);
    all_end(waiters.collect(), 0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_whose_lease_was_revoked_ends_its_command_and_is_told_why() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &["run", "--report", "report"], "");
    let state = scene.status("demo");
    let locks = fencepost::connect(&scene.server.url()).unwrap();
    let token = fencepost::FencingToken::try_from(state["token"].as_u64().unwrap()).unwrap();
    fencepost::block_on(locks.revoke("demo", token, "the night shift needs it")).unwrap();
    let run = run.ends().exits(76);
    assert!(run.stderr.contains("the night shift needs it"), "{}", run.stderr);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(scene.home.json("report")["lost_reason"], "revoked");
}
