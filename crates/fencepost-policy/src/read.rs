//! The keys of the file: what each means, and which there are.
//!
//! Invariant: all that is wrong with a file is reported at once, except that a broken syntax hides the rest.

use std::collections::BTreeMap;

use fencepost_advisor::{Answers, Overlap, Reach};
use fencepost_core::BackendUrl;
use globset::{Glob, GlobSet};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::longest_ttl;
use crate::finding::ConfigError;
use crate::globs;
use crate::rule::{DEFAULT_HISTORY, MOST_HISTORY, Rule, Timing};
use crate::source::Source;
use crate::table::{Reader, Table, Value, meant, quoted};
use crate::template::{Role, Template};

pub(crate) const ROOT_KEYS: &[&str] = &["backends", "fences", "defaults", "locks"];
pub(crate) const PLACE_KEYS: &[&str] = &["url"];
pub(crate) const TIMING_KEYS: &[&str] = &["ttl", "wait", "grace"];
pub(crate) const RULE_KEYS: &[&str] = &[
    "match",
    "backend",
    "ttl",
    "wait",
    "grace",
    "fence",
    "require",
    "on_overlap",
    "can_pause",
    "postgres",
    "sink_checks",
    "databases",
    "hosts",
    "because",
    "accept_risk",
    "history",
];
/// The keys of the answers, which a list of partitions has too.
pub(crate) const ANSWER_KEYS: &[&str] =
    &["on_overlap", "can_pause", "postgres", "sink_checks", "databases", "hosts"];
pub(crate) const REACHES: &[(&str, Reach)] = &[named_reach(Reach::One), named_reach(Reach::Many)];
pub(crate) const OVERLAPS: &[(&str, Overlap)] =
    &[named(Overlap::Absorbed), named(Overlap::Wasteful), named(Overlap::Corrupts)];

const fn named(overlap: Overlap) -> (&'static str, Overlap) {
    (overlap.name(), overlap)
}

const fn named_reach(reach: Reach) -> (&'static str, Reach) {
    (reach.name(), reach)
}

/// Backends or fences by their names.
pub(crate) type Places = BTreeMap<String, Spanned<Template>>;

/// All that a file says.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) defaults: Timing,
    pub(crate) backends: Places,
    pub(crate) fences: Places,
    pub(crate) rules: Vec<Rule>,
    pub(crate) globs: GlobSet,
}

/// Reads a configuration.
pub(crate) fn read(source: &Source) -> Result<Content, ConfigError> {
    with_root(source, content)
}

fn content<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Content {
    reader.content(root)
}

/// What `look` makes of the root of a file, if nothing is wrong with that.
pub(crate) fn with_root<T>(
    source: &Source,
    look: impl for<'a> FnOnce(&mut Reader<'a>, &Table<'a>) -> T,
) -> Result<T, ConfigError> {
    let (root, broken) = DeTable::parse_recoverable(source.text());
    let mut reader = Reader { source, wrong: Vec::new() };
    for error in &broken {
        let end = source.text().len();
        reader.wrong.push(source.syntax_error(error.span().unwrap_or(end..end), error.message()));
    }
    ConfigError::unless_empty(std::mem::take(&mut reader.wrong))?;
    let read = look(&mut reader, &Table::new(root.get_ref(), "the file", root.span()));
    ConfigError::unless_empty(reader.wrong)?;
    Ok(read)
}

impl<'a> Reader<'a> {
    fn content(&mut self, root: &Table<'a>) -> Content {
        self.refuse_unknown_keys(root, ROOT_KEYS);
        let defaults = root.get("defaults").and_then(|value| self.table(value, "defaults", TIMING_KEYS));
        let defaults = defaults.map(|table| self.timing(&table)).unwrap_or_default();
        let (names, backends) = self.places(root, "backends", Role::Backend);
        let (_, fences) = self.places(root, "fences", Role::Fence);
        let mut rules = Vec::new();
        let mut read_globs = Vec::new();
        for value in self.locks(root) {
            if let Some((rule, glob)) = self.rule(value, rules.len() + 1, &names, &fences) {
                rules.push(rule);
                read_globs.push(glob);
            }
        }
        Content { defaults, backends, fences, rules, globs: self.compiled(root, &read_globs) }
    }

    fn compiled(&mut self, root: &Table<'a>, read: &[Glob]) -> GlobSet {
        GlobSet::new(read).unwrap_or_else(|error| {
            self.refuse(
                root.span.clone(),
                format!("the globs cannot be used together: {error}"),
                "use fewer rules",
            );
            GlobSet::empty()
        })
    }

    /// The tables below `key`: all their names, and those that could be read.
    fn places(&mut self, root: &Table<'a>, key: &'static str, role: Role) -> (Vec<&'a str>, Places) {
        let table = root.get(key).and_then(|value| self.table(value, key, &[]));
        let entries = table.map(|table| table.entries()).unwrap_or_default();
        let names = entries.iter().map(|(name, _)| *name.get_ref()).collect();
        (names, entries.iter().filter_map(|(name, value)| self.place(name, value, role)).collect())
    }

    fn place(
        &mut self,
        name: &Spanned<&'a str>,
        value: &'a Value<'a>,
        role: Role,
    ) -> Option<(String, Spanned<Template>)> {
        let what = if role == Role::Backend { "a backend" } else { "a fence" };
        let table = self.table(value, what, PLACE_KEYS)?;
        let url = self.required(&table, "url")?;
        let template = Template::read(self.source, url.get_ref(), url.span(), role, &mut self.wrong);
        let limit = template.outline().and_then(Result::ok).map(|url: BackendUrl| longest_ttl(&url));
        if let Some(Err(error)) = limit {
            self.refuse(url.span(), format!("max_ttl: {}", error.message()), error.hint());
        }
        Some(((*name.get_ref()).to_owned(), Spanned::new(name.span(), template)))
    }

    fn locks(&mut self, root: &Table<'a>) -> &'a [Value<'a>] {
        if let Some(value) = root.get("locks").filter(|value| !value.get_ref().is_array()) {
            self.refuse(
                value.span(),
                "\"locks\" is a list of rules",
                "write `[[locks]]` with two brackets on either side",
            );
            return &[];
        }
        self.array(root, "locks")
    }

    fn rule(
        &mut self,
        value: &'a Value<'a>,
        number: usize,
        backends: &[&str],
        fences: &Places,
    ) -> Option<(Rule, Glob)> {
        let table = self.table(value, "a rule", RULE_KEYS)?;
        let glob = self.required(&table, "match");
        let backend = self.required(&table, "backend").filter(|name| self.knows(name, backends));
        let rule = Rule {
            number,
            line: self.source.line(table.span.start),
            glob: glob.as_ref().map(|glob| (*glob.get_ref()).to_owned()).unwrap_or_default(),
            backend: backend.as_ref().map(|name| (*name.get_ref()).to_owned()).unwrap_or_default(),
            require_durable: self.word(&table, "require", &[("durable", ())]).is_some(),
            answers: self.answers(&table),
            because: self.text(&table, "because").map(|text| (*text.get_ref()).to_owned()),
            accept_risk: self.accepted_risk(&table),
            history: self.history(&table),
            timing: self.timing(&table),
            fences: self.fences(&table, fences),
            glob_at: glob.as_ref().map(Spanned::span).unwrap_or_default(),
            backend_at: backend.as_ref().map(Spanned::span).unwrap_or_default(),
            history_at: table.get("history").map(Spanned::span).unwrap_or_default(),
        };
        let read = globs::read(glob?.get_ref())
            .map_err(|(problem, hint)| self.refuse(rule.glob_at.clone(), problem, hint));
        backend.and(read.ok()).map(|glob| (rule, glob))
    }

    fn knows(&mut self, name: &Spanned<&'a str>, backends: &[&str]) -> bool {
        let known = backends.contains(name.get_ref());
        if !known {
            let example = format!("add `[backends.{:?}]` with a `url`", name.get_ref());
            let all = || if backends.is_empty() { example } else { format!("there is {}", quoted(backends)) };
            let hint = meant(name.get_ref(), backends).unwrap_or_else(all);
            self.refuse(name.span(), format!("there is no backend {:?}", name.get_ref()), hint);
        }
        known
    }

    fn timing(&mut self, table: &Table<'a>) -> Timing {
        let ttl = self.duration(table, "ttl");
        if let Some(ttl) = ttl.as_ref().filter(|ttl| ttl.get_ref().is_zero()) {
            self.refuse(ttl.span(), "a ttl of zero is no lease", "the built-in ttl is 30s");
        }
        Timing { ttl, wait: self.duration(table, "wait"), grace: self.duration(table, "grace") }
    }

    pub(crate) fn answers(&mut self, table: &Table<'a>) -> Answers {
        let mut answers = Answers::default();
        answers.on_overlap = self.word(table, "on_overlap", OVERLAPS);
        answers.can_pause = self.flag(table, "can_pause");
        answers.postgres = self.flag(table, "postgres");
        answers.sink_checks = self.flag(table, "sink_checks");
        answers.databases = self.word(table, "databases", REACHES);
        answers.hosts = self.word(table, "hosts", REACHES);
        answers
    }

    fn accepted_risk(&mut self, table: &Table<'a>) -> Option<String> {
        let reason = self.text(table, "accept_risk")?;
        if reason.get_ref().trim().is_empty() {
            self.refuse(reason.span(), "\"accept_risk\" is empty", "write down why the risk is accepted");
        }
        Some((*reason.get_ref()).to_owned())
    }

    fn fences(&mut self, table: &Table<'a>, known: &Places) -> Vec<Template> {
        let mut fences = Vec::new();
        for value in self.array(table, "fence") {
            match value.get_ref() {
                DeValue::String(name) if is_name(name) => match known.get(&**name) {
                    Some(template) => fences.push(template.get_ref().clone()),
                    None => self.refuse_fence(name, value, known),
                },
                DeValue::String(url) => {
                    fences.push(Template::read(self.source, url, value.span(), Role::Fence, &mut self.wrong));
                }
                _ => self.refuse(value.span(), "a fence is a URL or a name", "write it in quotes"),
            }
        }
        fences
    }

    fn refuse_fence(&mut self, name: &str, value: &Value<'a>, known: &Places) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let all = || match names[..] {
            [] => format!("write a URL, or add `[fences.{name:?}]` with a `url`"),
            _ => format!("there is {}", quoted(&names)),
        };
        let hint = meant(name, &names).unwrap_or_else(all);
        self.refuse(value.span(), format!("there is no fence {name:?}"), hint);
    }

    fn history(&mut self, table: &Table<'a>) -> u64 {
        let Some(value) = table.get("history") else { return 0 };
        let count = match value.get_ref() {
            DeValue::Boolean(kept) => Some(if *kept { DEFAULT_HISTORY } else { 0 }),
            DeValue::Integer(count) => u64::from_str_radix(count.as_str(), count.radix()).ok(),
            _ => None,
        };
        match count {
            None => self.refuse(
                value.span(),
                "\"history\" is a number of grants, true or false",
                "write it without quotes",
            ),
            Some(count) if count > MOST_HISTORY => self.refuse(
                value.span(),
                format!("a history of {count} grants is longer than can be kept"),
                format!("the most is {MOST_HISTORY}"),
            ),
            Some(_) => {}
        }
        count.unwrap_or_default()
    }
}

/// Whether it is the name of a fence, and not its URL.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter))
}
