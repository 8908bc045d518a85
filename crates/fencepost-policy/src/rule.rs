//! One rule of the file, and the choice for one lock that follows from it.

use std::ops::Range;
use std::time::Duration;

use fencepost_advisor::Answers;
use fencepost_core::BackendUrl;
use toml::Spanned;

use crate::template::Template;

/// How many grants are kept where a rule says `history = true`.
pub(crate) const DEFAULT_HISTORY: u64 = 100;

/// How many grants are kept at most: they are read and written with each grant.
pub(crate) const MOST_HISTORY: u64 = 1000;

/// A rule: which locks it is for, where they live, and why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// Its number, counted from 1; the first rule that matches counts.
    pub number: usize,
    /// The line of the file where it begins.
    pub line: usize,
    /// The glob over the locks' names.
    pub glob: String,
    /// The name of its backend.
    pub backend: String,
    /// Whether a backend whose tokens could go back is refused.
    pub require_durable: bool,
    /// What it says about its locks.
    pub answers: Answers,
    /// Why it is as it is.
    pub because: Option<String>,
    /// Why it may be weaker than its answers demand.
    pub accept_risk: Option<String>,
    /// How many of the last grants are kept for `fencepost history`; zero where none is.
    pub history: u64,
    pub(crate) timing: Timing,
    pub(crate) fences: Vec<Template>,
    pub(crate) glob_at: Range<usize>,
    pub(crate) backend_at: Range<usize>,
    pub(crate) history_at: Range<usize>,
}

/// What the configuration says about one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The rule that matched.
    pub rule: Rule,
    /// Where the lock lives.
    pub backend: BackendUrl,
    /// The length of lease to ask for; `None` for the built-in one.
    pub ttl: Option<Duration>,
    /// How long to wait at most; `None` for no bound.
    pub wait: Option<Duration>,
    /// The time between SIGTERM and SIGKILL; `None` for the built-in one.
    pub grace: Option<Duration>,
    /// The fences to seal.
    pub fences: Vec<BackendUrl>,
}

/// The times of a rule or of the defaults, each with its place in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) ttl: Option<Spanned<Duration>>,
    pub(crate) wait: Option<Spanned<Duration>>,
    pub(crate) grace: Option<Spanned<Duration>>,
}

impl Timing {
    /// These times, and `defaults` where there is none.
    pub(crate) fn over(&self, defaults: &Self) -> Self {
        let first =
            |ours: &Option<Spanned<_>>, theirs: &Option<Spanned<_>>| ours.clone().or_else(|| theirs.clone());
        Self {
            ttl: first(&self.ttl, &defaults.ttl),
            wait: first(&self.wait, &defaults.wait),
            grace: first(&self.grace, &defaults.grace),
        }
    }
}
