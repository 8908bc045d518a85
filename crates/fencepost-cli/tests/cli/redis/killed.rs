//! What is said of a holder that was killed, and what becomes of those who wait while others are killed.

use std::time::Duration;

use fencepost_testkit::servers::RedisServer;
use rustix::process::Signal;

use super::{Scene, number};
use crate::faults::{kill_everything, start_tree};
use crate::support::{Home, eventually, now_micros, sleep};

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
    scene.assert_nothing_is_left();
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
