//! The advice as a part of a configuration.
//!
//! Invariant: what is not known is written as something that no server is called and no lock is named, so that it cannot
//! work by accident. The configuration refuses it until it is filled in.

use std::fmt::Write;

use crate::advice::Advice;
use crate::answers::Answers;
use crate::pattern::Pattern;
use crate::question::Question;

/// Stands for a host that is to be filled in. No name under `invalid` is ever resolved ([RFC 2606]).
///
/// [RFC 2606]: https://www.rfc-editor.org/rfc/rfc2606#section-2
pub const FILL_IN: &str = "fill-in.invalid";

/// Stands for the names of locks that are to be filled in.
pub const FILL_IN_GLOB: &str = "fill-in/**";

/// Where locks of one host are kept that the jobs of several users share.
pub const DIRECTORY: &str = "file:/var/lib/fencepost";

/// What the answers leave open. What is not known is written as something to fill in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details<'a> {
    /// Which locks the rule is for.
    pub glob: Option<&'a str>,
    /// The URL of the backend.
    pub backend: Option<&'a str>,
    /// The fence: its URL, or a name that the configuration has for it. One that the advice does not ask for does no harm.
    pub fence: Option<&'a str>,
    /// Why the rule is as it is.
    pub because: Option<&'a str>,
}

/// The lines of a configuration that say what `advice` says.
pub(crate) fn written(advice: &Advice, durable: bool, details: &Details<'_>) -> String {
    let kind = advice.pattern.name();
    let mut lines =
        vec![format!("[backends.{kind}]"), backend(advice.pattern, details.backend), String::new()];
    lines.push("[[locks]]".to_owned());
    lines.push(format!("match = {}", quoted(details.glob.unwrap_or(FILL_IN_GLOB))));
    lines.push(format!("backend = {}", quoted(kind)));
    match details.fence {
        Some(fence) => lines.push(format!("fence = [{}]", quoted(fence))),
        None if advice.fence => {
            let unknown = quoted(&unknown_fence(advice.answers));
            lines.push(format!("fence = [{unknown}] # fill in what is written to"));
        }
        None => {}
    }
    if durable {
        lines.push("require = \"durable\"".to_owned());
    }
    lines.extend(answers(advice.answers));
    lines.extend(details.because.map(|because| format!("because = {}", quoted(because))));
    lines.join("\n") + "\n"
}

fn backend(pattern: Pattern, known: Option<&str>) -> String {
    match (known, url(pattern)) {
        (Some(known), _) => format!("url = {}", quoted(known)),
        (None, (url, remark)) => format!("url = {} # {remark}", quoted(&url)),
    }
}

/// The URL of a backend of which nothing else is known, and what to do about it.
fn url(pattern: Pattern) -> (String, &'static str) {
    match pattern {
        Pattern::File => {
            let made = "made once by: install -d -m 2770 -g GROUP /var/lib/fencepost";
            (DIRECTORY.to_owned(), made)
        }
        Pattern::Redis => (format!("redis://{FILL_IN}:6379"), "fill in your server"),
        Pattern::Redlock => {
            let node = |number: u8| format!("node-{number}.{FILL_IN}:6379");
            let nodes = [node(1), node(2), node(3)];
            (format!("redlock://{}", nodes.join(",")), "fill in your servers, an odd number")
        }
        Pattern::Postgres => (format!("postgres://{FILL_IN}/database"), "fill in your database"),
        Pattern::Etcd => (format!("etcd://{FILL_IN}:2379"), "fill in your cluster"),
        Pattern::Zookeeper => (format!("zookeeper://{FILL_IN}:2181"), "fill in your ensemble"),
    }
}

/// What is written to is Postgres where one is there; otherwise it is a guess that has to be filled in as well.
fn unknown_fence(answers: Answers) -> String {
    match answers.postgres {
        Some(true) => format!("postgres://{FILL_IN}/database"),
        _ => format!("s3://{FILL_IN}/prefix"),
    }
}

/// The answers that were given, in words that the configuration knows.
fn answers(answers: Answers) -> impl Iterator<Item = String> {
    Question::ALL.into_iter().filter_map(move |question| {
        let value = match answers.to(question)? {
            "yes" => "true".to_owned(),
            "no" => "false".to_owned(),
            word => quoted(word),
        };
        Some(format!("{} = {value}", question.key()))
    })
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}
