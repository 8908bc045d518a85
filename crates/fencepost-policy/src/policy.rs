//! A configuration that was read, and the choice that it makes for one lock.
//!
//! Invariant: secrets are looked up only for the lock that was asked for, so a rule never depends on another's.

use std::path::{Path, PathBuf};

use fencepost_core::{BackendUrl, LockName};

use crate::check;
use crate::compare;
use crate::finding::{ConfigError, Finding, Severity};
use crate::globs;
use crate::read::{self, Content};
use crate::rule::{Choice, Rule};
use crate::search::Surroundings;
use crate::source::Source;
use crate::template::Template;

/// How many rules are worth naming where none matched.
const MOST_NEAREST: usize = 3;

/// A configuration.
#[derive(Clone, Debug)]
pub struct Policy {
    source: Source,
    content: Content,
}

impl Policy {
    /// The first configuration that there is: the file `explicit`, the one that `FENCEPOST_CONFIG` names,
    /// `./fencepost.toml`, the user's, the system's. `None` if there is none at all.
    ///
    /// # Errors
    /// A file that was named and is not there; one that cannot be read, or is wrong.
    pub fn find(explicit: Option<&Path>) -> Result<Option<Self>, ConfigError> {
        Self::find_in(&Surroundings::of_process(), explicit)
    }

    /// The same in other surroundings.
    ///
    /// # Errors
    /// Those of [`find`](Self::find).
    pub fn find_in(
        surroundings: &Surroundings<'_>,
        explicit: Option<&Path>,
    ) -> Result<Option<Self>, ConfigError> {
        let found = surroundings.find(explicit)?;
        found.map(|(path, text)| Self::parse(&path, &text)).transpose()
    }

    /// The configurations that jobs find elsewhere: in another directory, of another user, or without the variable.
    pub fn others(&self) -> Vec<Result<Self, ConfigError>> {
        self.others_in(&Surroundings::of_process())
    }

    /// The same in other surroundings.
    pub fn others_in(&self, surroundings: &Surroundings<'_>) -> Vec<Result<Self, ConfigError>> {
        let found = surroundings.all().into_iter().filter(|found| !found.is_at(self.path()));
        found.map(|found| found.text().and_then(|text| Self::parse(found.path(), &text))).collect()
    }

    /// Where a rule is to be written: the file that would be read, or that the caller or `FENCEPOST_CONFIG` names; where
    /// there is none, `./fencepost.toml`.
    ///
    /// # Errors
    /// A file that is there and cannot be read.
    pub fn place(explicit: Option<&Path>) -> Result<PathBuf, ConfigError> {
        Self::place_in(&Surroundings::of_process(), explicit)
    }

    /// The same in other surroundings.
    ///
    /// # Errors
    /// Those of [`place`](Self::place).
    pub fn place_in(
        surroundings: &Surroundings<'_>,
        explicit: Option<&Path>,
    ) -> Result<PathBuf, ConfigError> {
        surroundings.place(explicit)
    }

    /// Reads the text of a configuration; `path` is only for messages.
    ///
    /// # Errors
    /// All that is wrong with it: the syntax, or else keys, values, globs, URLs and names of backends.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source::new(path, text);
        let content = read::read(&source)?;
        Ok(Self { source, content })
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Its rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.content.rules
    }

    /// The names of its backends.
    pub fn backends(&self) -> impl ExactSizeIterator<Item = &str> {
        self.content.backends.keys().map(String::as_str)
    }

    /// Its backends with the secrets filled in, in the order of their names.
    ///
    /// # Errors
    /// A secret that is not there.
    pub fn urls(&self) -> Result<Vec<BackendUrl>, ConfigError> {
        let (surroundings, mut wrong) = (Surroundings::of_process(), Vec::new());
        let templates = self.content.backends.values();
        let urls = templates
            .filter_map(|template| self.fill(template.get_ref(), &surroundings, &mut wrong))
            .collect();
        ConfigError::unless_empty(wrong)?;
        Ok(urls)
    }

    /// The URL of a rule's backend with the secrets filled in.
    ///
    /// # Errors
    /// A secret that is not there.
    ///
    /// # Panics
    /// Never: what is not filled in is an error.
    pub fn url_of(&self, rule: &Rule) -> Result<BackendUrl, ConfigError> {
        let mut wrong = Vec::new();
        let url = self.fill(self.template(rule), &Surroundings::of_process(), &mut wrong);
        ConfigError::unless_empty(wrong).map(|()| url.expect("what is not filled in is wrong"))
    }

    /// The rule for a lock: the first that matches it or, where it is a slot (`NAME#0` to `NAME#99`), the lock that it is one of.
    pub fn rule_for(&self, lock: &LockName) -> Option<&Rule> {
        let names = std::iter::once(lock.as_str()).chain(globs::whole(lock.as_str()));
        let matched = names.flat_map(|name| self.content.globs.matches(name));
        matched.min().map(|index| &self.content.rules[index])
    }

    /// The globs that come nearest to a lock's name, for a message that none matches it.
    pub fn nearest(&self, lock: &LockName) -> Vec<&str> {
        let near = |rule: &'_ Rule| globs::nearness(&rule.glob, lock.as_str());
        let mut rules: Vec<(f64, &str)> = self.rules().iter().map(|rule| (near(rule), &*rule.glob)).collect();
        rules.sort_by(|one, other| other.0.total_cmp(&one.0));
        rules.into_iter().map(|(_, glob)| glob).take(MOST_NEAREST).collect()
    }

    /// What it says about a lock, with the secrets filled in; `None` if no rule matches.
    ///
    /// # Errors
    /// A secret that is not there, and what [`check`](Self::check) calls an error in the rule that matches.
    pub fn choose(&self, lock: &LockName) -> Result<Option<Choice>, ConfigError> {
        self.choose_in(&Surroundings::of_process(), lock, None)
    }

    /// The same in other surroundings, and on `backend`, where one is given in place of the rule's own.
    ///
    /// # Errors
    /// Those of [`choose`](Self::choose).
    pub fn choose_in(
        &self,
        surroundings: &Surroundings<'_>,
        lock: &LockName,
        backend: Option<&BackendUrl>,
    ) -> Result<Option<Choice>, ConfigError> {
        let Some(rule) = self.rule_for(lock) else { return Ok(None) };
        let mut wrong = Vec::new();
        let backend = match backend {
            Some(url) => Some(url.clone()),
            None => self.fill(self.template(rule), surroundings, &mut wrong),
        };
        let fences: Vec<BackendUrl> =
            rule.fences.iter().filter_map(|fence| self.fill(fence, surroundings, &mut wrong)).collect();
        let findings = check::rule(self, rule, backend.as_ref());
        wrong.extend(findings.into_iter().filter(|finding| finding.severity() == Severity::Error));
        ConfigError::unless_empty(wrong)?;
        let timing = rule.timing.over(&self.content.defaults);
        Ok(backend.map(|backend| Choice {
            rule: rule.clone(),
            backend,
            ttl: timing.ttl.map(toml::Spanned::into_inner),
            wait: timing.wait.map(toml::Spanned::into_inner),
            grace: timing.grace.map(toml::Spanned::into_inner),
            fences,
        }))
    }

    /// All that can be said against it without connecting anywhere and without its secrets, in the order of the file.
    pub fn check(&self) -> Vec<Finding> {
        check::all(self)
    }

    /// Where it puts a lock elsewhere than `other` does, so that jobs which read the one and the other would not exclude
    /// each other. Names that both files match are tried.
    pub fn differences(&self, other: &Self) -> Vec<Finding> {
        compare::differences(self, other)
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn template(&self, rule: &Rule) -> &Template {
        self.content.backends.get(&rule.backend).expect("a rule names a backend of its file").get_ref()
    }

    fn fill(
        &self,
        template: &Template,
        surroundings: &Surroundings<'_>,
        wrong: &mut Vec<Finding>,
    ) -> Option<BackendUrl> {
        template.fill(&self.source, surroundings).map_err(|findings| wrong.extend(findings)).ok()
    }
}
