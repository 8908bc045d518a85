//! `fencepost lab` as a user meets it: what it counts, what it tells, how it ends, and that nothing is left of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, Outcome, Running, eventually};

/// A home whose temporary files are its own; the user who runs Postgres finds his in it.
fn home() -> Home {
    let home = Home::new();
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(home.path("tmp")).unwrap();
    home
}

fn lab(home: &Home, args: &[&str]) -> Outcome {
    let mut command = home.fencepost(["lab"].iter().chain(args));
    Outcome::of(command.env("TMPDIR", home.path("tmp")).output().unwrap())
}

fn report(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

fn cell<'a>(report: &'a Value, pattern: &str, fault: &str) -> &'a Value {
    let cells = report["cells"].as_array().unwrap();
    let is_it = |cell: &&Value| cell["pattern"] == pattern && cell["fault"] == fault;
    cells.iter().find(is_it).unwrap_or_else(|| panic!("no {pattern} under {fault} in {report}"))
}

fn number(cell: &Value, key: &str) -> u64 {
    cell[key].as_u64().unwrap_or_else(|| panic!("{key} in {cell}"))
}

fn assert_nothing_is_left(home: &Home) {
    eventually("nothing is left", || fs::read_dir(home.path("tmp")).unwrap().next().is_none());
}

/// Nothing wrong was written, and the fence has refused what was stale.
fn assert_refused(cell: &Value) {
    for key in ["stale_accepted", "lost_updates", "duplicates", "overlaps"] {
        assert_eq!(number(cell, key), 0, "{key} in {cell}");
    }
    assert!(number(cell, "stale_refused") > 0 && cell["vacuous"].is_null(), "{cell}");
    assert_eq!(cell["total_correct"], true, "{cell}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn paused_holder_writes_without_a_fence_and_is_refused_with_one() {
    let home = home();
    let args = ["--patterns", "none,redis,redis+fence", "--faults", "none,pause", "--seed", "7", "--json"];
    let outcome = lab(&home, &args);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = report(&outcome);
    assert_eq!((&report["seed"], report["cells"].as_array().unwrap().len()), (&Value::from(7), 6));

    let unlocked = cell(&report, "none", "none");
    assert!(number(unlocked, "overlaps") > 0 && number(unlocked, "overlap_ms") > 0, "{unlocked}");
    assert_eq!(unlocked["total_correct"], false, "{unlocked}");
    for pattern in ["redis", "redis+fence"] {
        let calm = cell(&report, pattern, "none");
        assert!(number(calm, "overlaps") == 0 && calm["vacuous"].is_null(), "{calm}");
        assert!(number(calm, "grants") > 5 && number(calm, "acknowledged") > 5, "{calm}");
    }
    let paused = cell(&report, "redis", "pause");
    assert!(number(paused, "stale_accepted") > 0 && number(paused, "lost_updates") > 0, "{paused}");
    assert!(paused["total_correct"] == false && number(paused, "recovery_ms") >= 400, "{paused}");
    assert_refused(cell(&report, "redis+fence", "pause"));
    assert_nothing_is_left(&home);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn fence_whose_check_is_left_out_is_noticed() {
    let home = home();
    let args = ["--patterns", "redis+fence", "--faults", "pause", "--json", "--without-check"];
    let outcome = lab(&home, &args);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let report = report(&outcome);
    let cell = cell(&report, "redis+fence", "pause");
    assert!(number(cell, "stale_accepted") > 0 && number(cell, "stale_refused") == 0, "{cell}");
    assert!(cell["broken"].to_string().contains("a stale write was accepted"), "{cell}");
}

#[test]
#[cfg_attr(not(all(redis_server, postgres_server)), ignore = "its servers are not installed")]
fn write_of_a_killed_holder_that_arrives_late_is_refused_whatever_the_lock() {
    let home = home();
    let patterns = "file+fence,redlock+fence,postgres+fence";
    let outcome = lab(&home, &["--patterns", patterns, "--faults", "crash", "--json"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = report(&outcome);
    patterns.split(',').for_each(|pattern| assert_refused(cell(&report, pattern, "crash")));
    assert_nothing_is_left(&home);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn story_tells_both_halves_and_the_same_seed_strikes_alike() {
    let home = home();
    let told = lab(&home, &["--story", "pause", "--seed", "7"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    for words in [
        "Without a fence",
        "is stopped",
        "The total is wrong",
        "With the fence",
        "REFUSED",
        "The total is right",
    ] {
        assert!(told.stdout.contains(words), "{words} in {}", told.stdout);
    }
    assert!(told.stdout.lines().all(|line| line.chars().count() <= 80), "{}", told.stdout);
    let report = report(&lab(&home, &["--story", "pause", "--seed", "7", "--json"]));
    let schedule = |pattern| cell(&report, pattern, "pause")["schedule"].clone();
    assert_eq!(schedule("redis"), schedule("redis+fence"));
    let expected = "the holder is stopped, between its check and its write, after 4 grants";
    assert_eq!(schedule("redis")[0], expected, "{report}");
}

#[test]
fn cell_without_a_meaning_says_why_and_is_not_passed() {
    let home = home();
    let outcome = lab(&home, &["--patterns", "file,none+fence", "--faults", "clock,pause", "--json"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = report(&outcome);
    let why = |pattern, fault| cell(&report, pattern, fault)["vacuous"].as_str().unwrap().to_owned();
    assert!(why("file", "clock").contains("no server"));
    assert!(why("file", "pause").contains("nobody else could start"));
    assert!(why("none+fence", "pause").contains("no token"));
}

#[test]
fn server_that_is_not_installed_is_named_with_its_package() {
    let home = home();
    let mut command = home.fencepost(["lab", "--patterns", "redis", "--faults", "pause"]);
    let outcome = Outcome::of(
        command.env("PATH", home.path("nothing")).env("TMPDIR", home.path("tmp")).output().unwrap(),
    );
    assert_eq!(outcome.code, Some(69), "{outcome:?}");
    let said = outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("redis-server is not installed; the package redis-server has it"), "{said}");
}

#[test]
fn wrong_usage_is_refused_before_anything_starts() {
    let home = home();
    for (args, words) in [
        (&["--patterns", "redis+fences"][..], "there is no pattern"),
        (&["--faults", "pauses"], "there is no fault"),
        (&["--report", "/dev/null/page.html"], "write the picture"),
        (&["--backend", "redis://h", "--patterns", "file"], "there is no file on redis://h"),
        (&["--backend", "memory:"], "the lab knows no such lock"),
        (&["--story", "pause", "--faults", "pause"], "cannot go with"),
        (&["--story", "pause", "--backend", "redis://h"], "the story has a server of its own"),
    ] {
        let outcome = lab(&home, args);
        assert_eq!(outcome.code, Some(64), "{args:?}: {outcome:?}");
        assert!(outcome.stderr.contains(words), "{args:?}: {}", outcome.stderr);
    }
    let outcome = lab(&home, &["--backend", "redis://127.0.0.1:1"]);
    assert_eq!(outcome.code, Some(69), "{outcome:?}");
    assert_nothing_is_left(&home);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lab_that_is_interrupted_or_killed_leaves_nothing_behind() {
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let home = home();
        let mut command = home.fencepost(["lab", "--patterns", "redis", "--rounds", "1000", "-v"]);
        let lab = Running::of(command.env("TMPDIR", home.path("tmp")));
        // What else lies there is a file for a moment, or already gone.
        let entries = |folder| fs::read_dir(folder).map_or(0, Iterator::count);
        eventually("workers work", || {
            let folders = fs::read_dir(home.path("tmp")).unwrap().flatten();
            folders.map(|folder| folder.path()).any(|folder| entries(folder) > 1)
        });
        lab.signal(signal);
        assert_eq!(lab.ends().code, code);
        assert_nothing_is_left(&home);
    }
}
