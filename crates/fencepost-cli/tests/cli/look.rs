//! `status`, `list` and `explain`.

use serde_json::Value;

use crate::support::{Home, assert_has_every_key, eventually};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn status_says_held_or_free() {
    let home = Home::new();
    assert_eq!(home.run(["status", "demo"]).exits(1).stdout, "demo is free\n");
    let run = home.run(["run", "demo", "--", "fencepost", "status", "demo"]).exits(0);
    assert!(run.stdout.starts_with("demo is held by tester@"), "{}", run.stdout);
    assert!(!home.locks().join("other.lock").exists());
    home.run(["status", "other"]).exits(1);
    assert!(!home.locks().join("other.lock").exists(), "a look makes nothing");
}

#[test]
fn status_as_json_has_every_key() {
    let home = Home::new();
    let run = home
        .run(["run", "--report", "report", "demo", "--", "fencepost", "--json", "status", "demo"])
        .exits(0);
    let (status, report) = (json(&run.stdout), home.json("report"));
    assert_eq!(
        (&status["lock"], &status["state"], &status["backend"]),
        (&"demo".into(), &"held".into(), &"file".into())
    );
    assert_eq!((&status["token"], &status["holder"]), (&report["token"], &report["holder"]));
    assert_eq!((&status["remaining_ms"], &status["waiters"]), (&Value::Null, &Value::Array(Vec::new())));
    let since = status["since"].as_str().unwrap();
    assert!(since.len() == 27 && since.ends_with('Z'), "{since}");
    assert_eq!(report["holder"].as_str().unwrap().len(), 32);
    let free = json(&home.run(["status", "--json", "demo"]).exits(1).stdout);
    assert_has_every_key(&free);
    assert_eq!((&free["state"], &free["token"]), (&"free".into(), &Value::Null));
}

#[test]
fn arguments_of_commands_are_shown_to_nobody() {
    let home = Home::new();
    let holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60", "s3cret"]);
    home.await_file("held");
    let waiter = home.start(["run", "demo", "--", "/bin/echo", "s3cret"]);
    home.await_waiter("demo");
    let refused = home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    let seen = format!("{refused:?} {:?} {:?}", home.run(["status", "demo"]), home.run(["list", "--json"]));
    assert!(seen.contains("echo (fencepost pid") && !seen.contains("s3cret"), "{seen}");
    assert!(!std::fs::read_to_string(home.locks().join("demo.lock")).unwrap().contains("s3cret"));
    drop((holder, waiter));
}

#[test]
fn waiters_are_shown() {
    let home = Home::new();
    let _holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    let waiter = home.start(["run", "demo", "--", "true"]);
    home.await_waiter("demo");
    let status = json(&home.run(["status", "--json", "demo"]).exits(0).stdout);
    let label = status["waiters"][0]["label"].as_str().unwrap();
    assert!(label.contains(&format!("pid {}", waiter.pid())), "{label}");
    assert!(status["waiters"][0]["since"].is_null());
}

#[test]
fn list_shows_held_locks_as_the_user_named_them() {
    let home = Home::new();
    let long = "x".repeat(300);
    let names = ["a b/ü", "ledger/2026", ".hidden", "50%", &long];
    let holders: Vec<_> = names.iter().map(|name| home.start(["run", name, "--", "sleep", "60"])).collect();
    eventually("all holders", || {
        json(&home.run(["list", "--json"]).stdout).as_array().unwrap().len() == names.len()
    });
    let list = json(&home.run(["list", "--json"]).exits(0).stdout);
    let mut sorted = names;
    sorted.sort_unstable();
    let listed: Vec<_> =
        list.as_array().unwrap().iter().map(|state| state["lock"].as_str().unwrap()).collect();
    assert_eq!(listed, sorted);
    let ledger = json(&home.run(["list", "--json", "led"]).exits(0).stdout);
    assert_eq!(ledger.as_array().unwrap().len(), 1);
    drop(holders);
    eventually("no holder", || json(&home.run(["list", "--json"]).stdout) == Value::Array(Vec::new()));
    assert!(home.run(["list"]).exits(0).stderr.contains("no lock is held"));
}

#[test]
fn onlookers_never_make_a_try_fail() {
    let home = Home::new();
    home.run(["run", "demo", "--", "true"]).exits(0);
    let looker = crate::support::Running::of(
        home.command("sh").args(["-c", "while :; do fencepost status demo; fencepost list; done"]),
    );
    for _ in 0..50 {
        home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    }
    looker.kill();
}

#[test]
fn explain_says_where_why_and_when_two_could_overlap() {
    let home = Home::new();
    let explained = home.run(["explain", "demo"]).exits(0).stdout;
    for part in ["this host only", "default", "state/fencepost", "overlap", "other hosts"] {
        assert!(explained.contains(part), "{part} in {explained}");
    }
    let explained = json(&home.run(["explain", "--json", "--backend", "memory:", "demo"]).exits(0).stdout);
    assert_eq!((&explained["backend"], &explained["scope"]), (&"memory".into(), &"this process only".into()));
    assert_eq!(explained["ttl_ms"], 30_000);
}

#[test]
fn flags_are_taken_before_and_after_the_subcommand() {
    let home = Home::new();
    let url = format!("file:{}", home.path("x").display());
    home.run(["--json", "--backend", &url, "status", "demo"]).exits(1);
    home.run(["status", "demo", "--json", "--backend", &url]).exits(1);
}

#[test]
fn line_of_an_earlier_holder_is_not_believed() {
    let home = Home::new();
    home.run(["run", "demo", "--", "true"]).exits(0);
    let stale = std::fs::read(home.locks().join("demo.lock")).unwrap();
    let _holder = home.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    std::fs::write(home.locks().join("demo.lock"), stale).unwrap();
    let status = json(&home.run(["status", "--json", "demo"]).exits(0).stdout);
    assert_eq!(
        (&status["state"], &status["holder"], &status["token"]),
        (&"held".into(), &Value::Null, &Value::Null)
    );
}

#[test]
fn lift_raises_the_next_token_and_never_lowers_it() {
    let home = Home::new();
    let token = || {
        let run = home.run(["run", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
        run.stdout.trim().parse::<u64>().unwrap()
    };
    let far = token() + 3_600_000_000;
    assert_eq!(home.run(["lift", "demo", "--to", &far.to_string()]).exits(0).stdout, "");
    assert_eq!(token(), far);
    home.run(["lift", "demo", "--to", "7"]).exits(0);
    assert_eq!(token(), far + 1);
    home.run(["lift", "demo", "--to", "0"]).exits(64);
    home.run(["lift", "demo"]).exits(64);
}

#[test]
fn lease_of_a_file_cannot_be_acquired_apart_and_it_is_said_why() {
    let home = Home::new();
    for args in [
        &["acquire", "demo"][..],
        &["renew", "demo", "--lease", NO_LEASE],
        &["release", "demo", "--lease", NO_LEASE],
    ] {
        let refused = home.run(args).exits(64);
        assert!(refused.stderr.contains("last process of the command"), "{refused:?}");
        assert!(refused.stderr.contains("fencepost run"), "{refused:?}");
    }
}

/// An id with a right checksum, of no lease.
const NO_LEASE: &str = "07070707070707070707070707070707000000000000000100000000000003e8534da71b";
