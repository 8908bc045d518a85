//! What `docs/operating.md` says: its lines of crontab, units, manifest and commands, as they stand there, and what it promises
//! about signals, and about `run` as the first process of a container.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::page::Block;
use crate::support::{Home, Outcome, PYTHON, Running, child_of, eventually, is_alive, python_has, send};

const PAGE: &str = include_str!("../../../../docs/operating.md");

/// The block behind a comment.
fn block(comment: &str) -> String {
    let comment = format!("<!-- {comment} -->");
    let found = Block::all_of(PAGE).into_iter().find(|block| block.comment == comment);
    found.unwrap_or_else(|| panic!("the page has no block behind {comment}")).text
}

/// A home with the jobs that the page speaks of: each notes that it has run.
fn with_jobs() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("jobs")).unwrap();
    fs::create_dir_all(home.path("textfile")).unwrap();
    for job in ["sync", "hourly", "report", "nightly"] {
        let name = format!("jobs/{job}.sh");
        home.write(&name, &format!("#!/bin/sh\necho {job} >>ran\n"));
        fs::set_permissions(home.path(&name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    home
}

/// What the page says, with the places of `home`.
fn placed(home: &Home, text: &str) -> String {
    let places = [
        ("/usr/local/bin/fencepost", env!("CARGO_BIN_EXE_fencepost").to_owned()),
        ("/srv/jobs", home.path("jobs").display().to_string()),
        ("/var/lib/node_exporter/textfile", home.path("textfile").display().to_string()),
        ("/srv/exports", home.path("exports").display().to_string()),
    ];
    places.iter().fold(text.to_owned(), |text, (place, own)| text.replace(place, own))
}

/// How often a job has run.
fn runs(home: &Home, job: &str) -> usize {
    home.read("ran").lines().filter(|line| *line == job).count()
}

/// What cron gives to the shell, and what it makes of the rest of the line: an unescaped `%` ends the command.
fn command_of(line: &str) -> String {
    let mut command = String::new();
    let mut letters = fields(line).1.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'%') => command.extend(letters.next()),
            '%' => break,
            letter => command.push(letter),
        }
    }
    command
}

/// The five fields of the time, and the command.
fn fields(line: &str) -> (Vec<&str>, &str) {
    let (mut times, mut rest) = (Vec::new(), line);
    for _ in 0..5 {
        let (field, after) = rest.split_once(' ').expect("a line has five fields");
        times.push(field);
        rest = after;
    }
    (times, rest)
}

fn crontab() -> Vec<String> {
    let text = block("crontab");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("PATH="));
    lines.map(ToOwned::to_owned).collect()
}

/// Runs the command of a line as cron does.
fn as_cron(home: &Home, line: &str) -> Outcome {
    home.shell(&placed(home, &command_of(line)))
}

#[test]
fn lines_of_the_crontab_run_their_jobs_and_print_nothing() {
    let home = with_jobs();
    home.shell("fencepost run any -- true").exits(0);
    let lines = crontab();
    assert_eq!(lines.len(), 4);
    for line in &lines {
        let is_time =
            |field: &&str| field.chars().all(|letter| letter.is_ascii_digit() || "*/".contains(letter));
        assert!(fields(line).0.iter().all(is_time), "{line}");
        let outcome = as_cron(&home, line).exits(0);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""), "{line}");
    }
    for job in ["sync", "hourly", "report", "nightly"] {
        assert_eq!(runs(&home, job), 1, "{job}");
    }
    assert!(home.read("textfile/jobs.prom").contains("fencepost_runs_total{lock=\"nightly\""));
}

#[test]
fn line_that_skips_while_the_last_one_runs_succeeds_silently() {
    let home = with_jobs();
    let line = crontab().into_iter().find(|line| line.contains(" sync ")).unwrap();
    let held =
        home.start(["run", "sync", "--", "sh", "-c", "echo >held; while [ ! -e stop ]; do sleep 0.02; done"]);
    home.await_file("held");
    let skipped = as_cron(&home, &line).exits(0);
    assert_eq!(skipped.stdout, "");
    assert_eq!(runs(&home, "sync"), 0);
    home.write("stop", "");
    held.ends().exits(0);
    as_cron(&home, &line).exits(0);
    assert_eq!(runs(&home, "sync"), 1);
}

#[test]
fn line_for_several_hosts_runs_once_a_tick() {
    let home = with_jobs();
    let line = crontab().into_iter().find(|line| line.contains("--once-per")).unwrap();
    // A clock that goes on by an hour where the test says so, so that no minute ends in the middle of it.
    home.write("tick", "2026-11-30T14:00");
    fs::create_dir(home.path("bin")).unwrap();
    home.write("bin/date", "#!/bin/sh\n[ \"$*\" = '-u +%FT%H:%M' ] && cat tick\n");
    fs::set_permissions(home.path("bin/date"), fs::Permissions::from_mode(0o755)).unwrap();
    let command = placed(&home, &command_of(&line));
    let tick = || home.shell(&format!("PATH=$PWD/bin:$PATH; {command}")).exits(0);
    tick();
    tick();
    assert_eq!(runs(&home, "hourly"), 1);
    home.write("tick", "2026-11-30T15:00");
    tick();
    assert_eq!(runs(&home, "hourly"), 2);
}

/// Negative control: cron cuts the line at the first `%` that is not escaped.
#[test]
fn line_whose_percent_signs_are_not_escaped_does_not_run() {
    let home = with_jobs();
    let line = crontab().into_iter().find(|line| line.contains("--once-per")).unwrap().replace('\\', "");
    assert_ne!(as_cron(&home, &line).code, Some(0));
    assert_eq!(runs(&home, "hourly"), 0);
}

fn unit(home: &Home, name: &str) -> String {
    placed(home, &block(&format!("unit: {name}")))
}

fn value<'a>(unit: &'a str, key: &str) -> &'a str {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{key} is missing: {unit}"))
}

fn verify(home: &Home, names: &[&str]) -> Outcome {
    let mut command = home.command("systemd-analyze");
    command.arg("verify").args(names.iter().map(|name| home.path(name)));
    Outcome::of(command.output().unwrap())
}

#[test]
fn units_are_what_systemd_reads() {
    let home = with_jobs();
    let names = ["fencepost-nightly.service", "fencepost-nightly.timer"];
    for name in names {
        home.write(name, &unit(&home, name));
    }
    let verified = verify(&home, &names).exits(0);
    assert!(!verified.stderr.contains("fencepost-nightly"), "{verified:?}");
    // Negative control.
    home.write(names[0], &unit(&home, names[0]).replace("KillMode", "KilMode"));
    assert!(verify(&home, &names).stderr.contains("KilMode"));
}

#[test]
fn command_of_the_unit_runs_and_its_times_and_codes_fit() {
    let home = with_jobs();
    let unit = unit(&home, "fencepost-nightly.service");
    let start = value(&unit, "ExecStart");
    home.shell(start).exits(0);
    assert_eq!(runs(&home, "nightly"), 1);
    let seconds = |text: &str| text.trim_end_matches('s').parse::<u64>().unwrap();
    let grace = start.split_once("--grace ").unwrap().1.split(' ').next().unwrap();
    assert_eq!(seconds(value(&unit, "TimeoutStopSec")), seconds(grace) + 15, "as the text says");

    // Turned away.
    let held = format!("! {start}; [ $? = 0 ]");
    home.run(["run", "nightly", "--", "sh", "-c", &held]).exits(0);
    home.run(["run", "nightly", "--", "sh", "-c", &format!("{start}; [ $? = 75 ]")]).exits(0);
    // Stopped as systemd does with KillMode=mixed: the command hears of it once.
    let script =
        "trap 'echo term >>heard; trap - TERM; kill -TERM $$' TERM; echo >held; while :; do sleep 0.02; done";
    let run = home.start(["run", "other", "--", "sh", "-c", script]);
    home.await_file("held");
    run.signal(Signal::TERM);
    run.ends().exits(143);
    assert_eq!(home.read("heard"), "term\n");
    let succeed: Vec<_> = value(&unit, "SuccessExitStatus").split(' ').collect();
    assert_eq!(succeed, ["75", "143"]);
}

fn manifest_command() -> Vec<String> {
    let manifest = block("cronjob");
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix("command: ")).unwrap();
    serde_json::from_str(line).unwrap()
}

#[test]
fn command_of_the_manifest_runs_and_succeeds_where_it_is_turned_away() {
    let home = with_jobs();
    let command: Vec<String> = manifest_command().iter().map(|word| placed(&home, word)).collect();
    assert_eq!(command[0], "fencepost");
    home.run(&command[1..]).exits(0);
    assert_eq!(runs(&home, "nightly"), 1);
    let held = ["run", "nightly", "--"].map(str::to_owned).into_iter().chain(command.clone());
    home.run(held).exits(0);
    assert_eq!(runs(&home, "nightly"), 1, "the lock was held");
    let grace = command.iter().position(|word| word == "--grace").unwrap();
    let grace: u64 = command[grace + 1].trim_end_matches('s').parse().unwrap();
    assert!(block("cronjob").contains(&format!("terminationGracePeriodSeconds: {}\n", grace + 15)));
}

#[test]
fn manifest_is_yaml_of_a_job_that_is_never_restarted_in_its_pod() {
    if !python_has("yaml") {
        return;
    }
    let home = Home::new();
    home.write("job.yaml", &block("cronjob"));
    let script = "import yaml, json; print(json.dumps(yaml.safe_load(open('job.yaml'))))";
    let read = Outcome::of(home.command(PYTHON).args(["-c", script]).output().unwrap()).exits(0);
    let manifest: serde_json::Value = serde_json::from_str(&read.stdout).unwrap();
    let job = &manifest["spec"]["jobTemplate"]["spec"];
    // A policy for failures of pods needs it.
    assert_eq!(job["template"]["spec"]["restartPolicy"], "Never");
    let codes = job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"].clone();
    assert_eq!(codes, serde_json::json!([64, 77, 78, 79, 126, 127]));
    let container = &job["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(manifest_command()));
}

#[test]
fn codes_that_trying_again_does_not_mend_are_the_same_everywhere() {
    let unit = block("unit: fencepost-nightly.service");
    let unit: Vec<_> = value(&unit, "RestartPreventExitStatus").split(' ').collect();
    assert!(block("cronjob").contains(&format!("values: [{}]", unit.join(", "))));
}

/// Runs `fencepost` as the first process of a container.
fn as_pid_1(home: &Home, args: &[&str]) -> Command {
    let mut command = home.command("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_fencepost")]).args(args);
    command
}

#[test]
fn run_is_right_as_the_first_process_of_a_container() {
    let home = Home::new();
    let script = "cat /proc/1/comm; (setsid sh -c 'sleep 0.5; echo daemon >>daemon' &) ; exit 7";
    let run = as_pid_1(&home, &["run", "demo", "--", "sh", "-c", script]);
    let run = Running::of(&mut { run }).ends().exits(7);
    assert_eq!(run.stdout, "fencepost\n");
    assert_eq!(home.read("daemon"), "daemon\n", "the lock is held until the last process has ended");

    let script = "trap 'exit 3' TERM; echo >held; while :; do sleep 0.02; done";
    let run = Running::of(&mut as_pid_1(&home, &["run", "demo", "--", "sh", "-c", script]));
    home.await_file("held");
    send(child_of(run.pid()), Signal::TERM);
    run.ends().exits(3);
}

#[test]
fn first_process_that_is_killed_takes_its_command_along() {
    let home = Home::new();
    let script = "echo >held; while :; do date +%s.%N >beat; sleep 0.02; done";
    let run = Running::of(&mut as_pid_1(&home, &["run", "demo", "--", "sh", "-c", script]));
    home.await_file("held");
    let first = child_of(run.pid());
    send(first, Signal::KILL);
    eventually("the end of the first process", || !is_alive(first));
    run.ends();
    let beat = home.read("beat");
    crate::support::sleep(Duration::from_millis(300));
    assert_eq!(home.read("beat"), beat, "the command goes on");
    home.await_free("demo");
}

#[test]
fn holder_that_hangs_is_revoked_as_the_page_shows() {
    let home = Home::new();
    let hanging = home.start(["run", "nightly", "--", "sh", "-c", "echo >held; sleep 600"]);
    home.await_file("held");
    let shown = home.shell(&format!("set -e; {}", block("run: hanging"))).exits(0);
    assert!(shown.stdout.contains("nightly"), "{shown:?}");
    hanging.ends().exits(76);
}

#[test]
fn lock_that_is_behind_its_fence_is_lifted_as_the_page_shows() {
    let home = Home::new();
    let fence = format!("file:{}", home.path("exports").display());
    fs::create_dir(home.path("exports")).unwrap();
    home.run(["fence", "seal", &fence, "nightly", "2000000000000000"]).exits(0);
    let fenced = ["run", "--fence", &fence, "nightly", "--", "true"];
    home.run(fenced).exits(79);
    home.shell(&format!("set -e; {}", placed(&home, &block("run: behind")))).exits(0);
    home.run(fenced).exits(0);
}

#[test]
fn every_block_of_the_page_is_run_or_says_that_it_is_not() {
    for block in Block::all_of(PAGE) {
        let is_known = ["run", "unit"].iter().any(|word| block.name(word).is_some())
            || ["<!-- crontab -->", "<!-- cronjob -->"].contains(&block.comment);
        let is_not_run = ["<!-- not run by the tests -->", "<!-- promql -->"].contains(&block.comment);
        assert!(is_known || is_not_run, "{} {}", block.language, block.text);
    }
    for section in PAGE.split("\n### ") {
        if ["<!-- not run by the tests -->", "<!-- promql -->"]
            .iter()
            .any(|comment| section.contains(comment))
        {
            assert!(section.contains("*Not run by the tests"), "readers see no comments: {section}");
        }
    }
}

/// The tables are held to the code where that is; here everything else is held to the tables.
#[test]
fn metrics_that_the_page_speaks_of_stand_in_its_tables() {
    let names: BTreeSet<&str> =
        PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let words = PAGE.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let spoken: BTreeSet<&str> = words.filter(|word| word.starts_with("fencepost_")).collect();
    assert!(spoken.len() >= 14, "{spoken:?}");
    for word in spoken {
        assert!(names.contains(word.trim_end_matches("_bucket")), "{word}");
    }
    for line in block("promql").lines() {
        let count = |letter| line.matches(letter).count();
        assert!(count('(') == count(')') && count('{') == count('}') && count('[') == count(']'), "{line}");
    }
}
