//! What the README says: its first command, its crontab line, and each line about the command, as they stand there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::page::Block;
use crate::support::{Home, Outcome, Running, eventually, json};

const PAGE: &str = include_str!("../../../../README.md");

/// A home with the job and the result that the page speaks of.
fn with_job() -> Home {
    let home = Home::new();
    home.write("job.sh", "#!/bin/sh\necho \"$FENCEPOST_LOCK\" >>ran\n[ ! -e slow ] || sleep 60\n");
    fs::set_permissions(home.path("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(home.path("out")).unwrap();
    home.write("out/total", "42\n");
    home.run(["run", "any", "--", "true"]).exits(0);
    home
}

/// The lines of the page's code in a language, with the places of `home`.
fn lines(home: &Home, language: &str) -> Vec<String> {
    let blocks = Block::all_of(PAGE).into_iter().filter(|block| block.language == language);
    let exports = home.path("exports").display().to_string();
    let text: String = blocks.map(|block| block.text).collect();
    text.replace("/srv/exports", &exports).lines().map(ToOwned::to_owned).collect()
}

/// What the page says of one subcommand; one line for each of what it says after `fencepost`.
fn about(home: &Home, beginning: &str) -> String {
    let all = lines(home, "sh");
    let found = all
        .iter()
        .find(|line| line.strip_prefix("fencepost ").is_some_and(|line| line.starts_with(beginning)));
    found.unwrap_or_else(|| panic!("the page says nothing of {beginning}")).clone()
}

fn held(home: &Home) -> (Running, u64) {
    home.write("slow", "");
    let held = home.start(["run", "nightly", "--", "./job.sh"]);
    home.await_file("ran");
    fs::remove_file(home.path("slow")).unwrap();
    let token = json(&home.run(["status", "--json", "nightly"]))["token"].as_u64().unwrap();
    (held, token)
}

/// The command under which the page has another one run.
fn under_a_run(home: &Home, line: &str) -> Outcome {
    let exports = format!("file:{}", home.path("exports").display());
    home.write("script", line);
    Outcome::of(
        home.fencepost(["run", "--fence", &exports, "nightly", "--", "sh", "script"]).output().unwrap(),
    )
}

#[test]
fn first_command_prints_lock_and_token() {
    let home = Home::new();
    let line = lines(&home, "sh").into_iter().find(|line| line.starts_with("cargo run")).unwrap();
    let outcome = home.shell(&line.replace("cargo run -p fencepost-cli --", "fencepost")).exits(0);
    let token = outcome.stdout.strip_prefix("I hold demo with token ").unwrap().trim();
    assert!(token.parse::<u64>().is_ok(), "{token}");
}

#[test]
fn line_of_the_crontab_skips_while_the_last_one_runs() {
    let home = with_job();
    let line = lines(&home, "text").into_iter().find(|line| line.starts_with("*/5 * * * *")).unwrap();
    let command = line.replace("*/5 * * * *", "").replace("/usr/local/bin/", "");
    let command = command.replace("/srv/jobs/nightly.sh", "./job.sh");
    let (held, _) = held(&home);
    home.shell(&command).exits(0);
    assert_eq!(home.read("ran").lines().count(), 1);
    held.signal(Signal::TERM);
    held.ends();
    home.shell(&command).exits(0);
    assert_eq!(home.read("ran").lines().count(), 2);
}

#[test]
fn commands_that_take_a_lock_do_what_the_page_says() {
    let home = with_job();
    let (wait, no_wait) = (about(&home, "run nightly"), about(&home, "run -n"));
    let (held, token) = held(&home);
    home.shell(&no_wait).exits(75);
    let status = home.shell(&about(&home, "status")).exits(0);
    assert!(status.stdout.contains(&token.to_string()), "{status:?}");
    held.signal(Signal::TERM);
    held.ends();
    for line in [&wait, &no_wait, &about(&home, "run --wait")] {
        home.shell(line).exits(0);
    }
    assert_eq!(home.read("ran"), "nightly\nnightly\nnightly\na\n");
    // Where a lease does not run out, there is no other way than `run`.
    home.shell(&about(&home, "acquire")).exits(64);
}

#[test]
fn commands_that_take_a_lock_away_do_what_the_page_says() {
    let home = with_job();
    let (held, token) = held(&home);
    let revoke = about(&home, "revoke").replace("--token N", &format!("--yes --token {token}"));
    home.shell(&revoke).exits(0);
    held.ends().exits(76);
    home.shell(&about(&home, "lift")).exits(0);
    home.run(["run", "nightly", "--", "true"]).exits(0);
}

#[test]
fn commands_that_look_do_what_the_page_says() {
    let home = with_job();
    for beginning in ["list", "explain", "doctor", "config check"] {
        home.shell(&about(&home, beginning)).exits(0);
    }
    // There is no terminal to ask on.
    home.shell(&about(&home, "advise")).exits(64);
    let line = about(&home, "watch").replace("fencepost watch", "exec fencepost watch");
    let mut command = home.command("sh");
    let watch = Running::of(command.arg("-c").arg(format!("{} >seen", line.split('#').next().unwrap())));
    eventually("a change that is told", || {
        home.run(["run", "ledger/1", "--", "sleep", "0.3"]).exits(0);
        home.read("seen").contains("ledger/1")
    });
    watch.signal(Signal::TERM);
    watch.ends();
}

#[test]
fn commands_of_a_fence_do_what_the_page_says() {
    let home = with_job();
    fs::create_dir(home.path("exports")).unwrap();
    under_a_run(&home, &about(&home, "fence check")).exits(0);
    under_a_run(&home, &about(&home, "fence publish")).exits(0);
    let shown = home.run(["fence", "show", &format!("file:{}", home.path("exports").display())]).exits(0);
    assert!(shown.stdout.contains("nightly"), "{shown:?}");
}

/// What the page shows is tried above; the lab has tests of its own.
#[test]
fn no_line_about_the_command_is_left_out() {
    let home = Home::new();
    let tried = [
        "run nightly",
        "run -n",
        "run --wait",
        "status",
        "list",
        "watch",
        "acquire",
        "revoke",
        "lift",
        "explain",
        "doctor",
        "fence check",
        "fence publish",
        "advise",
        "config check",
        "lab",
    ];
    for line in lines(&home, "sh") {
        let Some(command) = line.strip_prefix("fencepost ") else { continue };
        assert!(tried.iter().any(|beginning| command.starts_with(beginning)), "{line}");
    }
}
