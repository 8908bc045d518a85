//! The JSON Schema takes what the reader takes, and refuses what a schema can refuse.

use std::fs;
use std::path::Path;

use fencepost_advisor::{Answers, Details, Pattern, advise};
use fencepost_policy::{Policy, SCHEMA};
use jsonschema::Validator;
use serde_json::Value;

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    jsonschema::draft7::meta::validate(&schema).expect("the schema is one");
    jsonschema::validator_for(&schema).expect("the schema can be used")
}

/// What an editor hands to its validator.
fn value(text: &str) -> Value {
    toml::from_str(text).expect("it is TOML")
}

/// The configurations of a page: what stands in its blocks of TOML and in its examples.
fn examples(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(path).expect("the page is there");
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let literals = text.split("r#\"").skip(1).filter_map(|rest| rest.split("\"#").next());
    let is_whole = |text: &&str| text.contains("[[locks]]");
    blocks.chain(literals).filter(is_whole).map(str::to_owned).collect()
}

#[test]
fn every_example_of_the_documentation_is_valid_and_can_be_read() {
    let validator = validator();
    let mut seen = 0;
    for page in ["README.md", "../../README.md", "../../docs/configuration.md"] {
        for example in examples(page) {
            Policy::parse(Path::new(page), &example).unwrap_or_else(|error| panic!("{page}: {error}"));
            let errors: Vec<String> =
                validator.iter_errors(&value(&example)).map(|error| error.to_string()).collect();
            assert_eq!(errors, Vec::<String>::new(), "{page}: {example}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}

#[test]
fn every_rule_that_is_advised_is_valid() {
    for pattern in Pattern::ALL {
        let mut advice = advise(&Answers::default(), &[]);
        advice.pattern = pattern;
        let rule = advice.rule_for(&Details::default());
        assert!(validator().is_valid(&value(&rule)), "{rule}");
    }
}

const RIGHT: &str = r#"
[backends.a]
url = "redis://h"
[fences.f]
url = "sqlite:/x"
[defaults]
grace = "1s"
[[locks]]
match = "**"
backend = "a"
ttl = "1m30s"
wait = "500ms"
fence = ["f", "postgres://h/db", "${FENCE}"]
require = "durable"
on_overlap = "wasteful"
can_pause = true
databases = "many"
accept_risk = "until March"
history = true
"#;

#[test]
fn what_the_reader_refuses_word_by_word_the_schema_refuses_too() {
    assert!(validator().is_valid(&value(RIGHT)));
    assert!(Policy::parse(Path::new("f"), RIGHT).is_ok());
    for (right, wrong) in [
        ("redis://h", "reddis://h"),
        ("sqlite:/x", "redlock://a,b,c"),
        ("[defaults]", "[default]"),
        ("\"1m30s\"", "30"),
        ("\"1m30s\"", "\"30\""),
        ("\"500ms\"", "\"-1s\""),
        ("require = \"durable\"", "require = \"yes\""),
        ("\"wasteful\"", "\"waste\""),
        ("can_pause = true", "can_pause = \"yes\""),
        ("\"many\"", "2"),
        ("\"until March\"", "\"\""),
        ("history = true", "history = -1"),
        ("history = true", "history = 1001"),
        ("fence = [", "fenc = ["),
        ("match = \"**\"", ""),
        ("backend = \"a\"", ""),
        ("url = \"redis://h\"", ""),
    ] {
        let text = RIGHT.replace(right, wrong);
        assert_ne!(text, RIGHT, "{right}");
        assert!(!validator().is_valid(&value(&text)), "{wrong:?} is valid");
        assert!(Policy::parse(Path::new("f"), &text).is_err(), "{wrong:?} can be read");
    }
}
