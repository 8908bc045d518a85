//! What a reader gets to see in a dozen well-known cases, letter by letter.
//!
//! The texts are in `scenarios/`. After a change of wording: set `RENEW=1`, run this test, and read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use fencepost_advisor::{Answers, Details, Pattern, Question, advise};

/// The answers in the order of the questions: what an overlap does, whether a worker can pause, whether there is a
/// Postgres, how many databases, whether the sink checks tokens, how many hosts.
const SCENARIOS: &[(&str, &str, [&str; 6])] = &[
    ("cron-trigger", "cron/report", ["wasteful", "yes", "no", "one", "no", "many"]),
    ("cron-on-one-host", "cron/report", ["wasteful", "yes", "no", "one", "no", "one"]),
    ("idempotent-stream", "events/**", ["absorbed", "yes", "no", "many", "no", "many"]),
    ("ledger-over-two-databases", "ledger/**", ["corrupts", "yes", "yes", "many", "yes", "many"]),
    ("nightly-dbt-on-one-postgres", "dbt/nightly", ["corrupts", "yes", "yes", "one", "yes", "many"]),
    ("inventory", "inventory/**", ["corrupts", "yes", "no", "many", "yes", "many"]),
    ("training-slot", "training/*", ["wasteful", "yes", "no", "many", "no", "many"]),
    ("backup-script-on-one-host", "backup", ["corrupts", "yes", "no", "one", "no", "one"]),
    ("mails-to-customers", "mails/**", ["corrupts", "yes", "yes", "one", "no", "many"]),
    ("robot-arm", "robots/*", ["corrupts", "yes", "no", "one", "no", "many"]),
    ("migration-in-one-transaction", "schema", ["corrupts", "no", "yes", "one", "yes", "many"]),
    ("exports-to-object-store", "exports/**", ["corrupts", "yes", "no", "one", "yes", "many"]),
    ("warehouse-load-with-merge", "loads/**", ["absorbed", "yes", "yes", "one", "yes", "many"]),
    ("nothing-known", "jobs/**", ["unknown"; 6]),
];

fn answers(written: &[&str; 6]) -> Answers {
    let mut answers = Answers::default();
    for (question, answer) in Question::ALL.into_iter().zip(written) {
        answers.answer(question, answer);
    }
    answers
}

fn shown(glob: &str, written: &[&str; 6]) -> String {
    // The advisor knows no backend: what is assumed of each stands in for it.
    let advice = advise(&answers(written), &Pattern::ALL.map(Pattern::assumed));
    format!("{}\n{}", advice.text(80), advice.rule_for(&Details { glob: Some(glob), ..Details::default() }))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

#[test]
fn advice_reads_as_it_was_agreed() {
    let renews = std::env::var_os("RENEW").is_some();
    let mut changed = Vec::new();
    for (name, glob, written) in SCENARIOS {
        let (path, now) = (folder().join(format!("{name}.txt")), shown(glob, written));
        if renews {
            fs::write(&path, &now).expect("the tree can be written");
        } else if fs::read_to_string(&path).unwrap_or_default() != now {
            changed.push(format!("== {name} reads now:\n{now}"));
        }
    }
    assert!(
        changed.is_empty(),
        "{}\nIf that is better, run: RENEW=1 cargo nextest run -p fencepost-advisor -E 'test(agreed)'",
        changed.join("\n")
    );
}

#[test]
fn every_text_belongs_to_a_scenario() {
    for entry in fs::read_dir(folder()).expect("the texts are there") {
        let name = entry.expect("it can be listed").file_name();
        let known =
            SCENARIOS.iter().any(|(scenario, ..)| name.to_string_lossy() == format!("{scenario}.txt"));
        assert!(known, "no scenario for {name:?}");
    }
}

#[test]
fn every_pattern_but_zookeeper_is_somebodys_advice() {
    for pattern in Pattern::ALL.into_iter().filter(|pattern| *pattern != Pattern::Zookeeper) {
        let advised = SCENARIOS.iter().any(|(.., written)| {
            advise(&answers(written), &Pattern::ALL.map(Pattern::assumed)).pattern == pattern
        });
        assert!(advised, "{pattern:?}");
    }
}
