//! What people read when a configuration is wrong, letter by letter.

use std::path::Path;

use fencepost_policy::{Policy, Severity};

fn refusal(text: &str) -> String {
    let parsed = Policy::parse(Path::new("fencepost.toml"), text);
    parsed.expect_err("the text is wrong").to_string()
}

/// The first lines of all messages.
fn headlines(text: &str) -> Vec<String> {
    let parsed = Policy::parse(Path::new("fencepost.toml"), text);
    let findings = match parsed {
        Ok(policy) => policy.check(),
        Err(error) => error.findings().to_vec(),
    };
    findings.iter().filter_map(|finding| finding.to_string().lines().next().map(str::to_owned)).collect()
}

#[test]
fn unknown_key_is_shown_where_it_stands() {
    let text = r#"[backends.cheap]
url = "redis://cache:6379"

[[locks]]
match = "events/**"
backand = "cheap"
backend = "cheap"
"#;
    let shown = r#"fencepost.toml:6:1: unknown key "backand"
  |
6 | backand = "cheap"
  | ^^^^^^^
  |
  = help: did you mean `backend`?"#;
    assert_eq!(refusal(text), shown);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let text = r#"
[backends.cheap]
url = "reddis://h"
[defaults]
ttl = 30
retries = 3
[[locks]]
match = "a**"
backend = "chaep"
wait = "0"
[[locks]]
fence = "postgres://h"
on_overlap = "corupts"
can_pause = "yes"
accept_risk = " "
history = -1
"#;
    assert_eq!(
        headlines(text),
        [
            r#"fencepost.toml:3:7: cannot read the URL: there is no backend "reddis""#,
            r#"fencepost.toml:5:7: "ttl" is a duration with a unit, in quotes"#,
            r#"fencepost.toml:6:1: unknown key "retries""#,
            r"fencepost.toml:8:9: `**` must stand between slashes",
            r#"fencepost.toml:9:11: there is no backend "chaep""#,
            r#"fencepost.toml:10:8: "0" has no unit"#,
            r#"fencepost.toml:11:1: a rule needs a "match""#,
            r#"fencepost.toml:11:1: a rule needs a "backend""#,
            r#"fencepost.toml:12:9: "fence" is a list"#,
            r#"fencepost.toml:13:14: "on_overlap" cannot be "corupts""#,
            r#"fencepost.toml:14:13: "can_pause" is true or false"#,
            r#"fencepost.toml:15:15: "accept_risk" is empty"#,
            r#"fencepost.toml:16:11: "history" is a number of grants, true or false"#,
        ]
    );
}

#[test]
fn every_message_says_what_to_do() {
    for (text, hint) in [
        ("[backend.x]", "did you mean `backends`?"),
        ("[defaults]\nttl = 30", "write it like `ttl = \"30s\"`"),
        ("[defaults]\nttl = \"30\"", "did you mean \"30s\"?"),
        ("[defaults]\nttl = \"0s\"", "the built-in ttl is 30s"),
        ("[locks]\nmatch = \"x\"", "write `[[locks]]` with two brackets on either side"),
        ("locks = 3", "write `[[locks]]` with two brackets on either side"),
        ("[backends.x]", "add `url = \"…\"`"),
        ("[backends.x]\nurl = \"/var/lib\"", "file:/var/lib"),
        ("[backends.x]\nurl = \"redis://h?max_ttl=60\"", "did you mean \"60s\"?"),
        (
            "[backends.x]\nurl = \"redis://${1}@h\"",
            "write `${NAME}` or `${file:/path}`; `$${` is a plain `${`",
        ),
        ("[[locks]]\nmatch = \"a\"\nbackend = \"x\"", "add `[backends.\"x\"]` with a `url`"),
        ("[backends.x]\nurl = \"file:/x\"\n[[locks]]\nmatch = \"a\"\nbackend = \"other\"", "there is \"x\""),
    ] {
        let error = Policy::parse(Path::new("f"), text).unwrap_err();
        assert_eq!(error.findings()[0].advice(), Some(hint), "{text}");
    }
}

#[test]
fn url_is_refused_where_its_kind_cannot_be_used() {
    let text = r#"
[backends.x]
url = "s3://bucket/prefix"
[[locks]]
match = "a"
backend = "x"
fence = [ "redlock://h1,h2" ]
"#;
    let shown = [
        "fencepost.toml:3:7: s3 is a fence and keeps no locks",
        "fencepost.toml:7:11: redlock is no fence: its nodes do not agree on a mark",
    ];
    assert_eq!(headlines(text), shown);
}

#[test]
fn broken_syntax_is_shown_where_it_breaks() {
    let shown = r"fencepost.toml:2:8: unclosed array table, expected `]]`
  |
2 | [[locks
  |        ^";
    assert_eq!(refusal("\n[[locks\n"), shown);
}

#[test]
fn columns_count_letters_after_a_byte_order_mark_too() {
    assert_eq!(headlines("\u{feff}[\"äöü\".x]\r\n"), [r#"fencepost.toml:1:2: unknown key "äöü""#]);
    let text = "[backends]\n\"ä\" = { url = \"file:/x\", \"ü\" = 1 }\n";
    assert_eq!(headlines(text), [r#"fencepost.toml:2:26: unknown key "ü""#]);
}

#[test]
fn quoted_line_has_no_password() {
    let text = r#"[backends.a]
url = "reddis://app:hunter2@h:6379?secret=hunter2"
password = "hunter2"
[backends.b]
url = """redis://app:hunter2
@h"""
[[locks]]
match = "x"
backend = "c"
fence = ["what://app:hunter2@h"]
"#;
    let shown = refusal(text);
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.contains(r#"2 | url = "reddis://app:***@h:6379?secret=***"#), "{shown}");
    assert!(!refusal("url = \"redis://app:hun\"ter2@h\"").contains("ter2"));
}

#[test]
fn weak_rule_is_told_what_would_be_strong_enough() {
    let text = r#"
[backends.cheap]
url = "redis://cache:6379"
[[locks]]
match = "ledger/**"
backend = "cheap"
on_overlap = "corrupts"
"#;
    let policy = Policy::parse(Path::new("fencepost.toml"), text).unwrap();
    let shown = r#"fencepost.toml:6:11: the rule says that an overlap corrupts, but one Redis loses its locks when it fails over or loses its memory
  |
6 | backend = "cheap"
  |           ^^^^^^^
  |
  = help: use etcd, zookeeper, postgres, or redlock with a fence; or stand by it: `accept_risk = "reason"`"#;
    assert_eq!(policy.check()[0].to_string(), shown);
    assert_eq!(policy.choose(&"ledger/1".parse().unwrap()).unwrap_err().to_string(), shown);
}

#[test]
fn check_finds_what_can_be_found_without_a_server() {
    let text = r#"
[backends.cheap]
url = "redis://cache:6379?max_ttl=20s"
[backends.spare]
url = "${SPARE}"
[defaults]
grace = "40s"
[[locks]]
match = "a/**"
backend = "cheap"
ttl = "2m"
[[locks]]
match = "a/*/c"
backend = "cheap"
ttl = "20s"
grace = "1s"
accept_risk = "none"
[[locks]]
match = "**"
backend = "cheap"
grace = "1s"
"#;
    assert_eq!(
        headlines(text),
        [
            r#"fencepost.toml:4:11: note: no rule uses the backend "spare""#,
            r#"fencepost.toml:11:7: a ttl of 2m is more than the 20s that the backend "cheap" gives"#,
            r#"fencepost.toml:13:9: warning: the rule never matches: "a/**" on line 8 comes first"#,
            r"fencepost.toml:13:9: note: the rule accepts a risk that it does not have",
            r#"fencepost.toml:20:11: the built-in ttl of 30s is more than the 20s that the backend "cheap" gives"#,
        ]
    );
    let grace = text.replace("ttl = \"2m\"", "ttl = \"10s\"");
    assert!(
        headlines(&grace)
            .contains(&"fencepost.toml:11:7: a grace of 40s is more than half of the ttl of 10s".to_owned())
    );
}

#[test]
fn ttl_is_bounded_where_the_store_has_a_quarantine() {
    for (url, found) in
        [("redis://h", 1), ("redlock://a,b,c", 1), ("postgres://h/db", 1), ("etcd://h", 0), ("file:/x", 0)]
    {
        let text = format!(
            "[backends.x]\nurl = {url:?}\n[[locks]]\nmatch = \"**\"\nbackend = \"x\"\nttl = \"61s\"\n"
        );
        assert_eq!(headlines(&text).len(), found, "{url}");
        assert_eq!(headlines(&text.replace("61s", "60s")).len(), 0, "{url}");
    }
}

#[test]
fn severity_is_ordered() {
    assert!(Severity::Note < Severity::Warning && Severity::Warning < Severity::Error);
}

#[test]
fn colours_are_only_in_the_styled_text() {
    let error = Policy::parse(Path::new("f"), "locks = 3").unwrap_err();
    assert!(error.styled().contains("\u{1b}["));
    assert!(!error.to_string().contains('\u{1b}'));
}
