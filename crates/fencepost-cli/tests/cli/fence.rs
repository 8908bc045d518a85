//! `fence`: tokens that are shown to a fence, its marks, and what `run` does when a fence will not have its token.

use std::fs;

use serde_json::{Value, json};

use crate::pty::Terminal;
use crate::support::{Home, Outcome};

/// A home and a fence in it that is not there yet.
fn fenced() -> (Home, String) {
    let home = Home::new();
    let url = format!("file:{}", home.path("sink").display());
    (home, url)
}

fn parsed(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

fn assert_says(outcome: &Outcome, parts: &[&str]) {
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} in {outcome:?}");
    }
}

#[test]
fn sealed_token_is_accepted_and_an_older_one_is_stale() {
    let (home, url) = fenced();
    let sealed = home.run(["fence", "seal", &url, "ledger", "8"]).exits(0);
    assert_eq!((sealed.stdout.as_str(), sealed.stderr.as_str()), ("", ""));
    home.run(["fence", "seal", &url, "ledger", "8"]).exits(0);
    home.run(["fence", "check", &url, "ledger", "8"]).exits(0);
    for verb in ["seal", "check"] {
        assert_says(&home.run(["fence", verb, &url, "ledger", "7"]).exits(79), &["token 7", "mark is 8"]);
        let other = home.run(["fence", verb, &url, "ledger", "8", "--holder", "other"]).exits(79);
        assert_says(&other, &["another holder"]);
    }
    assert_says(&home.run(["fence", "check", &url, "ledger", "9"]).exits(79), &["mark is 8", "seal first"]);
    assert_says(&home.run(["fence", "check", &url, "other", "9"]).exits(79), &["no mark", "seal first"]);
    home.run(["fence", "check", &url, "ledger", "8"]).exits(0);
}

#[test]
fn answer_as_json_has_every_key_also_when_it_is_a_refusal() {
    let (home, url) = fenced();
    let answer = |args: &[&str], code| {
        let all = ["fence", "--json"].iter().chain(args);
        parsed(&home.run(all).exits(code))
    };
    assert_eq!(
        answer(&["check", &url, "a/b", "5"], 79),
        json!({"lock": "a/b", "token": 5, "holder": "", "fence": "file", "outcome": "stale", "mark": null, "findings": []})
    );
    let mark = json!({"token": 5, "holder": "me"});
    assert_eq!(
        answer(&["seal", &url, "a/b", "5", "--holder", "me"], 0),
        json!({"lock": "a/b", "token": 5, "holder": "me", "fence": "file", "outcome": "sealed", "mark": mark, "findings": []})
    );
    assert_eq!(
        answer(&["check", &url, "a/b", "5", "--holder", "me"], 0),
        json!({"lock": "a/b", "token": 5, "holder": "me", "fence": "file", "outcome": "accepted", "mark": mark, "findings": []})
    );
    assert_eq!(
        answer(&["seal", &url, "a/b", "4"], 79),
        json!({"lock": "a/b", "token": 4, "holder": "", "fence": "file", "outcome": "stale", "mark": mark, "findings": []})
    );
}

#[test]
fn tokens_are_exact_from_the_first_to_the_last() {
    let (home, url) = fenced();
    let tokens = [1, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX];
    for token in tokens {
        let text = token.to_string();
        home.run(["fence", "seal", &url, "ledger", &text]).exits(0);
        assert_eq!(parsed(&home.run(["fence", "show", "--json", &url, "ledger"]).exits(0))["token"], token);
        home.run(["fence", "check", &url, "ledger", &text]).exits(0);
        if token > 1 {
            home.run(["fence", "seal", &url, "ledger", &(token - 1).to_string()]).exits(79);
        }
    }
    for token in ["0", "9223372036854775808", "18446744073709551616", "-1", "1.0", "1e3", "", " 1", "0x1"] {
        for verb in ["seal", "check"] {
            home.run(["fence", verb, &url, "ledger", token]).exits(64);
        }
    }
}

#[test]
fn command_of_a_run_checks_with_what_the_run_gave_it() {
    let (home, url) = fenced();
    let seal = ["fence", "seal", &url];
    home.run(["run", "demo", "--", "fencepost"].iter().chain(&seal)).exits(0);
    let again = ["run", "--fence", &url, "demo", "--", "fencepost", "--json", "fence", "check", &url];
    let answer = parsed(&home.run(again).exits(0));
    assert_eq!((&answer["lock"], answer["holder"].as_str().unwrap().len()), (&json!("demo"), 32));
    assert_eq!(
        home.run(["run", "demo", "--", "fencepost", "fence", "seal", &url, "other"]).exits(64).stdout,
        ""
    );
    let explicit = ["run", "demo", "--", "fencepost", "--json", "fence", "seal", &url, "other", "3"];
    assert_eq!(
        parsed(&home.run(explicit).exits(0))["holder"],
        "",
        "the run's holder is none of another lock"
    );
}

#[test]
fn each_lock_of_a_run_is_checked_with_its_own_token() {
    let (home, url) = fenced();
    let script = format!(
        "for lock in b a c/d; do fencepost fence check {url} $lock || exit; done; fencepost fence check {url}; echo $?; \
         fencepost fence seal {url} other; echo $?"
    );
    let run = home.run(["run", "--fence", &url, "a", "b", "c/d", "--", "sh", "-c", &script]).exits(0);
    assert_eq!(run.stdout, "0\n64\n");
}

#[test]
fn what_is_missing_is_a_usage_error_with_a_hint() {
    let (home, url) = fenced();
    assert_says(&home.run(["fence", "seal", &url]).exits(64), &["no LOCK", "fencepost run"]);
    assert_says(&home.run(["fence", "check", &url, "ledger"]).exits(64), &["no TOKEN", "fencepost run"]);
    let long = "x".repeat(65);
    for args in [
        &["fence"][..],
        &["fence", "seal"],
        &["fence", "seal", &url, "a\nb", "1"],
        &["fence", "seal", &url, "ledger", "1", "--holder", "a b"],
        &["fence", "seal", &url, "ledger", "1", "--holder", &long],
        &["fence", "seal", "nonsense", "ledger", "1"],
        &["fence", "seal", "file:", "ledger", "1"],
        &["fence", "seal", "file:relative", "ledger", "1"],
        &["fence", "seal", "memory:", "ledger", "1"],
        &["fence", "show", "file:/tmp?fsinc=on"],
        &["fence", "forget", &url],
        &["fence", "install", &url, "--table", "t"],
        &["fence", "install", &url, "--lock", "l"],
    ] {
        let outcome = home.run(args);
        assert_eq!(outcome.code, Some(64), "{args:?}: {outcome:?}");
        assert!(!outcome.stderr.is_empty(), "{args:?}");
    }
    assert!(!home.path("sink").exists(), "nothing was made");
}

#[test]
fn marks_are_shown_one_or_all() {
    let (home, url) = fenced();
    let missing = home.run(["fence", "show", &url, "ledger"]).exits(1);
    assert_eq!(missing.stdout, "ledger has no mark\n");
    assert_says(&missing, &["does not exist"]);
    assert_says(&home.run(["fence", "show", &url]).exits(0), &["no lock has a mark"]);
    assert_eq!(parsed(&home.run(["fence", "show", "--json", &url]).exits(0)), json!([]));
    home.run(["fence", "seal", &url, "z", "7"]).exits(0);
    home.run(["fence", "seal", &url, "a b/ü", "9223372036854775807", "--holder", "me"]).exits(0);
    let (one, none) = (
        json!({"lock": "a b/ü", "token": 9_223_372_036_854_775_807_u64, "holder": "me", "fence": "file"}),
        json!({"lock": "ledger", "token": null, "holder": null, "fence": "file"}),
    );
    let other = json!({"lock": "z", "token": 7, "holder": "", "fence": "file"});
    assert_eq!(parsed(&home.run(["fence", "show", "--json", &url, "a b/ü"]).exits(0)), one);
    assert_eq!(parsed(&home.run(["fence", "show", "--json", &url, "ledger"]).exits(1)), none);
    assert_eq!(parsed(&home.run(["fence", "show", "--json", &url]).exits(0)), json!([one, other]));
    let table = home.run(["fence", "show", &url]).exits(0).stdout;
    let lines = [
        "              TOKEN  HOLDER  LOCK",
        "9223372036854775807  me      a b/ü",
        "                  7          z",
    ];
    assert_eq!(table.lines().collect::<Vec<_>>(), lines);
    let shown = home.run(["fence", "show", &url, "a b/ü"]).exits(0).stdout;
    assert_eq!(shown, "a b/ü is sealed with token 9223372036854775807 of holder me\n");
}

#[test]
fn mark_is_forgotten_only_when_that_is_confirmed() {
    let (home, url) = fenced();
    home.run(["fence", "forget", &url, "ledger", "--yes"]).exits(1);
    assert!(!home.path("sink").exists(), "nothing was made");
    home.run(["fence", "seal", &url, "ledger", "8"]).exits(0);
    home.run(["fence", "seal", &url, "other", "8"]).exits(0);
    assert_says(&home.run(["fence", "forget", &url, "ledger"]).exits(64), &["--yes"]);
    home.run(["fence", "check", &url, "ledger", "8"]).exits(0);
    let forgotten = home.run(["fence", "forget", &url, "ledger", "--yes"]).exits(0);
    assert_eq!(forgotten.stdout, "forgotten: ledger is sealed with token 8\n");
    home.run(["fence", "forget", &url, "ledger", "--yes"]).exits(1);
    home.run(["fence", "seal", &url, "ledger", "7"]).exits(0);
    let forgotten = parsed(&home.run(["fence", "--json", "forget", &url, "ledger", "-y"]).exits(0));
    assert_eq!(forgotten, json!({"lock": "ledger", "token": 7, "holder": "", "fence": "file"}));
    home.run(["fence", "check", &url, "other", "8"]).exits(0);
}

#[test]
fn terminal_is_asked_before_a_mark_is_forgotten() {
    let (home, url) = fenced();
    home.run(["fence", "seal", &url, "ledger", "8"]).exits(0);
    for (answer, code, left) in [("\n", 64, 0), ("no\n", 64, 0), ("y\n", 0, 1)] {
        let mut terminal = Terminal::with(home.fencepost(["fence", "forget", &url, "ledger"]));
        terminal.sees("forget token 8? [y/N]");
        terminal.presses(answer);
        assert_eq!(terminal.ends(), Some(code), "{answer:?}");
        home.run(["fence", "show", &url, "ledger"]).exits(left);
    }
}

#[test]
fn directory_is_installed_once_and_never_taken_away() {
    let (home, url) = fenced();
    let dry = home.run(["fence", "install", &url, "--dry-run"]).exits(0);
    assert!(dry.stdout.starts_with("would make the directory"), "{dry:?}");
    assert!(!home.path("sink").exists());
    assert!(home.run(["fence", "install", &url]).exits(0).stdout.starts_with("made the directory"));
    assert!(home.path("sink").is_dir());
    assert!(home.run(["fence", "install", &url]).exits(0).stdout.contains("is there already"));
    let again = parsed(&home.run(["fence", "install", "--json", &url, "--dry-run"]).exits(0));
    assert_eq!(
        (&again["fence"], &again["dry_run"], &again["table"]),
        (&json!("file"), &json!(true), &Value::Null)
    );
    let tables = home.run(["fence", "install", &url, "--table", "t", "--lock", "l"]).exits(64);
    assert_says(&tables, &["no tables", "--table"]);
    assert_says(&home.run(["fence", "uninstall", &url, "--table", "t"]).exits(64), &["no tables"]);
    assert_says(&home.run(["fence", "uninstall", &url]).exits(64), &["by hand", "forget"]);
    assert!(home.path("sink").is_dir());
}

#[test]
fn password_of_a_fence_is_never_shown() {
    let home = Home::new();
    let url = "etcd://u:s3cret@127.0.0.1:1/0";
    for args in [
        &["fence", "seal", url, "ledger", "1"][..],
        &["fence", "check", url, "ledger", "1"],
        &["fence", "show", url],
        &["fence", "forget", url, "ledger"],
        &["fence", "install", url],
        &["fence", "uninstall", url],
        &["run", "--fence", url, "demo", "--", "true"],
    ] {
        let outcome = home.run(args).exits(64);
        assert_says(&outcome, &["can read the password", "etcd: keeps locks and is no fence"]);
        assert!(!format!("{outcome:?}").contains("s3cret"), "{outcome:?}");
    }
    let unreached = home.run(["fence", "seal", "redis://u:s3cret@127.0.0.1:1/0", "ledger", "1"]).exits(69);
    assert!(!format!("{unreached:?}").contains("s3cret"), "{unreached:?}");
    let unread = home.run(["fence", "seal", "reddis://u:s3cret@cache/0", "ledger", "1"]).exits(64);
    assert!(unread.stderr.contains("reddis") && !unread.stderr.contains("s3cret"), "{unread:?}");
}

#[test]
fn fence_that_cannot_be_used_exits_69_77_or_70() {
    let (home, url) = fenced();
    home.run(["fence", "seal", "file:/proc/nowhere", "ledger", "1"]).exits(69);
    home.run(["fence", "install", "file:/proc/nowhere"]).exits(69);
    home.run(["fence", "seal", &url, "ledger", "1"]).exits(0);
    fs::write(home.path("sink/other.mark"), home.read("sink/ledger.mark")).unwrap();
    fs::write(home.path("sink/binary.mark"), b"\xff\xfe").unwrap();
    for lock in ["other", "binary"] {
        for args in [
            &["fence", "seal", &url, lock, "9"][..],
            &["fence", "show", &url, lock],
            &["fence", "show", &url],
        ] {
            assert_says(&home.run(args).exits(70), &["mark is damaged"]);
        }
    }
    if let Some(denied) = home.as_nobody(&["fence", "seal", &url, "ledger", "2"]) {
        assert_says(&denied.exits(77), &["Permission denied"]);
        home.as_nobody(&["fence", "show", &url]).unwrap().exits(77);
        home.as_nobody(&["fence", "forget", "--yes", &url, "ledger"]).unwrap().exits(77);
    }
}

#[test]
fn run_whose_fence_cannot_be_used_starts_nothing_and_says_why() {
    let (home, url) = fenced();
    home.run(["fence", "seal", &url, "demo", "9000000000000000000"]).exits(0);
    let run = |fence: &str, wait: &str, code| {
        let args = ["run", wait, "--fence", fence, "--report", "report", "demo", "--", "touch", "ran"];
        home.run(args).exits(code);
        assert!(!home.path("ran").exists(), "{fence}");
        home.run(["status", "demo"]).exits(1);
        assert_eq!(home.json("report")["exit_code"], code);
        home.json("report")["outcome"].clone()
    };
    assert_eq!(run(&url, "-n", 79), "stale");
    assert_eq!(run("file:/proc/nowhere", "-n", 69), "unavailable");
    assert_eq!(run("file:/proc/nowhere", "--wait=1s", 69), "unavailable");
    let of_nobody = format!("file:{}", home.path("locks").display());
    let args =
        ["run", "--backend", &of_nobody, "--fence", &url, "--report", "denied", "demo", "--", "touch", "ran"];
    if let Some(denied) = home.as_nobody(&args) {
        assert_says(&denied.exits(77), &["sink", "Permission denied"]);
        assert_eq!(home.json("denied")["outcome"], "denied");
    }
    let good = format!("file:{}", home.path("good").display());
    home.run(["run", "--fence", &good, "--fence", &url, "other", "demo", "--", "touch", "ran"]).exits(79);
    assert!(!home.path("ran").exists());
    home.run(["status", "other"]).exits(1);
}

#[test]
fn tokens_that_postgres_could_not_take_are_refused_before_anything_is_acquired() {
    let home = Home::new();
    let names: Vec<_> = (0..40).map(|index| format!("{}{index}", "x".repeat(190))).collect();
    let flags = ["run", "--fence", "postgres://db/ledger"];
    let all = flags.into_iter().chain(names.iter().map(String::as_str)).chain(["--", "true"]);
    assert_says(&home.run(all).exits(64), &["PGOPTIONS", "40 locks", "8000"]);
    let mut one = home.fencepost(flags.into_iter().chain(["demo", "--", "true"]));
    let one = Outcome::of(one.env("PGOPTIONS", format!("-c x={}", "y".repeat(8_000))).output().unwrap());
    assert_says(&one.exits(64), &["PGOPTIONS", "1 lock"]);
    assert!(!home.locks().exists(), "nothing was made");
    let kept = "-c search_path=a -c x=1";
    let mut other = home.fencepost(["run", "demo", "--", "sh", "-c", "printf %s \"$PGOPTIONS\""]);
    let other = Outcome::of(other.env("PGOPTIONS", kept).output().unwrap()).exits(0);
    assert_eq!(other.stdout, kept, "without a fence in Postgres it is left alone");
}

#[test]
fn help_fits_eighty_columns_and_names_the_exit_codes() {
    let home = Home::new();
    for args in [
        &["fence", "--help"][..],
        &["fence", "-h"],
        &["fence", "seal", "--help"],
        &["fence", "check", "--help"],
        &["fence", "publish", "--help"],
        &["fence", "show", "--help"],
        &["fence", "forget", "--help"],
        &["fence", "install", "--help"],
        &["fence", "uninstall", "--help"],
    ] {
        let help = home.run(args).exits(0).stdout;
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest} columns: {help}");
    }
    assert!(home.run(["fence", "--help"]).stdout.contains("79 stale"));
}
