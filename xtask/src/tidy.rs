//! Holds the tree to the rules of `CONTRIBUTING.md` that a program can check.
//!
//! A rule is a function from the tree to what it finds; it reads nothing but the tree, which a test can therefore
//! make up. Every rule has a name, and under that name a made-up violation in `tests/tidy.rs`.

use std::fmt;

pub use tree::Tree;

use tree::File;

mod backends;
mod bans;
mod declarations;
mod dependencies;
mod invariants;
mod letters;
mod packages;
mod pages;
mod sizes;
mod source;
mod tree;
mod words;

/// A place where the tree breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root of the workspace.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
    /// The name of the rule.
    pub rule: &'static str,
}

impl Finding {
    /// A finding in `file`, whose rule `check` fills in.
    fn new(file: &File, line: usize, message: impl Into<String>) -> Self {
        Self::at(&file.path, line, message)
    }

    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into(), rule: "" }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[(&str, Rule)] = &[
    ("syntax", sizes::syntax),
    ("head", sizes::head),
    ("file_size", sizes::file_size),
    ("function_size", sizes::function_size),
    ("allow", bans::allow),
    ("leftover", bans::leftover),
    ("unwrap", bans::unwrap),
    ("print", bans::print),
    ("clock", bans::clock),
    ("sentence", words::sentence),
    ("getter", words::getter),
    ("word", words::word),
    ("dependency", dependencies::dependency),
    ("backend", backends::backend),
    ("machine", pages::machine),
    ("page", pages::page),
    ("invariant", invariants::invariant),
    ("package", packages::package),
    ("ascii", letters::ascii),
];

/// The names of all rules.
pub fn rules() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(name, _)| *name)
}

/// What breaks a rule, in the order of files and lines.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|(name, rule)| named(name, rule(tree))).collect();
    findings.sort();
    findings
}

fn named(rule: &'static str, findings: Vec<Finding>) -> impl Iterator<Item = Finding> {
    findings.into_iter().map(move |finding| Finding { rule, ..finding })
}
