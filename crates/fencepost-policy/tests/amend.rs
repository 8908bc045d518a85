//! What becomes of a configuration when a rule is put into it.

use std::path::Path;

use fencepost_advisor::{Answers, Details, Pattern, Question, advise};
use fencepost_policy::{Amended, ConfigError, Policy, Severity, amended};
use proptest::prelude::*;

/// The rule of the advice for these answers, in the order of the questions.
fn rule(glob: &str, answers: [&str; 6]) -> String {
    let mut known = Answers::default();
    for (question, answer) in Question::ALL.into_iter().zip(answers) {
        known.answer(question, answer);
    }
    advise(&known, &[]).rule_for(&Details {
        glob: Some(glob),
        because: Some("a \"test\"\\"),
        ..Details::default()
    })
}

const CRON: [&str; 6] = ["wasteful", "yes", "no", "one", "no", "many"];
const LEDGER: [&str; 6] = ["corrupts", "yes", "yes", "many", "yes", "many"];
const BACKUP: [&str; 6] = ["corrupts", "yes", "no", "one", "no", "one"];

fn put(text: &str, addition: &str) -> Result<Amended, ConfigError> {
    amended(Path::new("fencepost.toml"), text, addition)
}

const OURS: &str = r#"# The configuration of the data team.
# Ask before you change it.

[defaults]
ttl = "20s"   # short

[backends.cheap]  # one Redis
url = "redis://app:${REDIS_PASSWORD}@cache:6379"

# -- rules ----------------------------------------------------------

# streams
[[locks]]
match = "events/**"
backend   = 'cheap'

[[locks]]                      # everything else
match = "**"
backend = "cheap"

# the end
"#;

#[test]
fn rule_stands_before_the_one_that_would_be_found_first() {
    let amended = put(OURS, &rule("cron/*", CRON)).unwrap();
    let expected = OURS.replace(
        "\n[[locks]]                      # everything else",
        r#"
[[locks]]
match = "cron/*"
backend = "cheap"
on_overlap = "wasteful"
can_pause = true
postgres = false
databases = "one"
sink_checks = false
hosts = "many"
because = "a \"test\"\\"

[[locks]]                      # everything else"#,
    );
    assert_eq!(amended.text, expected);
    assert_eq!((amended.backend.as_str(), amended.reused), ("cheap", true));
    assert_eq!(amended.before.as_deref(), Some("**"));
}

#[test]
fn heading_of_the_rules_stays_above_a_rule_that_becomes_the_first() {
    let text = put(OURS, &rule("events/a", CRON)).unwrap().text;
    let (heading, new, old) = (text.find("-- rules"), text.find("events/a"), text.find("# streams"));
    assert!(heading < new && new < old, "{text}");
    assert!(
        text.contains("sink_checks = false\nhosts = \"many\"\nbecause = \"a \\\"test\\\"\\\\\"\n\n# streams")
    );
}

#[test]
fn backend_that_is_not_there_comes_along_and_is_not_filled_in() {
    let amended = put(OURS, &rule("ledger/**", LEDGER)).unwrap();
    assert_eq!((amended.backend.as_str(), amended.reused), ("etcd", false));
    let cheap = "[backends.cheap]  # one Redis\nurl = \"redis://app:${REDIS_PASSWORD}@cache:6379\"\n";
    let etcd = "\n[backends.etcd]\nurl = \"etcd://fill-in.invalid:2379\" # fill in your cluster\n";
    assert!(amended.text.contains(&format!("{cheap}{etcd}")), "{}", amended.text);
    let policy = Policy::parse(Path::new("f"), &amended.text).unwrap();
    let open: Vec<String> = policy.check().iter().map(|finding| finding.message().to_owned()).collect();
    let said = ["the URL of the backend is not filled in yet", "the URL of the fence is not filled in yet"];
    assert_eq!(open, said);
    assert!(policy.choose(&"ledger/1".parse().unwrap()).is_err());
}

#[test]
fn rule_that_nothing_covers_stands_at_the_end_below_the_last_remark() {
    let text = OURS.replace("match = \"**\"", "match = \"all/**\"");
    let amended = put(&text, &rule("cron/*", CRON)).unwrap();
    assert!(amended.text.starts_with(&format!("{text}\n[[locks]]\nmatch = \"cron/*\"")), "{}", amended.text);
    assert_eq!(amended.before, None);
}

#[test]
fn empty_file_becomes_the_rule_alone() {
    assert_eq!(put("", &rule("backup", BACKUP)).unwrap().text, rule("backup", BACKUP));
    let remarked = put("# Ours.\n", &rule("backup", BACKUP)).unwrap().text;
    assert_eq!(remarked, format!("# Ours.\n\n{}", rule("backup", BACKUP)));
}

#[test]
fn line_ends_and_byte_order_mark_stay() {
    let text = format!("\u{feff}{}", OURS.replace('\n', "\r\n"));
    let amended = put(&text, &rule("cron/*", CRON)).unwrap().text;
    assert_eq!(
        amended.strip_prefix('\u{feff}').unwrap().replace("\r\n", "\n"),
        put(OURS, &rule("cron/*", CRON)).unwrap().text
    );
    assert!(!amended.replace("\r\n", "").contains('\n'));
}

#[test]
fn rule_for_the_same_glob_is_refused_and_shown() {
    let refused = put(OURS, &rule("events/**", CRON)).unwrap_err().to_string();
    assert!(refused.contains("fencepost.toml:14:9: there is a rule for \"events/**\" already"), "{refused}");
    assert!(refused.contains("change it by hand"), "{refused}");
}

#[test]
fn fence_may_have_a_name_that_the_file_knows() {
    let named = |name: &str| rule("ledger/**", LEDGER).replace("postgres://fill-in.invalid/database", name);
    let text = format!("[fences.marks]\nurl = \"file:/marks\"\n\n{OURS}");
    assert!(put(&text, &named("marks")).unwrap().text.contains("fence = [\"marks\"]"));
    let refused = put(&text, &named("mraks")).unwrap_err().to_string();
    assert!(
        refused.contains("there is no fence \"mraks\"") && refused.contains("did you mean `marks`?"),
        "{refused}"
    );
}

#[test]
fn file_that_is_wrong_is_refused_as_it_is() {
    let refused = put("[[locks]\n", &rule("a", CRON)).unwrap_err().to_string();
    assert!(refused.contains("fencepost.toml:1:"), "{refused}");
}

#[test]
fn rules_in_one_line_are_left_to_hands() {
    let text = "locks = [{ match = \"b\", backend = \"x\" }]\nbackends = { x = { url = \"redis://h\" } }\n";
    let refused = put(text, &rule("a", CRON)).unwrap_err().to_string();
    assert!(refused.contains("write each rule below `[[locks]]`"), "{refused}");
}

#[test]
fn backends_in_one_line_get_one_more() {
    let text = "backends = { x = { url = \"redis://h\" } }\n[[locks]]\nmatch = \"b\"\nbackend = \"x\"\n";
    let amended = put(text, &rule("a", BACKUP)).unwrap();
    let policy = Policy::parse(Path::new("f"), &amended.text).unwrap();
    assert_eq!((policy.backends().len(), policy.rules().len()), (2, 2), "{}", amended.text);
}

#[test]
fn named_server_is_another_backend_than_one_elsewhere() {
    let here = rule("cron/*", CRON).replace("fill-in.invalid:6379", "elsewhere:6379");
    let amended = put(OURS, &here).unwrap();
    assert_eq!((amended.backend.as_str(), amended.reused), ("redis", false));
    let again = put(&amended.text, &here.replace("cron/*", "mails/*")).unwrap();
    assert_eq!((again.backend.as_str(), again.reused), ("redis", true));
    let taken =
        OURS.replace("backends.cheap", "backends.etcd").replace("backend   = 'cheap'", "backend = 'etcd'");
    let taken = taken.replace("backend = \"cheap\"", "backend = \"etcd\"");
    assert_eq!(put(&taken, &rule("ledger/**", LEDGER)).unwrap().backend, "etcd-2");
}

#[test]
fn tables_in_any_order_keep_the_order_of_the_rules() {
    let text = "[[locks]]\nmatch = \"a/*\"\nbackend = \"x\"\n[backends.x]\nurl = \"redis://h\"\n[[locks]]\n\
                match = \"**\"\nbackend = \"y\"\n[backends.y]\nurl = \"redis://i\"\n[defaults]\nttl = \"9s\"\n";
    let turned = "[backends.x]\nurl = \"redis://h\"\n[[locks]]\nmatch = \"a/*\"\nbackend = \"x\"\n[backends.y]\n\
                  url = \"redis://i\"\n[[locks]]\nmatch = \"**\"\nbackend = \"y\"\n[backends.z]\nurl = \"etcd://i\"\n";
    for (glob, globs) in [("a/b", ["a/b", "a/*", "**"]), ("c", ["a/*", "c", "**"])] {
        for (text, answers) in [(text, CRON), (text, BACKUP), (turned, CRON), (turned, BACKUP)] {
            let amended = put(text, &rule(glob, answers)).unwrap();
            let policy = Policy::parse(Path::new("f"), &amended.text).unwrap();
            let order: Vec<&str> = policy.rules().iter().map(|rule| rule.glob.as_str()).collect();
            assert_eq!(order, globs, "{}", amended.text);
        }
    }
}

/// All advice there is, put into an empty file and read by `check` again.
#[test]
fn rule_that_is_advised_is_never_refused_for_its_own_answers() {
    let mut all = vec![Vec::new()];
    for question in Question::ALL {
        let answers = question.choices().iter().map(|choice| choice.answer).chain(["unknown"]);
        let answers: Vec<&str> = answers.collect();
        let longer = |known: &Vec<&'static str>, answer: &'static str| [known.as_slice(), &[answer]].concat();
        all = all.iter().flat_map(|known| answers.iter().map(|answer| longer(known, answer))).collect();
    }
    assert_eq!(all.len(), 972);
    for answers in all {
        let written = rule("jobs/**", answers.clone().try_into().unwrap());
        let filled_in = put("", &written).unwrap().text.replace("fill-in.invalid", "example.com");
        let policy = Policy::parse(Path::new("f"), &filled_in).unwrap();
        assert_eq!(policy.check(), [], "{answers:?}");
        assert!(policy.choose(&"jobs/1".parse().unwrap()).unwrap().is_some());
        // The same rule on one Redis, or without its fence, is refused where an overlap corrupts.
        if answers[0] == "corrupts" && !answers.contains(&"unknown") {
            let weak = weakened(&filled_in);
            let found = Policy::parse(Path::new("f"), &weak).unwrap().check();
            assert!(found.iter().any(|finding| finding.severity() == Severity::Error), "{weak}");
        }
    }
}

fn weakened(text: &str) -> String {
    if text.contains("fence = ") {
        return text
            .lines()
            .filter(|line| !line.starts_with("fence = "))
            .fold(String::new(), |all, line| all + line + "\n");
    }
    let lines =
        text.lines().map(|line| if line.starts_with("url = ") { "url = \"redis://h\"" } else { line });
    lines.fold(String::new(), |all, line| all + line + "\n")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn other_rules_mean_what_they_meant(
        globs in proptest::collection::vec("[ab*]{1,2}(/([ab*]{1}|\\*\\*)){0,2}", 0..5),
        glob in "[ab]{1,2}(/([ab*]{1}|\\*\\*)){0,2}",
        names in proptest::collection::vec("[ab]{1,2}(/[ab]{1,2}){0,3}", 20),
    ) {
        let mut text = "# head\n\n[backends.x]\nurl = \"redis://h\"\n".to_owned();
        for (number, glob) in globs.iter().enumerate() {
            let rule = format!("[[locks]]\nmatch = {glob:?}\nbackend = \"x\"\nbecause = \"{number}\"\n");
            text.extend(["\n# a rule\n", &rule]);
        }
        let Ok(before) = Policy::parse(Path::new("f"), &text) else { return Ok(()) };
        for answers in [CRON, LEDGER] {
            let Ok(amended) = put(&text, &rule(&glob, answers)) else { continue };
            let after = Policy::parse(Path::new("f"), &amended.text).unwrap();
            for name in &names {
                let name = name.parse().unwrap();
                let why = |policy: &Policy| policy.rule_for(&name).and_then(|rule| rule.because.clone());
                let now = why(&after);
                let is_new = now.as_deref() == Some("a \"test\"\\");
                prop_assert!(is_new || now == why(&before), "{} {}", name, amended.text);
            }
            for line in text.lines() {
                prop_assert!(amended.text.lines().any(|other| other == line), "{}", amended.text);
            }
        }
    }
}

#[test]
fn every_pattern_has_a_rule_that_can_be_read() {
    for pattern in Pattern::ALL {
        let mut advice = advise(&Answers::default(), &[]);
        advice.pattern = pattern;
        let rule = advice.rule_for(&Details::default());
        assert!(rule.contains(pattern.name()) && Policy::parse(Path::new("f"), &rule).is_ok(), "{rule}");
    }
}

#[test]
fn backend_that_is_too_weak_for_the_answers_is_left_alone() {
    let one_database = ["corrupts", "yes", "yes", "one", "yes", "many"];
    for (weak, answers, url) in [
        ("postgres://h/d?quarantine=off", one_database, "postgres://fill-in.invalid/database"),
        ("postgres://h/d?on_pause=expire", one_database, "postgres://fill-in.invalid/database"),
        ("postgres://h/d?quarantine=${X}", one_database, "postgres://fill-in.invalid/database"),
        ("file:/tmp/x", BACKUP, "file:/var/lib/fencepost"),
        ("file:", BACKUP, "file:/var/lib/fencepost"),
    ] {
        let text = format!("[backends.old]\nurl = \"{weak}\"\n");
        let new = put(&text, &rule("a", answers)).unwrap();
        assert_eq!((new.reused, new.url.as_str()), (false, url), "{weak}");
        assert!(new.text.starts_with(&text), "{}", new.text);
    }
    let both = "[backends.z]\nurl = \"postgres://h/d?quarantine=off\"\n[backends.a]\nurl = \"postgres://u:pw@h/d?max_ttl=5m\"\n";
    let reused = put(both, &rule("a", one_database)).unwrap();
    assert_eq!((reused.backend.as_str(), reused.url.as_str()), ("a", "postgres://u:***@h/d?max_ttl=5m"));
    let harmless = ["wasteful", "yes", "yes", "one", "yes", "many"];
    assert_eq!(put(both, &rule("a", harmless)).unwrap().backend, "z", "nothing is lost there");
}
