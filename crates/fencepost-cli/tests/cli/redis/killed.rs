//! Runners, guardians and waiters that are killed: what they held comes free, and what they waited for goes on.

use std::time::Duration;

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::RedisServer;
use rustix::process::Signal;
use serde_json::Value;

use super::{Scene, all_end, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Home, Running, child_of, eventually, is_alive, now_micros, send, sleep};

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_runner_gives_its_lease_back_long_before_the_ttl() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let args = ["run", "--ttl", "60s", "--grace", "300ms"];
        let (run, pids) = start_tree(&scene.home, &args, trap);
        run.kill();
        let next = scene.home.run(["run", "--wait", "30s", "demo", "--", "date", "+%s%6N"]).exits(0);
        assert!(last_act(&scene.home) < number(&next.stdout));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        scene.assert_only_tokens_are_left();
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_guardian_takes_the_command_and_the_lease_with_it() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "60s", "--report", "report"], trap);
        send(child_of(run.pid()), Signal::KILL);
        run.ends().exits(76);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert_eq!(scene.home.json("report")["lost_reason"], "guardian_died");
        scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_runner_behind_a_black_hole_gives_its_lease_back_when_that_is_over() {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s"]);
    let guardian = child_of(run.pid());
    scene.proxy.set(Mode::Blackhole);
    run.kill();
    // What the guardian has become is still the guardian's process.
    eventually("its own connection", || scene.proxy.connections() > 1);
    assert!(scene.has_record("demo") && is_alive(guardian));
    scene.proxy.set(Mode::Pass);
    eventually("the lease given back", || !scene.has_record("demo"));
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
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_of_the_dead_is_free_after_its_ttl_and_said_to_be_held_until_then() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &["run", "--ttl", "3s"], "");
    let (runner, held) = (run.pid(), scene.status("demo"));
    let killed_at = now_micros();
    kill_everything(run, &pids);
    let mut refused = 0;
    loop {
        let run = scene.home.run(["run", "-n", "demo", "--", "true"]);
        if run.code == Some(0) {
            break;
        }
        refused += 1;
        let run = run.exits(75);
        let (token, since) = (held["token"].to_string(), held["since"].as_str().unwrap());
        let who = format!("(fencepost pid {runner})");
        for part in ["demo is held by tester@", &who, since, &token, " left"] {
            assert!(run.stderr.contains(part), "{part} in {}", run.stderr);
        }
        assert!(now_micros() < killed_at + 10_000_000, "the ttl and a second, on a busy machine");
        sleep(Duration::from_millis(500));
    }
    assert!(refused >= 2, "{refused}");
    scene.assert_only_tokens_are_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
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
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
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
    scene.assert_only_tokens_are_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_waiter_does_not_hold_up_the_one_behind_it() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "60s"]);
    let killed = scene.home.start(["run", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    let next = scene.home.start(["run", "demo", "--", "true"]);
    eventually("two waiters", || scene.status("demo")["waiters"].as_array().unwrap().len() == 2);
    killed.kill();
    scene.home.write("stop", "");
    holder.ends().exits(0);
    next.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_is_renewed_until_a_command_that_was_asked_to_end_has_done_so() {
    let scene = Scene::new();
    let script = "trap 'sleep 1.5; date +%s%6N >late; exit 0' TERM; echo >held; while :; do sleep 0.02; done";
    let holder = scene.home.start(["run", "--ttl", "1s", "demo", "--", "sh", "-c", script]);
    scene.home.await_file("held");
    let waiter = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
    scene.home.await_waiter("demo");
    holder.signal(Signal::TERM);
    holder.ends().exits(0);
    let began = number(&waiter.ends().exits(0).stdout);
    assert!(number(&scene.home.read("late")) < began);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiters_that_give_up_leave_the_holder_alone() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "2s"]);
    let waiter = |_| scene.home.start(["run", "--wait", "200ms", "demo", "--", "touch", "ran"]);
    all_end((0..10).map(waiter).collect(), 75);
    assert_eq!(scene.status("demo")["token"], number(&scene.home.read("held")));
    assert_eq!(scene.status("demo")["waiters"], Value::Array(Vec::new()));
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
    scene.assert_only_tokens_are_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn stopped_runner_loses_its_lease_and_touches_nothing_when_it_goes_on() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let args = ["run", "--ttl", "1s", "--grace", "200ms", "--report", "report"];
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
        scene.home.write("stop", "");
        next.ends().exits(0);
        let tokens = ["report", "second"].map(|report| scene.home.json(report)["token"].as_u64().unwrap());
        assert!(tokens[0] < tokens[1], "{tokens:?}");
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_runner_gives_its_lease_back_with_a_password_that_no_process_shows() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret-of-this-test"]);
    let password = server.port().to_string() + "-s3cret";
    assert_eq!(
        server.command(&["ACL", "SETUSER", "u", "on", &format!(">{password}"), "+@all", "~*", "&*"]).text(),
        "OK"
    );
    let url = format!("redis://u:{password}@127.0.0.1:{}?quarantine=off", server.port());
    let home = Home::new();
    home.write(
        "fencepost.toml",
        &format!("[backends.r]\nurl = {url:?}\n[[locks]]\nmatch = '**'\nbackend = 'r'\n"),
    );
    let run = home.start(["run", "demo", "--", "sh", "-c", "env >environment; echo >held; exec sleep 60"]);
    home.await_file("held");
    // Stopped, so that the giving back does not end before it has been looked at.
    server.stop();
    run.kill();
    let arguments = || home.shell("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout;
    eventually("the giving back", || arguments().contains("give-back"));
    assert!(!arguments().contains(&password));
    assert!(!home.read("environment").contains(&password));
    server.go_on();
    home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_for_the_last_of_several_locks_and_frees_the_first() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiter = scene.home.start(["run", "--ttl", "60s", "a", "demo", "z", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    scene.home.run(["run", "-n", "a", "--", "true"]).exits(75);
    waiter.signal(Signal::TERM);
    waiter.ends().exits(143);
    scene.home.run(["run", "-n", "a", "z", "--", "true"]).exits(0);
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
    scene.assert_only_tokens_are_left();
}
