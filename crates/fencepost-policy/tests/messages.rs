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
        ("[backends.x]", "add `url = \"...\"`"),
        ("[backends.x]\nurl = \"/var/lib\"", "file:/var/lib"),
        ("[backends.x]\nurl = \"redis://h?max_ttl=60\"", "did you mean \"60s\"?"),
        (
            "[backends.x]\nurl = \"redis://${1}@h\"",
            "write `${NAME}` or `${file:/path}`; `$${` is a plain `${`",
        ),
        (
            "[backends.x]\nurl = \"file:/x\"\n[[locks]]\nmatch = \"a\"\nbackend = \"x\"\nhistory = 1001",
            "the most is 1000",
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
    let shown = r#"fencepost.toml:6:11: the rule says that an overlap corrupts, but the clock of one server, where it is set forward, ends its leases early
  |
6 | backend = "cheap"
  |           ^^^^^^^
  |
  = help: use etcd, zookeeper, postgres with `on_pause=hold`, or redlock with a fence; or stand by it: `accept_risk = "reason"`"#;
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
fn fence_has_a_name_or_a_url() {
    let text = r#"[backends.x]
url = "redis://h"
[fences.ledger]
url = "postgres://app@db/ledger"
[fences.spare]
url = "file:/marks"
[[locks]]
match = "a/**"
backend = "x"
fence = ["ledger", "redis://h"]
[[locks]]
match = "a/b"
backend = "x"
fence = ["spare"]
"#;
    let policy = Policy::parse(Path::new("f"), text).unwrap();
    let choice = policy.choose(&"a/1".parse().unwrap()).unwrap().unwrap();
    let fences: Vec<String> = choice.fences.iter().map(ToString::to_string).collect();
    assert_eq!(fences, ["postgres://app@db/ledger", "redis://h"]);
    let said = [
        r#"fencepost.toml:5:9: warning: no rule that can match uses the fence "spare", so it protects nothing"#,
        r#"fencepost.toml:12:9: warning: the rule never matches: "a/**" on line 7 comes first"#,
    ];
    assert_eq!(headlines(text), said);
    assert_eq!(headlines(&text.replace("\"a/b\"", "\"b\"")), [""; 0]);
}

#[test]
fn fence_that_is_not_there_is_named() {
    let text = "[backends.x]\nurl = \"redis://h\"\n[fences.ledger]\nurl = \"file:/x\"\n[[locks]]\n\
                match = \"a\"\nbackend = \"x\"\nfence = [\"leger\"]\n";
    let error = Policy::parse(Path::new("f"), text).unwrap_err();
    assert_eq!(error.findings()[0].message(), "there is no fence \"leger\"");
    assert_eq!(error.findings()[0].advice(), Some("did you mean `ledger`?"));
    let error =
        Policy::parse(Path::new("f"), &text.replace("[fences.ledger]\nurl = \"file:/x\"\n", "")).unwrap_err();
    assert_eq!(error.findings()[0].advice(), Some("write a URL, or add `[fences.\"leger\"]` with a `url`"));
}

#[test]
fn url_that_is_not_filled_in_is_an_error_of_its_rule_alone() {
    let text = r#"[backends.x]
url = "redis://app:secret@fill-in.invalid:6379"
[backends.y]
url = "redis://h"
[[locks]]
match = "a"
backend = "x"
[[locks]]
match = "fill-in/**"
backend = "y"
fence = ["s3://fill-in.invalid/prefix"]
[[locks]]
match = "b"
backend = "y"
"#;
    let said = [
        "fencepost.toml:2:7: the URL of the backend is not filled in yet",
        "fencepost.toml:9:9: warning: the names of the locks are not filled in yet",
        "fencepost.toml:11:10: the URL of the fence is not filled in yet",
    ];
    assert_eq!(headlines(text), said);
    let policy = Policy::parse(Path::new("f"), text).unwrap();
    for (lock, usable) in [("a", false), ("fill-in/x", false), ("b", true)] {
        assert_eq!(policy.choose(&lock.parse().unwrap()).is_ok(), usable, "{lock}");
    }
}

#[test]
fn partitions_are_read_with_the_same_care() {
    let read = |text: &str| fencepost_policy::partitions(Path::new("p.toml"), text);
    let text = "[[partitions]]\nmatch = \"a\"\non_overlap = \"wasteful\"\n[[partitions]]\nmatch = \"b/**\"\n\
                hosts = \"one\"\nfence = \"file:/x\"\nbecause = \"of b\"\n";
    let partitions = read(text).unwrap();
    assert_eq!((partitions.len(), partitions[1].because.as_deref()), (2, Some("of b")));
    for (wrong, said) in [
        ("", "p.toml:1:1: there are no partitions"),
        ("partitions = 3", "p.toml:1:14: \"partitions\" is a list"),
        ("[[locks]]", "p.toml:1:3: unknown key \"locks\""),
        ("[[partitions]]\nmatch = \"a**\"", "p.toml:2:9: `**` must stand between slashes"),
        ("[[partitions]]\non_overlap = \"absorbed\"", "p.toml:1:1: a partition needs a \"match\""),
        ("[[partitions]]\nmatch = \"a\"\ncan_puase = true", "p.toml:3:1: unknown key \"can_puase\""),
        (
            "[[partitions]]\nmatch = \"a\"\n[[partitions]]\nmatch = \"a\"",
            "p.toml:4:9: \"a\" is on line 2 already",
        ),
    ] {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
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
