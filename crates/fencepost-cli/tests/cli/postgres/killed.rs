//! Fencepost is killed: its session, and with it the lock, lasts as long as a process of the command does, and not longer.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::{child_of, eventually, is_alive, now_micros, send, sleep};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn next_holder_acts_after_the_last_act_of_a_killed_one() {
    for trap in ["", "trap '' TERM;"] {
        for options in ["on_pause=hold", "on_pause=expire"] {
            let scene = Scene::with(options);
            let (run, pids) = start_tree(&scene.home, &["run", "--grace", "500ms"], trap);
            let next = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
            scene.home.await_waiter("demo");
            let killed_at = now_micros();
            run.kill();
            let first_act = number(&next.ends().exits(0).stdout);
            assert!(last_act(&scene.home) < first_act);
            assert!(
                first_act - killed_at < 3_000_000,
                "the grace and a moment: {} µs",
                first_act - killed_at
            );
            assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
            scene.assert_nothing_is_left();
        }
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_runner_holds_the_lock_until_the_last_process_of_its_command_has_ended() {
    let scene = Scene::new();
    let args = ["run", "--grace", "2s"];
    let (run, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    let (session, held) = (scene.holding("demo"), scene.status("demo"));
    run.kill();
    scene.home.run(["run", "-n", "demo", "--", "touch", "ran"]).exits(75);
    assert_eq!(scene.holding("demo"), session, "the guardian's copy of the socket keeps the session");
    assert_eq!(scene.status("demo")["token"], held["token"]);
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    eventually("the end of the tree", || pids.iter().all(|pid| !is_alive(*pid)));
    let ended_at = now_micros();
    eventually("a free lock", || scene.holding("demo").is_none());
    assert!(now_micros() - ended_at < 1_500_000);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_guardian_takes_the_command_and_the_session_with_it() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let (run, pids) = start_tree(&scene.home, &["run", "--report", "report"], trap);
        let next = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
        scene.home.await_waiter("demo");
        send(child_of(run.pid()), Signal::KILL);
        run.ends().exits(76);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert_eq!(scene.home.json("report")["lost_reason"], "guardian_died");
        assert!(last_act(&scene.home) < number(&next.ends().exits(0).stdout));
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_runner_and_guardian_leave_no_session_and_no_first_process() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &["run"], "trap '' TERM;");
    let guardian = child_of(run.pid());
    // Stopped first, so that neither can act on the other's death.
    send(guardian, Signal::STOP);
    run.signal(Signal::STOP);
    send(guardian, Signal::KILL);
    run.kill();
    eventually("the death of the command's first process", || pids.iter().any(|pid| !is_alive(*pid)));
    // Nobody is left who could end the others; only a fence protects from them.
    scene.assert_nothing_is_left();
    let next = scene.home.run(["run", "-n", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
    assert!(number(&next.stdout) > 0);
    pids.iter().filter(|pid| is_alive(**pid)).for_each(|pid| send(*pid, Signal::KILL));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_runner_of_a_command_that_closes_all_descriptors_keeps_the_lock_too() {
    let scene = Scene::new();
    let script = "trap '' TERM; for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; echo >held; while :; do sleep 0.1; done";
    let run = scene.home.start(["run", "--grace", "1s", "demo", "--", "sh", "-c", script]);
    scene.home.await_file("held");
    run.kill();
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    scene.home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn command_does_not_inherit_the_session() {
    let scene = Scene::new();
    let script = "for fd in /proc/self/fd/*; do readlink $fd; done; ls /proc/$PPID/fd | wc -l >&2";
    let run = scene.home.run(["run", "demo", "--", "sh", "-c", script]).exits(0);
    assert!(!run.stdout.contains("socket:"), "{run:?}");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_and_leaves_no_place_in_the_queue() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let queue = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let waiter = scene.home.start(["run", "--report", "report", "demo", "--", "touch", "ran"]);
        scene.home.await_waiter("demo");
        let sent_at = now_micros();
        waiter.signal(signal);
        waiter.ends().exits(code);
        assert_eq!(scene.server.query(queue), "0");
        assert!(now_micros() - sent_at < 1_500_000, "at once");
        assert_eq!(scene.status("demo")["waiters"], Value::Array(Vec::new()));
        assert_eq!(scene.home.json("report")["outcome"], "interrupted");
    }
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_waiter_leaves_no_place_in_the_queue_and_gets_no_lock() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let killed = scene.home.start(["run", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    let next = scene.home.start(["run", "demo", "--", "true"]);
    eventually("two waiters", || scene.waiters("demo") == 2);
    killed.kill();
    let killed_at = now_micros();
    scene.end(holder);
    next.ends().exits(0);
    assert!(now_micros() - killed_at < 3_000_000);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lock_is_free_only_after_a_command_that_was_asked_to_end_has_done_so() {
    let scene = Scene::new();
    let script = "trap 'sleep 1.5; date +%s%6N >late; exit 3' TERM; echo >held; while :; do sleep 0.02; done";
    let holder = scene.home.start(["run", "--ttl", "1s", "demo", "--", "sh", "-c", script]);
    scene.home.await_file("held");
    let waiter = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
    scene.home.await_waiter("demo");
    holder.signal(Signal::TERM);
    holder.ends().exits(3);
    let began = number(&waiter.ends().exits(0).stdout);
    assert!(number(&scene.home.read("late")) < began);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn background_process_of_a_command_that_has_ended_keeps_the_lock() {
    let scene = Scene::new();
    let script = "setsid sh -c 'sleep 1.5; date +%s%6N >late' >/dev/null 2>&1 & exit 0";
    let holder = scene.home.start(["run", "demo", "--", "sh", "-c", script]);
    sleep(Duration::from_millis(500));
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    let next = scene.home.run(["run", "--wait", "20s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(number(&scene.home.read("late")) < number(&next.stdout));
    let holder = holder.ends().exits(0);
    assert!(holder.stderr.contains("still held"), "{}", holder.stderr);
}
