//! `--once-per`, `--shared` and `--slots` beside everything else: what they refuse, and what becomes of fences, rules and marks.

use std::fs;

use crate::support::Home;

#[test]
fn what_makes_no_sense_together_is_refused() {
    let home = Home::new();
    for (args, said) in [
        (&["--once-per", "1", "a", "b"][..], "--once-per is for one lock, and 2 are named"),
        (&["--slots", "2", "a", "b"], "--slots is for one lock, and 2 are named"),
        (&["--slots", "0", "a"], "1 to 100 slots"),
        (&["--slots", "101", "a"], "1 to 100 slots"),
        (&["--once-per", "", "a"], "it is empty"),
        (&["--slot-on", "success", "a"], "--once-per"),
        (&["--shared", "--slots", "2", "a"], "--shared"),
        (&["--shared", "--once-per", "1", "a"], "--shared"),
        (&["--shared", "--at-least", "1s", "a"], "--shared"),
        (&["--slots", "2", "--once-per", "1", "a"], "--slots"),
        (&["--shared", "--fence", "file:marks", "a"], "--fence seals for one who writes"),
    ] {
        let refused = home.run(["run"].iter().chain(args).chain(&["--", "touch", "ran"])).exits(64);
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    assert!(!home.path("ran").exists());
}

#[test]
fn redlock_offers_none_of_them_and_says_so_before_it_asks_anybody() {
    let home = Home::new();
    // Nobody listens there.
    let url = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    let wanted = [&["--once-per", "1"][..], &["--shared"], &["--slots", "2"]];
    for args in wanted {
        let run = ["run", "-n", "--backend", url];
        let refused = home.run(run.iter().chain(args).chain(&["a", "--", "touch", "ran"])).exits(64);
        assert!(refused.stderr.contains("redlock"), "{refused:?}");
    }
    let rule = format!("[backends.x]\nurl = \"{url}\"\n[[locks]]\nmatch = \"**\"\nbackend = \"x\"\n");
    home.write("fencepost.toml", &rule);
    for args in wanted {
        home.run(["run", "-n"].iter().chain(args).chain(&["a", "--", "touch", "ran"])).exits(78);
    }
    home.write("fencepost.toml", &format!("{rule}history = true\n"));
    for args in [&["config", "check"][..], &["run", "a", "--", "touch", "ran"], &["history", "a"]] {
        let refused = home.run(args).exits(78);
        assert!(refused.stderr.contains("redlock keeps no history of a lock"), "{refused:?}");
    }
    home.write("fencepost.toml", &rule);
    home.run(["history", "a"]).exits(64);
    assert!(!home.path("ran").exists());
}

/// A configuration with a rule for the locks that `glob` matches.
fn configure(home: &Home, globs: &[&str], more: &str) {
    let directory = home.path("locks");
    let backend = format!("[backends.x]\nurl = \"file:{}\"\n", directory.display());
    let rule = |glob: &&str| format!("[[locks]]\nmatch = \"{glob}\"\nbackend = \"x\"\n{more}\n");
    home.write("fencepost.toml", &format!("{backend}{}", globs.iter().map(rule).collect::<String>()));
}

#[test]
fn slots_have_the_rule_and_the_fences_of_their_lock_and_marks_of_their_own() {
    let home = Home::new();
    fs::create_dir(home.path("marks")).unwrap();
    let marks = format!("file:{}", home.path("marks").display());
    configure(&home, &["demo"], &format!("history = true\nfence = [{marks:?}]"));
    let check = format!("fencepost fence check {marks} && echo $FENCEPOST_LOCK $FENCEPOST_TOKEN");
    let run = home.run(["run", "--slots", "2", "demo", "--", "sh", "-c", &check]).exits(0);
    let (slot, token) = run.stdout.trim().split_once(' ').unwrap();
    let mark = home.run(["fence", "show", "--json", &marks, slot]).exits(0);
    assert!(mark.stdout.contains(token), "{mark:?}");
    home.run(["fence", "show", &marks, "demo"]).exits(1);
    // The rule matches the slot by the name of its lock, for whoever looks.
    home.run(["status", slot]).exits(1);
    assert!(home.run(["history", slot]).exits(0).stdout.contains(token));

    configure(&home, &["*1", "demo"], "");
    let refused = home.run(["run", "--slots", "2", "demo", "--", "touch", "ran"]).exits(78);
    assert!(
        refused.stderr.contains("the slot demo#1 is matched by another rule than its lock"),
        "{refused:?}"
    );
    home.run(["run", "--slots", "1", "demo", "--", "true"]).exits(0);
    assert!(!home.path("ran").exists());
}

#[test]
fn slot_that_could_not_be_marked_is_no_success() {
    let home = Home::new();
    home.run(["run", "demo", "--", "true"]).exits(0);
    // What cannot be replaced by a file cannot be written.
    let spoil = format!("mkdir -p {}/demo.logbook/x", home.locks().display());
    let args = ["run", "--once-per", "1", "--slot-on", "success", "--report", "report", "--events", "events"];
    let run = home.run(args.iter().chain(&["demo", "--", "sh", "-c", &spoil])).exits(69);
    assert!(
        run.stderr.contains("the command has succeeded, but 1 may not count as done: it may run again"),
        "{run:?}"
    );
    let report = home.json("report");
    assert_eq!((&report["outcome"], &report["exit_code"]), (&"unavailable".into(), &69.into()));
    assert!(report["token"].is_u64() && report["held_ms"].is_u64(), "{report}");
    let events = home.read("events");
    assert!(events.contains("\"mark_failed\"") && !events.contains("\"released\""), "{events}");
    fs::remove_dir_all(home.locks().join("demo.logbook")).unwrap();
    home.run(args.iter().chain(&["demo", "--", "touch", "again"])).exits(0);
    assert!(home.path("again").exists(), "it may run again, and does");
}

#[test]
fn wait_for_another_host_at_the_same_slot_makes_no_mail() {
    let home = Home::new();
    let args = [
        "run",
        "--once-per",
        "1",
        "--slot-on",
        "success",
        "demo",
        "--",
        "sh",
        "-c",
        "echo ran >>runs; sleep 1.5",
    ];
    let hosts = [home.start(args), home.start(args)];
    home.await_file("runs");
    let curious = home.start(["-v"].iter().chain(&args));
    let plain = home.start(["run", "demo", "--", "true"]);
    for host in hosts {
        assert_eq!(host.ends().exits(0).stderr.replace(&new_directory(&home), ""), "");
    }
    assert_eq!(home.read("runs"), "ran\n");
    assert!(curious.ends().exits(0).stderr.contains("waiting: demo is held by"));
    assert!(
        plain.ends().exits(0).stderr.contains("waiting: demo is held by"),
        "whoever waits otherwise is told"
    );
}

/// What the first use says.
fn new_directory(home: &Home) -> String {
    let directory = home.locks();
    format!(
        "fencepost: locks are kept in a new directory, file:{}, and hold for this host only\n",
        directory.display()
    )
}
