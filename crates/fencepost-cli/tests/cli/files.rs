//! What `run` writes: the report and the events. And what it reads: the configuration.

use serde_json::Value;

use crate::support::Home;

#[test]
fn report_tells_the_outcome() {
    let home = Home::new();
    home.run(["run", "--report", "report", "demo", "--", "sh", "-c", "sleep 0.1; exit 3"]).exits(3);
    let report = home.json("report");
    assert_eq!((&report["lock"], &report["backend"]), (&"demo".into(), &"file".into()));
    assert_eq!((&report["outcome"], &report["exit_code"]), (&"ran".into(), &3.into()));
    assert_eq!((&report["lost_reason"], &report["scope"]), (&Value::Null, &"this host only".into()));
    assert!(report["token"].as_u64().unwrap() > 1_700_000_000_000_000);
    assert!(report["held_ms"].as_u64().unwrap() >= 100 && report["waited_ms"].is_u64());
}

#[test]
fn report_of_several_locks_has_them_all() {
    let home = Home::new();
    home.run(["run", "--report", "report", "b", "a", "--", "true"]).exits(0);
    let report = home.json("report");
    assert_eq!(report["lock"], "b");
    assert_eq!((&report["locks"][0]["lock"], &report["locks"][1]["lock"]), (&"b".into(), &"a".into()));
    assert_eq!(report["locks"][0]["token"], report["token"]);
}

#[test]
fn events_are_appended_a_line_each() {
    let home = Home::new();
    home.run(["run", "--events", "events", "demo", "--", "true"]).exits(0);
    home.run(["run", "--events", "events", "demo", "--", "true"]).exits(0);
    let events: Vec<Value> =
        home.read("events").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["waiting", "acquired", "released", "waiting", "acquired", "released"]);
    let keys: Vec<_> = events[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["at", "detail", "event", "holder", "lock", "token"]);
    assert!(events[1]["token"].as_u64() < events[4]["token"].as_u64());
}

#[test]
fn full_disk_of_the_events_does_not_stop_the_command() {
    let home = Home::new();
    let args = ["run", "--events", "/dev/full", "--report", "/dev/full", "demo", "--", "echo", "ran"];
    let run = home.run(args).exits(0);
    assert_eq!(run.stdout, "ran\n");
    assert!(run.stderr.contains("/dev/full"), "{}", run.stderr);
}

#[test]
fn answer_that_cannot_be_written_is_no_success() {
    let home = Home::new();
    for args in [
        &["list", "--json"][..],
        &["status", "demo"],
        &["explain", "demo"],
        &["config", "schema"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let told = home.fencepost(args).stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
        let said = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(69), "{args:?}: {said}");
        assert_eq!(
            said.matches("the output cannot be written: No space left").count(),
            1,
            "{args:?}: {said}"
        );
    }
}

/// The value of one sample of the metrics.
fn sample(home: &Home, sample: &str) -> Option<f64> {
    let line = |line: &str| line.strip_prefix(sample)?.trim().parse().ok();
    home.read("jobs.prom").lines().find_map(line)
}

#[test]
fn metrics_go_on_from_run_to_run_and_tell_outcomes_apart() {
    let home = Home::new();
    let run = |command: &str| {
        home.run(["run", "--metrics-file", "jobs.prom", "a \"b\"", "--", "sh", "-c", command])
    };
    run("grep -q '^fencepost_held.* 1$' jobs.prom").exits(0);
    run("exit 3").exits(3);
    let labels = r#"lock="a \"b\"",backend="file""#;
    assert_eq!(sample(&home, &format!("fencepost_runs_total{{{labels},outcome=\"ran\"}}")), Some(2.0));
    assert_eq!(sample(&home, &format!("fencepost_last_exit_code{{{labels}}}")), Some(3.0));
    assert_eq!(sample(&home, &format!("fencepost_held{{{labels}}}")), Some(0.0));
    assert_eq!(sample(&home, &format!("fencepost_hold_seconds_count{{{labels}}}")), Some(2.0));
    assert_eq!(sample(&home, &format!("fencepost_hold_seconds_bucket{{{labels},le=\"+Inf\"}}")), Some(2.0));
    assert!(sample(&home, &format!("fencepost_token{{{labels}}}")).unwrap() > 1.7e15);

    let text = home.read("jobs.prom");
    let bounds = text
        .lines()
        .filter_map(|line| line.strip_prefix("fencepost_hold_seconds_bucket")?.split('"').nth_back(1));
    let bounds: Vec<f64> = bounds.map(|bound| bound.parse().unwrap()).collect();
    assert!(bounds.len() == 11 && bounds.is_sorted(), "{text}");

    // Another job in the same file, which is not acquired.
    let nested = "fencepost run -n -E 9 --metrics-file jobs.prom other -- true";
    home.run(["run", "other", "--", "sh", "-c", nested]).exits(9);
    let other = r#"fencepost_runs_total{lock="other",backend="file",outcome="not_acquired"}"#;
    assert_eq!(sample(&home, other), Some(1.0));
    assert_eq!(sample(&home, &format!("fencepost_runs_total{{{labels},outcome=\"ran\"}}")), Some(2.0));
    let left = std::fs::read_dir(home.path(".")).unwrap().flatten();
    let left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn metrics_of_runs_at_the_same_time_are_all_counted() {
    let home = Home::new();
    let runs: Vec<_> = (0..8)
        .map(|job| {
            let script = format!(
                "for i in 1 2 3 4 5; do fencepost run --metrics-file jobs.prom job{job} -- true; done"
            );
            crate::support::Running::of(home.command("sh").args(["-c", &script]))
        })
        .collect();
    crate::support::all_end(runs, 0);
    for job in 0..8 {
        let runs = format!(r#"fencepost_runs_total{{lock="job{job}",backend="file",outcome="ran"}}"#);
        assert_eq!(sample(&home, &runs), Some(5.0), "{job}");
    }
}

#[test]
fn place_where_no_metrics_can_be_written_stops_the_run_before_it_begins() {
    let home = Home::new();
    std::fs::create_dir(home.path("folder")).unwrap();
    home.write("passwords", "root:x:0:0\n");
    for path in ["missing/jobs.prom", "folder", "/dev/null", "passwords"] {
        let run = home.run(["run", "--metrics-file", path, "demo", "--", "echo", "ran"]).exits(64);
        assert_eq!(run.stdout, "");
        assert!(run.stderr.contains("--metrics-file") && run.stderr.contains(path), "{run:?}");
    }
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(home.read("passwords"), "root:x:0:0\n");
}

#[test]
fn metrics_of_a_holder_stay_while_others_are_turned_away_and_the_file_keeps_its_mode() {
    let home = Home::new();
    home.write("jobs.prom", "");
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(home.path("jobs.prom"), mode(0o640)).unwrap();
    let nested = "fencepost run -n --metrics-file jobs.prom demo -- true; [ $? = 75 ] && grep '^fencepost_held' jobs.prom";
    let held = home.run(["run", "--metrics-file", "jobs.prom", "demo", "--", "sh", "-c", nested]).exits(0);
    assert!(held.stdout.trim_end().ends_with(" 1"), "{held:?}");
    assert_eq!(sample(&home, r#"fencepost_held{lock="demo",backend="file"}"#), Some(0.0));
    let found = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(home.path("jobs.prom")).unwrap().permissions(),
    );
    assert_eq!(found & 0o777, 0o640);
}

#[test]
fn lost_lease_of_a_set_is_counted_for_its_own_lock() {
    let home = Home::new();
    let args =
        ["run", "--metrics-file", "jobs.prom", "kept", "lost", "--", "sh", "-c", "echo >held; sleep 60"];
    let run = home.start(args);
    home.await_file("held");
    std::fs::remove_file(home.locks().join("lost.tok")).unwrap();
    run.ends().exits(76);
    let lost = |lock| {
        let labels = format!("lock=\"{lock}\",backend=\"file\",reason=\"replaced\"");
        sample(&home, &format!("fencepost_leases_lost_total{{{labels}}}"))
    };
    assert_eq!((lost("lost"), lost("kept")), (Some(1.0), None), "{}", home.read("jobs.prom"));
}

const CONFIGURATION: &str = r#"
[backends.here]
url = "file:${PLACE}"
[[locks]]
match = "ledger/*"
backend = "here"
because = "two writers corrupt the balance"
[[locks]]
match = "tests/**"
backend = "tests"
ttl = "5s"
[backends.tests]
url = "memory:"
"#;

fn configured(home: &Home, args: &[&str]) -> crate::support::Outcome {
    let mut command = home.fencepost(args);
    command.env("PLACE", home.path("configured"));
    crate::support::Outcome::of(command.output().unwrap())
}

#[test]
fn rules_say_where_a_lock_is_kept() {
    let home = Home::new();
    home.write("fencepost.toml", CONFIGURATION);
    configured(&home, &["run", "ledger/1", "--", "true"]).exits(0);
    assert!(home.path("configured/ledger%2F1.lock").exists());
    let kind =
        configured(&home, &["run", "tests/a/b", "--", "sh", "-c", "echo $FENCEPOST_BACKEND_KIND"]).exits(0);
    assert_eq!(kind.stdout, "memory\n");
    let explained = configured(&home, &["explain", "ledger/1"]).exits(0).stdout;
    assert!(
        explained.contains("fencepost.toml:4") && explained.contains("corrupt the balance"),
        "{explained}"
    );
    configured(&home, &["config", "check"]).exits(0);
}

#[test]
fn name_that_no_rule_matches_is_never_a_local_lock() {
    let home = Home::new();
    home.write("fencepost.toml", CONFIGURATION);
    let run = configured(&home, &["run", "legder/1", "--", "touch", "ran"]).exits(78);
    assert!(run.stderr.contains("no rule") && run.stderr.contains("ledger/*"), "{}", run.stderr);
    assert!(!home.path("ran").exists() && !home.locks().exists());
    let url = format!("file:{}", home.path("flag").display());
    configured(&home, &["run", "--backend", &url, "legder/1", "--", "true"]).exits(0);
    let mut run = home.fencepost(["run", "legder/1", "--", "true"]);
    assert!(run.env("FENCEPOST_BACKEND", &url).status().unwrap().success());
}

#[test]
fn wrong_configuration_exits_78_and_shows_the_place() {
    let home = Home::new();
    home.write("fencepost.toml", "[[locks]]\nmatch = \"a\"\nbackand = \"x\"\n");
    for args in [&["run", "a", "--", "true"][..], &["status", "a"], &["config", "check"], &["list"]] {
        let run = home.run(args).exits(78);
        assert!(
            run.stderr.contains("fencepost.toml:3:1") && run.stderr.contains("backend"),
            "{}",
            run.stderr
        );
    }
    home.run(["--config", "missing.toml", "config", "check"]).exits(78);
    home.run(["--config", "missing.toml", "run", "a", "--", "true"]).exits(78);
}

#[test]
fn secrets_of_the_configuration_are_never_shown() {
    let home = Home::new();
    home.write("secret", "s3cret\n");
    home.write("fencepost.toml", "[backends.x]\nurl = \"redis://u:${file:secret-file}@h/0\"\n[[locks]]\nmatch = \"**\"\nbackend = \"x\"\n");
    let path = home.path("secret").display().to_string();
    home.write("fencepost.toml", &home.read("fencepost.toml").replace("secret-file", &path));
    for args in [&["run", "a", "--", "true"][..], &["-v", "explain", "a"], &["list"], &["config", "check"]] {
        let run = home.run(args);
        assert!(!format!("{run:?}").contains("s3cret"), "{run:?}");
    }
}

#[test]
fn rule_weaker_than_its_own_answers_is_refused() {
    let home = Home::new();
    let rule = "[backends.x]\nurl = \"file:\"\n[[locks]]\nmatch = \"**\"\nbackend = \"x\"\non_overlap = \"corrupts\"\nhosts = \"many\"\n";
    home.write("fencepost.toml", rule);
    home.run(["run", "a", "--", "true"]).exits(78);
    home.run(["config", "check"]).exits(78);
    home.write("fencepost.toml", &format!("{rule}accept_risk = \"one host until March\"\n"));
    home.run(["run", "a", "--", "true"]).exits(0);
}

#[test]
fn check_finds_what_a_run_would_refuse() {
    let home = Home::new();
    let rule = "[[locks]]\nmatch = \"**\"\nbackend = \"x\"\n";
    for (backend, rest) in [("file:", "require = \"durable\"\n"), ("sqlite:/srv/x", "")] {
        home.write("fencepost.toml", &format!("[backends.x]\nurl = \"{backend}\"\n{rule}{rest}"));
        home.run(["config", "check"]).exits(78);
        home.run(["run", "a", "--", "true"]).exits(78);
        let checked: Value =
            serde_json::from_str(&home.run(["config", "check", "--json"]).exits(78).stdout).unwrap();
        assert_eq!(
            (&checked["sound"], &checked["findings"][0]["severity"]),
            (&false.into(), &"error".into())
        );
    }
    home.write(
        "fencepost.toml",
        &format!("[backends.x]\nurl = \"file:?fsync=on\"\n{rule}require = \"durable\"\n"),
    );
    home.run(["config", "check"]).exits(0);
    home.run(["run", "a", "--", "true"]).exits(0);
}
