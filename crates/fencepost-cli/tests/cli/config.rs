//! `config check` and `config schema`, and that a rule cannot be weakened behind its own answers.

use serde_json::Value;

use crate::support::{Home, json};

#[test]
fn schema_is_json_and_names_the_keys() {
    let schema = json(&Home::new().run(["config", "schema"]).exits(0));
    let rule = &schema["definitions"]["rule"]["properties"];
    assert_eq!(rule["on_overlap"]["enum"][2], "corrupts");
}

fn rules(kind: &str) -> String {
    format!("[backends.x]\nurl = \"{kind}\"\n[[locks]]\nmatch = \"nightly/*\"\nbackend = \"x\"\n")
}

#[test]
fn lock_in_two_places_by_two_files_is_found() {
    let home = Home::new();
    home.write("fencepost.toml", &rules("file:/a"));
    std::fs::create_dir_all(home.path("config/fencepost")).unwrap();
    home.write("config/fencepost/fencepost.toml", &rules("redis://h"));
    let checked = home.run(["config", "check"]).exits(0);
    let said = "fencepost.toml:5:11: warning: the lock nightly/x is in file:/a here, and in redis://h by";
    assert!(checked.stderr.contains(said), "{}", checked.stderr);
    home.write("config/fencepost/fencepost.toml", &rules("file:/a"));
    assert_eq!(home.run(["config", "check"]).exits(0).stderr, "");
    home.write("config/fencepost/fencepost.toml", "[[");
    let checked = home.run(["config", "check"]).exits(0);
    assert!(checked.stderr.contains("config/fencepost/fencepost.toml:1:"), "{}", checked.stderr);
    home.run(["run", "nightly/a", "-n", "--backend", "memory:", "--", "true"]).exits(0);
}

#[test]
fn named_files_are_checked_and_compared() {
    let home = Home::new();
    home.write("a.toml", &rules("file:/a"));
    home.write("b.toml", &rules("redis://h"));
    home.write("c.toml", &(rules("redis://h") + "on_overlap = \"corrupts\"\n"));
    let checked = home.run(["config", "check", "a.toml", "b.toml"]).exits(0);
    assert!(
        checked.stderr.contains("b.toml:5:11: warning: the lock nightly/x is in redis://h here"),
        "{}",
        checked.stderr
    );
    assert_eq!(checked.stdout, "a.toml: sound (1 rule, 1 backend)\nb.toml: sound (1 rule, 1 backend)\n");
    home.run(["config", "check", "b.toml", "c.toml"]).exits(78);
    home.run(["config", "check", "a.toml", "none.toml"]).exits(78);
    let lines = home.run(["config", "check", "--json", "a.toml", "b.toml"]).exits(0).stdout;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[1]["findings"][0]["severity"]), (2, &"warning".into()));
}

/// A rule that is strong enough for its own answers, and what of it stands between that and a refusal.
fn ledger(home: &Home) -> String {
    format!(
        "[backends.x]\nurl = \"file:{0}\"\n[fences.f]\nurl = \"file:{1}\"\n[[locks]]\nmatch = \"ledger\"\nbackend = \"x\"\n\
         on_overlap = \"corrupts\"\ncan_pause = true\nsink_checks = true\nhosts = \"one\"\nfence = [\"f\"]\n\
         [[locks]]\nmatch = \"other\"\nbackend = \"x\"\n",
        home.path("locks").display(),
        home.path("marks").display()
    )
}

#[test]
fn rule_that_was_weakened_below_its_answers_is_refused_wherever_its_lock_is_named() {
    let home = Home::new();
    home.write("fencepost.toml", &ledger(&home));
    home.run(["fence", "install", &format!("file:{}", home.path("marks").display())]).exits(0);
    home.run(["config", "check"]).exits(0);
    home.run(["run", "ledger", "--", "true"]).exits(0);
    for (strong, weak) in
        [("fence = [\"f\"]\n", ""), ("hosts = \"one\"", "hosts = \"many\""), ("file:", "redis://h/?x=")]
    {
        let text = ledger(&home).replacen(strong, weak, 1);
        assert_ne!(text, ledger(&home));
        home.write("fencepost.toml", &text);
        home.run(["config", "check"]).exits(78);
        for args in [
            &["run", "ledger", "--", "true"][..],
            &["run", "-n", "ledger", "--", "true"],
            &["run", "other", "ledger", "--", "true"],
            &["run", "--fence", "file:/tmp", "ledger", "--", "true"],
            &["explain", "ledger"],
            &["status", "ledger"],
            &["lift", "ledger", "--to", "9"],
        ] {
            let refused = home.run(args).exits(78);
            assert!(
                refused.stderr.contains("the rule says that an overlap corrupts, but"),
                "{}",
                refused.stderr
            );
        }
    }
    let accepted = ledger(&home).replace("fence = [\"f\"]", "accept_risk = \"until March\"");
    home.write("fencepost.toml", &accepted);
    home.run(["run", "ledger", "--", "true"]).exits(0);
}

#[test]
fn option_that_weakens_a_backend_is_refused_as_the_weaker_backend_is() {
    let home = Home::new();
    let rule = |options: &str| rules(&format!("postgres://h/d{options}")) + "on_overlap = \"corrupts\"\n";
    home.write("fencepost.toml", &rule(""));
    home.run(["config", "check"]).exits(0);
    for option in ["?on_pause=expire", "?quarantine=off"] {
        home.write("fencepost.toml", &rule(option));
        for args in [&["config", "check"][..], &["run", "-n", "nightly/a", "--", "true"]] {
            let refused = home.run(args).exits(78);
            assert!(refused.stderr.contains("an overlap corrupts, but"), "{option} {}", refused.stderr);
        }
        home.write("fencepost.toml", &(rule(option) + "accept_risk = \"until March\"\n"));
        home.run(["config", "check"]).exits(0);
    }
}

#[test]
fn nested_run_is_held_to_the_same_answers() {
    let home = Home::new();
    home.write("fencepost.toml", &ledger(&home).replace("fence = [\"f\"]\n", ""));
    home.run(["run", "other", "--", "fencepost", "run", "ledger", "--", "true"]).exits(78);
    let flag = format!("file:{}", home.path("elsewhere").display());
    home.run(["run", "--backend", &flag, "ledger", "--", "true"]).exits(78);
}

#[test]
fn fence_that_run_would_refuse_is_refused_by_the_check_and_the_configuration_is_to_blame() {
    let home = Home::new();
    let rule = |fence: &str| rules(&format!("file:{}", home.path("locks").display())) + fence;
    for (fence, said) in [
        ("redis://h?bogus=1", "bogus"),
        ("zookeeper://h", "zookeeper: keeps locks and is no fence"),
        ("file:/marks?fsync=off", "fsync"),
    ] {
        home.write("fencepost.toml", &rule(&format!("fence = [{fence:?}]\n")));
        for args in [
            &["config", "check"][..],
            &["run", "nightly/a", "--", "true"],
            &["run", "--backend", "memory:", "nightly/a", "--", "true"],
        ] {
            let refused = home.run(args).exits(78);
            assert!(refused.stderr.contains(said), "{args:?} {}", refused.stderr);
        }
    }
    home.write("fencepost.toml", &rule(""));
    home.run(["config", "check"]).exits(0);
    home.run(["run", "--fence", "redis://h?bogus=1", "nightly/a", "--", "true"]).exits(64);
}

#[test]
fn check_without_a_configuration_answers_machines_too() {
    let checked = json(&Home::new().run(["config", "check", "--json"]).exits(0));
    assert_eq!(
        (&checked["file"], &checked["sound"], &checked["rules"]),
        (&Value::Null, &true.into(), &0.into())
    );
}

#[test]
fn file_that_cannot_be_read_hides_no_other() {
    let home = Home::new();
    home.write("a.toml", &rules("file:/a"));
    home.write("c.toml", &rules("redis://h"));
    let checked =
        home.run(["config", "check", "--json", "none.toml", "a.toml", "b.toml", "c.toml"]).exits(78);
    let lines: Vec<Value> = checked.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sound: Vec<bool> = lines.iter().map(|line| line["sound"].as_bool().unwrap()).collect();
    assert_eq!(sound, [false, true, false, true]);
    assert_eq!(
        (&lines[2]["file"], &lines[3]["findings"][0]["severity"]),
        (&"b.toml".into(), &"warning".into())
    );
}
