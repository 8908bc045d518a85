//! Every exit code of the table, and what is said with it.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::support::Home;

#[test]
fn command_gives_its_own_exit_code() {
    let home = Home::new();
    for code in [0, 1, 7, 64, 75, 255] {
        home.run(["run", "demo", "--", "sh", "-c", &format!("exit {code}")]).exits(code);
    }
}

#[test]
fn command_that_a_signal_ended_gives_128_and_the_signal() {
    let home = Home::new();
    for signal in [1, 6, 9, 11, 15] {
        home.run(["run", "demo", "--", "sh", "-c", &format!("kill -{signal} $$")]).exits(128 + signal);
    }
}

#[test]
fn usage_errors_exit_64() {
    let home = Home::new();
    let long = "x".repeat(1025);
    for args in [
        &["run"][..],
        &["run", "demo"],
        &["run", "demo", "--"],
        &["run", "--", "true"],
        &["run", "--no-such-flag", "demo", "--", "true"],
        &["run", "--ttl", "30", "demo", "--", "true"],
        &["run", "--ttl", "0s", "demo", "--", "true"],
        &["run", "--wait", "0", "demo", "--", "true"],
        &["run", "--wait", "1s", "-n", "demo", "--", "true"],
        &["run", "--grace", "16s", "demo", "--", "true"],
        &["run", "--grace", "1s", "--ttl", "1s", "demo", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "a\nb", "--", "true"],
        &["run", &long, "--", "true"],
        &["run", "--backend", "nonsense", "demo", "--", "true"],
        &["run", "--backend", "file:relative", "demo", "--", "true"],
        &["run", "--backend", "file:/tmp?fsinc=on", "demo", "--", "true"],
        &["run", "--backend", "sqlite:/tmp/x", "demo", "--", "true"],
        &["run", "--report", "/nonexistent/report", "demo", "--", "true"],
        &["run", "-E", "256", "demo", "--", "true"],
        &["nonsense"],
        &[],
    ] {
        let run = home.run(args);
        assert_eq!(run.code, Some(64), "{args:?}: {run:?}");
        assert!(!run.stderr.is_empty(), "{args:?}");
    }
    assert!(!home.locks().exists(), "nothing was made");
}

#[test]
fn durations_without_a_unit_get_a_hint() {
    let home = Home::new();
    assert!(home.run(["run", "--ttl", "30", "demo", "--", "true"]).exits(64).stderr.contains("30s"));
    assert!(home.run(["run", "--wait", "0", "demo", "--", "true"]).exits(64).stderr.contains("-n"));
}

#[test]
fn help_and_version_are_no_errors() {
    let home = Home::new();
    assert!(home.run(["--help"]).exits(0).stdout.contains("Run a command while holding a lock"));
    assert!(home.run(["run", "--help"]).exits(0).stdout.contains("--max-runtime"));
    assert!(home.run(["--version"]).exits(0).stdout.starts_with("fencepost 0."));
}

#[test]
fn held_lock_exits_75_or_what_the_caller_wants() {
    let home = Home::new();
    let _holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    let refused = home.run(["run", "-n", "--report", "report", "demo", "--", "true"]).exits(75);
    assert!(refused.stderr.contains("demo is held by tester@"), "{}", refused.stderr);
    assert_eq!(home.json("report")["outcome"], "not_acquired");
    assert!(home.json("report")["token"].is_null());
    home.run(["run", "-n", "-E", "0", "demo", "--", "true"]).exits(0);
    home.run(["run", "-n", "--conflict-exit-code", "99", "demo", "--", "true"]).exits(99);
}

#[test]
fn missing_and_unexecutable_commands_exit_127_and_126() {
    let home = Home::new();
    let missing = home.run(["run", "--report", "report", "demo", "--", "nosuchprogram"]).exits(127);
    assert!(missing.stderr.contains("nosuchprogram"), "{}", missing.stderr);
    assert_eq!(home.json("report")["outcome"], "ran");
    home.write("plain", "text\n");
    home.run(["run", "demo", "--", "./plain"]).exits(126);
    home.run(["run", "demo", "--", "."]).exits(126);
    home.run(["run", "demo", "--", ""]).exits(127);
    home.run(["status", "demo"]).exits(1);
}

#[test]
fn denied_directory_exits_77() {
    let home = Home::new();
    std::fs::create_dir(home.path("locks")).unwrap();
    let url = format!("file:{}", home.path("locks").display());
    let args = ["run", "--backend", &url, "demo", "--", "true"];
    if let Some(denied) = home.as_nobody(&args) {
        assert!(denied.exits(77).stderr.contains("Permission denied"));
    }
}

#[test]
fn several_users_share_an_explicit_directory() {
    let home = Home::new();
    std::fs::create_dir(home.path("locks")).unwrap();
    std::fs::set_permissions(home.path("locks"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let url = format!("file:{}", home.path("locks").display());
    home.run(["run", "--backend", &url, "demo", "--", "true"]).exits(0);
    if let Some(other) = home.as_nobody(&["run", "--backend", &url, "demo", "--", "true"]) {
        other.exits(0);
    }
    home.run(["run", "--backend", &url, "demo", "--", "true"]).exits(0);
}

#[test]
fn unusable_directory_exits_69_or_64() {
    let home = Home::new();
    home.write("plain", "");
    let url = format!("file:{}/locks", home.path("plain").display());
    home.run(["run", "-n", "--backend", &url, "demo", "--", "true"]).exits(64);
    std::fs::create_dir_all(home.locks().join("demo.lock")).unwrap();
    home.run(["run", "-n", "demo", "--", "true"]).exits(69);
}

#[test]
fn password_on_the_command_line_draws_a_warning_and_is_never_shown() {
    let home = Home::new();
    let run = home
        .run(["-v", "run", "-n", "--backend", "redis://u:s3cret@127.0.0.1:1/0", "demo", "--", "true"])
        .exits(69);
    assert!(run.stderr.contains("password") && !run.stderr.contains("s3cret"), "{}", run.stderr);
    for flag in ["--backend", "--fence"] {
        let run = home.run(["run", flag, "reddis://u:s3cret@cache/0", "demo", "--", "true"]).exits(64);
        assert!(run.stderr.contains("reddis") && !run.stderr.contains("s3cret"), "{}", run.stderr);
    }
}

#[test]
fn more_locks_than_one_run_can_hold_exit_64() {
    let home = Home::new();
    let names: Vec<_> = (0..101).map(|index| format!("{}{index}", "x".repeat(1000))).collect();
    let all = ["run"].into_iter().chain(names.iter().map(String::as_str)).chain(["--", "true"]);
    assert!(home.run(all).exits(64).stderr.contains("100"));
    let most = ["run"].into_iter().chain(names[..100].iter().map(String::as_str)).chain(["--", "true"]);
    home.run(most).exits(0);
}

#[test]
fn variable_that_is_no_url_is_never_a_local_lock() {
    let home = Home::new();
    let mut run = home.fencepost(["run", "demo", "--", "true"]);
    run.env("FENCEPOST_BACKEND", std::ffi::OsStr::from_bytes(b"\xff"));
    assert_eq!(run.status().unwrap().code(), Some(64));
    assert!(!home.locks().exists());
}

#[test]
fn what_should_not_be_exits_70() {
    let home = Home::new();
    std::fs::create_dir(home.path("sink")).unwrap();
    home.write("sink/demo.mark", "no JSON\n");
    let fence = format!("file:{}", home.path("sink").display());
    let run = home.run(["run", "--fence", &fence, "demo", "--", "touch", "ran"]).exits(70);
    assert!(run.stderr.contains("demo.mark is damaged"), "{}", run.stderr);
    assert!(!home.path("ran").exists());
}

#[test]
fn backend_that_stays_unavailable_is_given_up_after_a_few_seconds() {
    let home = Home::new();
    let run = home.run(["run", "--backend", "file:/proc/nowhere", "demo", "--", "true"]).exits(69);
    assert!(run.stderr.contains("trying again"), "{}", run.stderr);
}

#[test]
fn likely_mistakes_get_a_hint() {
    let home = Home::new();
    assert!(home.run(["run", "nightly", "./job.sh"]).exits(64).stderr.contains("put -- between"));
    assert!(home.run(["run", "demo", "--", "echo hi"]).exits(127).stderr.contains("sh -c 'echo hi'"));
    assert!(
        home.run(["run", "--backend", "memory:", "demo", "--", "true"])
            .exits(0)
            .stderr
            .contains("do not see")
    );
    assert!(
        home.run(["status", "--backend", "file:/nowhere/at/all", "a"])
            .exits(1)
            .stderr
            .contains("does not exist")
    );
}

#[test]
fn run_that_waits_for_its_fence_is_not_told_to_wait_for_itself() {
    let home = Home::new();
    let args = ["run", "--wait", "3s", "--fence", "redis://127.0.0.1:1", "demo", "--", "true"];
    let run = home.run(args).exits(69);
    assert!(run.stderr.contains("trying again") && !run.stderr.contains("waiting:"), "{}", run.stderr);
}
