//! Which rule a lock gets, and what comes of it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fencepost_core::LockName;
use fencepost_policy::{Choice, ConfigError, Overlap, Policy, Surroundings};

fn policy(text: &str) -> Policy {
    Policy::parse(Path::new("fencepost.toml"), text).expect("the text is right")
}

fn name(text: &str) -> LockName {
    text.parse().expect("it is a name")
}

fn variable(name: &str) -> Option<OsString> {
    match name {
        "REDIS_PASSWORD" | "NO_URL" => Some("hunter2".into()),
        "REDIS_USER" => Some("secret-user".into()),
        "REDIS_URL" => Some("redis://all:hunter2@elsewhere/0".into()),
        "SLASHED" => Some("hunt/er2".into()),
        "EMPTY" => Some("".into()),
        "BUCKET" => Some("s3://hunter2".into()),
        _ => None,
    }
}

fn choose(policy: &Policy, lock: &str) -> Result<Option<Choice>, ConfigError> {
    let surroundings = Surroundings { variable: &variable, ..Surroundings::of_process() };
    policy.choose_in(&surroundings, &name(lock), None)
}

/// The choice for a lock on the backend at `url`.
fn placed(url: &str) -> Result<Choice, ConfigError> {
    let text = format!("[backends.x]\nurl = {url:?}\n[[locks]]\nmatch = \"**\"\nbackend = \"x\"\n");
    choose(&policy(&text), "a").map(|choice| choice.expect("the rule matches all"))
}

const RULES: &str = r#"
[backends.cheap]
url = "redis://cache:6379"
[backends.ledger]
url = "etcd://e1:2379,e2:2379"
[defaults]
ttl = "20s"
wait = "1m"
[[locks]]
match = "events/**"
backend = "cheap"
history = true
[[locks]]
match = "ledger/*"
backend = "ledger"
ttl = "40s"
grace = "2s"
fence = ["postgres://app@db/ledger", "redis://cache"]
require = "durable"
on_overlap = "corrupts"
hosts = "many"
because = "the March audit"
history = 7
[[locks]]
match = "ledger/**"
backend = "cheap"
"#;

#[test]
fn first_rule_that_matches_counts() {
    let policy = policy(RULES);
    for (lock, number) in [("events/a/b", 1), ("ledger/2026-11", 2), ("ledger/2026/11", 3)] {
        assert_eq!(policy.rule_for(&name(lock)).unwrap().number, number);
    }
    assert!(policy.rule_for(&name("ledger")).is_none());
    assert_eq!((policy.rules().len(), policy.backends().len()), (3, 2));
}

#[test]
fn rule_stands_over_the_defaults() {
    let policy = policy(RULES);
    let events = choose(&policy, "events/a").unwrap().unwrap();
    assert_eq!((events.ttl, events.wait), (Some(Duration::from_secs(20)), Some(Duration::from_mins(1))));
    assert_eq!((events.grace, events.rule.history), (None, 100));
    let ledger = choose(&policy, "ledger/1").unwrap().unwrap();
    assert_eq!((ledger.ttl, ledger.grace), (Some(Duration::from_secs(40)), Some(Duration::from_secs(2))));
    assert_eq!(ledger.backend.kind(), "etcd");
    assert_eq!(ledger.fences.len(), 2);
    assert_eq!(
        (ledger.rule.line, ledger.rule.glob.as_str(), ledger.rule.backend.as_str()),
        (13, "ledger/*", "ledger")
    );
    assert_eq!(ledger.rule.answers.on_overlap, Some(Overlap::Corrupts));
    assert_eq!(ledger.rule.because.as_deref(), Some("the March audit"));
    assert!(ledger.rule.require_durable && ledger.rule.history == 7);
}

#[test]
fn mistyped_name_has_no_rule_and_near_ones() {
    let policy = policy(RULES);
    assert!(choose(&policy, "legder/1").unwrap().is_none());
    assert_eq!(policy.nearest(&name("legder/1"))[0], "ledger/*");
    assert_eq!(policy.nearest(&name("event/1"))[0], "events/**");
}

#[test]
fn backend_of_the_caller_is_judged_by_the_same_answers() {
    let policy = policy(RULES);
    let on = |url: &str| {
        let url = url.parse().unwrap();
        policy.choose_in(&Surroundings::of_process(), &name("ledger/1"), Some(&url))
    };
    assert_eq!(on("zookeeper://z1").unwrap().unwrap().backend.kind(), "zookeeper");
    assert!(on("redis://h").is_err());
    assert!(on("file:/x").is_err());
}

#[test]
fn accepted_risk_is_a_choice() {
    let weak = RULES.replace("backend = \"ledger\"", "backend = \"cheap\"");
    assert!(choose(&policy(&weak), "ledger/1").is_err());
    assert!(choose(&policy(&weak), "events/1").is_ok());
    let accepted = weak.replace("hosts = ", "accept_risk = \"until March\"\nhosts = ");
    assert_eq!(
        choose(&policy(&accepted), "ledger/1").unwrap().unwrap().rule.accept_risk.unwrap(),
        "until March"
    );
}

#[test]
fn secrets_are_filled_in_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    fs::write(&file, "hunter2\n").unwrap();
    let from_file = format!("redis://app:${{file:{}}}@h", file.display());
    for (written, filled) in [
        ("redis://${REDIS_USER}:${REDIS_PASSWORD}@h", "redis://secret-user:hunter2@h"),
        ("redis://h/0?password=${REDIS_PASSWORD}", "redis://h/0?password=hunter2"),
        ("${REDIS_URL}", "redis://all:hunter2@elsewhere/0"),
        ("redis://app:$${x}@h", "redis://app:${x}@h"),
        ("redis://app:hunter2@h", "redis://app:hunter2@h"),
        (from_file.as_str(), "redis://app:hunter2@h"),
    ] {
        let choice = placed(written).unwrap();
        assert_eq!(choice.backend.expose(), filled);
        let shown = format!("{} {choice:?}", choice.backend);
        assert!(!shown.contains("hunter2") && !shown.contains("secret-user"), "{shown}");
    }
    let choice = placed("redis://${REDIS_USER}:${REDIS_PASSWORD}@h").unwrap();
    assert_eq!(choice.backend.to_string(), "redis://${REDIS_USER}:${REDIS_PASSWORD}@h");
}

#[test]
fn missing_secret_is_named_where_it_stands() {
    let shown = r#"fencepost.toml:2:20: the variable NOT_SET is not set
  |
2 | url = "redis://app:${NOT_SET}@h"
  |                    ^^^^^^^^^^"#;
    assert_eq!(placed("redis://app:${NOT_SET}@h").unwrap_err().to_string(), shown);
    let error = placed("redis://app:${file:/does/not/exist}@h").unwrap_err().to_string();
    assert!(
        error
            .starts_with("fencepost.toml:2:20: the secret file /does/not/exist cannot be read: No such file")
    );
}

#[test]
fn unusable_secret_is_refused_and_not_quoted() {
    for (written, message) in [
        ("redis://app:${EMPTY}@h", "the variable EMPTY is empty"),
        (
            "redis://app:${SLASHED}@h",
            "the variable SLASHED has a letter that a password in a URL cannot have as it is",
        ),
        ("${NO_URL}", "with its secrets filled in this is no URL"),
        ("${BUCKET}", "s3 is a fence and keeps no locks"),
    ] {
        let error = placed(written).unwrap_err();
        assert_eq!(error.findings()[0].message(), message);
        assert!(!format!("{error} {error:?}").contains("hunt"));
    }
    assert!(placed("file:/var/${SLASHED}").is_ok());
}

#[test]
fn secrets_of_other_rules_are_not_looked_up() {
    let text = RULES.replace("redis://cache:6379", "redis://app:${NOT_SET}@cache");
    let policy = policy(&text);
    assert!(choose(&policy, "ledger/1").is_ok());
    assert!(choose(&policy, "events/1").is_err());
    assert!(policy.check().is_empty());
}

#[test]
fn bound_of_a_filled_in_url_holds() {
    let text =
        "[backends.x]\nurl = \"${REDIS_URL}\"\n[[locks]]\nmatch = \"**\"\nbackend = \"x\"\nttl = \"2m\"\n";
    let policy = policy(text);
    assert!(policy.check().is_empty());
    let error = choose(&policy, "a").unwrap_err();
    assert_eq!(error.findings()[0].message(), "a ttl of 2m is more than the 1m that the backend \"x\" gives");
}

#[test]
fn slot_lives_where_its_lock_does() {
    let rules = RULES.replace("events/**", "events/nightly");
    let policy = policy(&rules);
    for slot in ["events/nightly#0", "events/nightly#9", "events/nightly#99"] {
        assert_eq!(choose(&policy, slot).unwrap().unwrap().rule.glob, "events/nightly", "{slot}");
    }
    for other in ["events/nightly#", "events/nightly#100", "events/nightly#01", "events/nightly#x", "#1"] {
        assert!(choose(&policy, other).unwrap().is_none(), "{other}");
    }
    let own = rules.replace("ledger/*", "other#1");
    assert!(
        policy_rule(&own, "other#1") == "other#1"
            && policy_rule(&own, "events/nightly#1") == "events/nightly"
    );
}

fn policy_rule(text: &str, lock: &str) -> String {
    policy(text).rule_for(&name(lock)).expect("a rule matches").glob.clone()
}

#[test]
fn history_is_refused_where_nothing_is_kept_beside_the_token() {
    let text = "[backends.x]\nurl = \"redlock://a,b,c\"\n[[locks]]\nmatch = \"**\"\nbackend = \"x\"\nhistory = true\n";
    let refused = choose(&policy(text), "a").unwrap_err();
    assert_eq!(refused.findings()[0].message(), "redlock keeps no history of a lock");
    assert_eq!(policy(text).check(), refused.findings());
    for right in [text.replace("redlock://a,b,c", "redis://a"), text.replace("true", "false")] {
        assert!(choose(&policy(&right), "a").is_ok(), "{right}");
    }
}
