//! `run` when nothing goes wrong: tokens, environment, waiting, several locks.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Home, eventually, now_micros, sleep};

#[test]
fn twenty_runs_print_twenty_growing_numbers() {
    let home = Home::new();
    let before = now_micros();
    let mut last = before - 1;
    for _ in 0..20 {
        let run = home.run(["run", "demo", "--", "sh", "-c", "echo $FENCEPOST_TOKEN"]).exits(0);
        let token: u64 = run.stdout.trim().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    assert!(last <= now_micros() + 20, "on the scale of microseconds since 1970");
}

/// Eight shells that each add 200 times to a counter, reading and writing without any protection of their own.
fn add_up(home: &Home, each: &str) -> u32 {
    home.write("counter", "0\n");
    home.write("add", "read n <counter; sleep 0.0005; echo $((n + 1)) >counter\n");
    let loops = format!("i=0; while [ $i -lt 200 ]; do {each} || echo failed >>failures; i=$((i + 1)); done");
    let workers: Vec<_> = (0..8).map(|_| home.command("sh").args(["-c", &loops]).spawn().unwrap()).collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(home.read("failures"), "");
    home.read("counter").trim().parse().unwrap()
}

#[test]
fn unprotected_additions_under_the_lock_are_all_counted() {
    let home = Home::new();
    assert_eq!(add_up(&home, "fencepost -q run counter -- sh add"), 1600);
}

#[test]
fn without_the_lock_additions_are_lost() {
    let home = Home::new();
    assert!(add_up(&home, "sh add") < 1600);
}

#[test]
fn command_learns_its_grant_over_inherited_values() {
    let home = Home::new();
    let mut run = home.fencepost(["run", "--report", "report", "a b/ü", "--", "env"]);
    run.env("FENCEPOST_LOCK", "other").env("FENCEPOST_TOKEN", "1").env("FENCEPOST_TOKENS", "[]");
    let output = run.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let report = home.json("report");
    assert!(stdout.contains("FENCEPOST_LOCK=a b/ü\n"));
    assert!(stdout.contains(&format!("FENCEPOST_TOKEN={}\n", report["token"])));
    assert!(stdout.contains(&format!("FENCEPOST_HOLDER={}\n", report["holder"].as_str().unwrap())));
    assert!(stdout.contains("FENCEPOST_BACKEND_KIND=file\n"));
    assert!(!stdout.contains("FENCEPOST_TOKENS"), "it is for several locks");
}

#[test]
fn several_locks_are_held_in_the_order_of_the_command_line() {
    let home = Home::new();
    let run = home
        .run(["run", "z", "a", "--", "sh", "-c", "echo $FENCEPOST_LOCK; echo $FENCEPOST_TOKENS"])
        .exits(0);
    let mut lines = run.stdout.lines();
    assert_eq!(lines.next(), Some("z"));
    let tokens: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&tokens[0]["lock"], &tokens[1]["lock"]), (&"z".into(), &"a".into()));
    assert!(tokens[0]["token"].is_u64() && tokens[0]["holder"].is_string());
    home.run(["run", "a", "a", "--", "true"]).exits(64);
}

#[test]
fn several_locks_in_any_order_do_not_deadlock() {
    let home = Home::new();
    let one = home.start(["run", "a", "b", "c", "--", "sleep", "0.05"]);
    let runs: Vec<_> = (0..6)
        .map(|index| {
            let order = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]][index % 3];
            home.start(["run"].into_iter().chain(order).chain(["--", "sleep", "0.02"]))
        })
        .collect();
    one.ends().exits(0);
    for run in runs {
        run.ends().exits(0);
    }
}

#[test]
fn contended_set_leaves_nothing_held() {
    let home = Home::new();
    let holder = home.start(["run", "b", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    home.run(["run", "-n", "a", "b", "c", "--", "true"]).exits(75);
    for free in ["a", "c"] {
        home.run(["status", free]).exits(1);
    }
    drop(holder);
}

#[test]
fn nested_runs_hold_both_locks() {
    let home = Home::new();
    let script = "fencepost run inner -- sh -c 'fencepost status outer >/dev/null && fencepost status inner'";
    home.run(["run", "outer", "--", "sh", "-c", script]).exits(0);
    home.run(["run", "same", "--", "fencepost", "run", "-n", "same", "--", "true"]).exits(75);
}

#[test]
fn inherited_backend_is_passed_on() {
    let home = Home::new();
    let url = format!("file:{}", home.path("elsewhere").display());
    let mut run =
        home.fencepost(["run", "a", "--", "fencepost", "run", "b", "--", "fencepost", "status", "a"]);
    assert!(run.env("FENCEPOST_BACKEND", &url).status().unwrap().success());
    assert!(home.path("elsewhere/b.lock").exists() && !home.locks().exists());
}

#[test]
fn arguments_and_streams_pass_untouched() {
    let home = Home::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff a\n*$(x)");
    let mut run =
        home.fencepost(["run", "demo", "--", "sh", "-c", "cat; printf '%s' \"$1\"; echo err >&2", "sh"]);
    home.write("input", "from stdin\n");
    run.arg(odd).stdin(std::fs::File::open(home.path("input")).unwrap());
    let output = run.output().unwrap();
    assert_eq!(output.stdout, b"from stdin\n\xff a\n*$(x)");
    assert!(output.stderr.ends_with(b"err\n"));
}

#[test]
fn run_itself_is_silent_when_all_goes_well() {
    let home = Home::new();
    assert!(home.run(["run", "demo", "--", "true"]).exits(0).stderr.contains("this host only"));
    assert_eq!(home.run(["run", "demo", "--", "true"]).exits(0).stderr, "");
    assert!(home.run(["-v", "run", "demo", "--", "true"]).exits(0).stderr.contains("this host only"));
}

#[test]
fn waiter_goes_on_when_the_holder_ends() {
    let home = Home::new();
    home.shell("mkfifo gate").exits(0);
    let holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; read x <gate"]);
    home.await_file("held");
    let waiter = home.start(["run", "demo", "--", "sh", "-c", "cat order; echo second >>order"]);
    home.await_waiter("demo");
    home.shell("echo first >order; echo >gate").exits(0);
    holder.ends();
    assert_eq!(waiter.ends().exits(0).stdout, "first\n");
}

#[test]
fn wait_ends_on_time() {
    let home = Home::new();
    let _holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    let before = now_micros();
    let waited = home.run(["run", "--wait", "300ms", "demo", "--", "true"]).exits(75);
    let took = Duration::from_micros(now_micros() - before);
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    assert!(waited.stderr.contains("held by tester@"), "{}", waited.stderr);
    let status: Value =
        serde_json::from_str(&home.run(["status", "--json", "demo"]).exits(0).stdout).unwrap();
    assert_eq!(status["waiters"], Value::Array(Vec::new()), "nothing of the waiter is left");
}

#[test]
fn long_wait_is_explained() {
    let home = Home::new();
    let _holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    let waited = home.run(["run", "--wait", "1500ms", "demo", "--", "true"]).exits(75);
    assert!(waited.stderr.contains("waiting: demo is held by tester@"), "{}", waited.stderr);
    let quiet = home.run(["-q", "run", "--wait", "1500ms", "demo", "--", "true"]).exits(75);
    assert!(!quiet.stderr.contains("waiting"), "{}", quiet.stderr);
}

#[test]
fn lock_stays_taken_at_least_so_long() {
    let home = Home::new();
    home.run(["run", "--at-least", "2s", "demo", "--", "true"]).exits(0);
    let status: Value =
        serde_json::from_str(&home.run(["status", "--json", "demo"]).exits(0).stdout).unwrap();
    assert_eq!(status["state"], "resting");
    assert!(status["remaining_ms"].as_u64().unwrap() <= 2000 && status["holder"].is_null());
    let refused = home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    assert!(refused.stderr.contains("resting"), "{}", refused.stderr);
    let granted_at = now_micros();
    home.run(["run", "--wait", "30s", "demo", "--", "true"]).exits(0);
    assert!(now_micros() - granted_at > 500_000, "it waited");
}

#[test]
fn next_is_let_in_by_whoever_runs_longer_than_at_least() {
    let home = Home::new();
    home.run(["run", "--at-least", "50ms", "demo", "--", "sleep", "0.2"]).exits(0);
    home.run(["run", "-n", "demo", "--", "true"]).exits(0);
}

#[test]
fn command_is_stopped_after_its_longest_time() {
    let home = Home::new();
    let run = home
        .run(["run", "--max-runtime", "200ms", "--report", "report", "demo", "--", "sleep", "60"])
        .exits(124);
    assert!(run.stderr.contains("200ms"), "{}", run.stderr);
    let report = home.json("report");
    assert_eq!((&report["outcome"], &report["exit_code"]), (&"timed_out".into(), &124.into()));
    home.run(["status", "demo"]).exits(1);
}

#[test]
fn stopped_command_is_ended_after_its_longest_time_too() {
    let home = Home::new();
    home.run(["run", "--max-runtime", "200ms", "demo", "--", "sh", "-c", "kill -STOP $$"]).exits(124);
}

#[test]
fn command_that_ignores_sigterm_is_killed_after_the_grace() {
    let home = Home::new();
    let script = "trap '' TERM; echo >started; while :; do sleep 0.02; done";
    let args = ["run", "--max-runtime", "100ms", "--grace", "300ms", "demo", "--", "sh", "-c", script];
    let before = now_micros();
    home.run(args).exits(124);
    assert!(now_micros() - before >= 400_000);
}

#[test]
fn lock_is_held_while_a_background_process_lives() {
    let home = Home::new();
    let script = "(sleep 2; echo late >>log) & echo $! >pid; exit 3";
    let run = home.start(["run", "demo", "--", "sh", "-c", script]);
    let pid = home.await_line("pid");
    let waiter = home.start(["run", "demo", "--", "sh", "-c", "cat log"]);
    let run = run.ends().exits(3);
    assert!(run.stderr.contains("still held") && run.stderr.contains(&pid), "{}", run.stderr);
    assert_eq!(waiter.ends().exits(0).stdout, "late\n");
}

#[test]
fn daemon_that_left_the_session_keeps_the_lock_too() {
    let home = Home::new();
    // Its streams are closed, so that only the lock can be what is waited for.
    let script = "setsid sh -c '(sleep 1; echo late >>log) & exit' >/dev/null 2>&1 & exit 0";
    home.run(["run", "demo", "--", "sh", "-c", script]).exits(0);
    assert_eq!(home.read("log"), "late\n");
}

#[test]
fn command_that_is_quick_is_never_missed() {
    let home = Home::new();
    for index in 0..30 {
        home.run(["run", "demo", "--", "sh", "-c", "(sleep 0.02; echo >done) >/dev/null 2>&1 & exit 0"])
            .exits(0);
        assert!(home.path("done").exists(), "run {index} returned before its background process ended");
        std::fs::remove_file(home.path("done")).unwrap();
    }
}

#[test]
fn waiter_that_is_killed_leaves_nothing() {
    let home = Home::new();
    let holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    let waiter = home.start(["run", "demo", "--", "true"]);
    home.await_waiter("demo");
    waiter.kill();
    let status = || serde_json::from_str::<Value>(&home.run(["status", "--json", "demo"]).stdout).unwrap();
    eventually("no waiter", || status()["waiters"] == Value::Array(Vec::new()));
    holder.kill();
    home.await_free("demo");
    home.run(["run", "-n", "demo", "--", "true"]).exits(0);
}

#[test]
fn no_guardian_outlives_its_run() {
    let home = Home::new();
    home.run(["run", "demo", "--", "true"]).exits(0);
    home.run(["run", "demo", "--", "nosuchprogram"]).exits(127);
    let mut guardian = None;
    let run = home.start(["run", "demo", "--", "sleep", "0.1"]);
    let _ = guardian.insert(crate::support::child_of(run.pid()));
    run.ends().exits(0);
    sleep(Duration::from_millis(20));
    assert!(!crate::support::is_alive(guardian.unwrap()));
}
