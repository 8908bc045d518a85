//! No text makes the reader panic, and none makes it tell a password.

use std::ffi::OsString;
use std::path::Path;

use fencepost_policy::{Policy, Surroundings, amended};
use proptest::prelude::*;

const LINES: &[&str] = &[
    "[backends.a]",
    "[backends.\"b c\"]",
    "[defaults]",
    "[[locks]]",
    "[locks]",
    "[[backends]]",
    "url = \"redis://u:pässwörd@h?max_ttl=5s\"",
    "url = \"${X}\"",
    "url = 'etcd://${file:/none}'",
    "url = \"\"\"postgres://u:pässwörd",
    "@h\"\"\"",
    "match = \"**\"",
    "match = \"{a,b*}/[c-d]\"",
    "match = \"x/*/**/y\"",
    "backend = \"a\"",
    "backend = \"b c\"",
    "ttl = \"30s\"",
    "ttl = 30",
    "grace = \"29s\"",
    "fence = [\"file:/x\", \"redis://u:pässwörd@h\"]",
    "fence = 3",
    "fence = [\"f\"]",
    "[fences.f]",
    "[fences]",
    "on_overlap = \"corrupts\"",
    "can_pause = true",
    "sink_checks = true",
    "hosts = \"many\"",
    "accept_risk = \"\"",
    "history = 0xff",
    "because = { x = 1 }",
    "locks = [{ match = \"a\", backend = \"a\" }, 3]",
    "password = \"pässwörd\"",
    "a.b.c = 1979-05-27",
    "[",
    "\"",
    "\u{feff}",
];

/// Does all that can be done with a text, and returns all that it says.
fn told(text: &str, lock: &str) -> String {
    let policy = match Policy::parse(Path::new("f"), text) {
        Ok(policy) => policy,
        Err(error) => return format!("{error} {error:?} {}", error.styled()),
    };
    let variable = |_: &str| Some(OsString::from("redis://u:pässwörd@h"));
    let surroundings = Surroundings { variable: &variable, ..Surroundings::of_process() };
    let Ok(lock) = lock.parse() else { return String::new() };
    let choice = policy.choose_in(&surroundings, &lock, None);
    format!("{choice:?} {policy:?} {:?} {:?}", policy.check(), policy.nearest(&lock))
}

const RULE: &str = "[backends.redis]\nurl = \"redis://fill-in.invalid\"\n\n[[locks]]\nmatch = \"a/x\"\nbackend = \"redis\"\n";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}", lock in "\\PC{1,20}") {
        told(&text, &lock);
    }

    #[test]
    fn any_lines_are_read_or_refused_without_a_password(
        lines in proptest::collection::vec(proptest::sample::select(LINES), 0..20),
        end in prop_oneof![Just("\n"), Just("\r\n")],
        lock in "[a-dxy/]{1,8}",
    ) {
        let said = told(&lines.join(end), &lock);
        prop_assert!(!said.contains("pässwörd"), "{said}");
    }

    #[test]
    fn any_lines_take_one_more_rule_or_refuse_it(
        lines in proptest::collection::vec(proptest::sample::select(LINES), 0..12),
        end in prop_oneof![Just("\n"), Just("\r\n")],
    ) {
        let text = lines.join(end);
        match amended(Path::new("f"), &text, RULE) {
            Ok(amended) => prop_assert!(Policy::parse(Path::new("f"), &amended.text).is_ok()),
            Err(error) => prop_assert!(!error.to_string().contains("pässwörd"), "{error}"),
        }
    }

    #[test]
    fn any_value_of_a_rule_is_read_or_refused(glob in "\\PC{0,20}", url in "\\PC{0,30}", ttl in "\\PC{0,9}") {
        let text = format!(
            "[backends.a]\nurl = {url:?}\n[[locks]]\nmatch = {glob:?}\nbackend = \"a\"\nttl = {ttl:?}\n"
        );
        told(&text, "a/b");
    }
}
