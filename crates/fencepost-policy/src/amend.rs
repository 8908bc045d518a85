//! A rule is put into a configuration, whose comments and layout stay as they are.
//!
//! Invariant: the result was read again before it is given away: every rule that was there means what it meant, and the
//! new one can match.

use std::path::Path;

use fencepost_advisor::{DIRECTORY, FILL_IN, Held, weaknesses};
use fencepost_core::BackendUrl;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::check;
use crate::finding::{ConfigError, Finding, Severity};
use crate::globs;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::template::{BLANK, Template};

/// A configuration with one more rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Amended {
    /// Its text.
    pub text: String,
    /// The glob of the new rule.
    pub glob: String,
    /// The name of the backend that the rule uses.
    pub backend: String,
    /// The URL of that backend as the file has it, without a password.
    pub url: String,
    /// Whether that backend was there before.
    pub reused: bool,
    /// The glob of the rule that it stands before, which would have been found first otherwise.
    pub before: Option<String>,
}

/// Puts the rule of `addition` into the configuration `text`, before a rule that would be found first otherwise, and at
/// the end elsewhere. A backend of the same kind is used, where there is one that is strong enough for the answers of the rule,
/// and no directory that is swept; else that of `addition` comes along. Where `addition` names a server, only a backend with
/// the same URL is the same.
///
/// `path` is only for messages, `addition` a whole configuration with one backend and one rule.
///
/// # Errors
/// What is wrong with either text; a rule for the same glob that is there; rules that are written so that none can be
/// put among them.
///
/// # Examples
/// ```
/// use std::path::Path;
///
/// let text = "# Ours.\n[backends.here]\nurl = \"file:/locks\"\n\n[[locks]] # all\nmatch = \"**\"\nbackend = \"here\"\n";
/// let addition = "[backends.file]\nurl = \"file:/var/lib/fencepost\"\n[[locks]]\nmatch = \"a\"\nbackend = \"file\"\n";
/// let amended = fencepost_policy::amended(Path::new("fencepost.toml"), text, addition)?;
/// assert_eq!((amended.backend.as_str(), amended.before.as_deref()), ("here", Some("**")));
/// # Ok::<(), fencepost_policy::ConfigError>(())
/// ```
pub fn amended(path: &Path, text: &str, addition: &str) -> Result<Amended, ConfigError> {
    let policy = Policy::parse(path, text)?;
    let new = alone(addition)?;
    let Some(rule) = new.rules().first() else { return Err(refusal(path, "there is no rule to add")) };
    refuse_twice(&policy, rule)?;
    let plain = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut document = parsed(path, &plain)?;
    let mut source = parsed(path, addition)?;
    let shadow = shadow_of(&policy, rule);
    let mut table = rule_table(&mut source).ok_or_else(|| refusal(path, "there is no rule to add"))?;
    let same = same_backend(&policy, &new, rule, table.contains_key("fence"));
    let backend = same.map_or_else(|| free_name(&policy, &rule.backend), ToOwned::to_owned);
    let url = match same {
        Some(name) => policy.content().backends[name].get_ref().to_string(),
        None => new.template(rule).to_string(),
    };
    table["backend"] = value(&backend);
    if same.is_none() {
        insert_backend(path, &mut document, &source, (&rule.backend, &backend))?;
    }
    insert_rule(path, &mut document, table, shadow.map(|rule| rule.number - 1))?;
    let text = as_written_before(text, document.to_string().trim_start_matches('\n'));
    let before = shadow.map(|rule| rule.glob.clone());
    verify(path, &policy, &text, rule)?;
    Ok(Amended { text, glob: rule.glob.clone(), backend, url, reused: same.is_some(), before })
}

/// The addition by itself. A fence may have a name that only the configuration knows, which is read again as a whole.
fn alone(addition: &str) -> Result<Policy, ConfigError> {
    let path = Path::new("the new rule");
    let mut document = parsed(path, addition)?;
    let rules = document.get_mut("locks").and_then(Item::as_array_of_tables_mut);
    for rule in rules.into_iter().flat_map(ArrayOfTables::iter_mut) {
        rule.remove("fence");
    }
    Policy::parse(path, &document.to_string())
}

/// The first rule that would be found in place of the new one.
fn shadow_of<'a>(policy: &'a Policy, rule: &Rule) -> Option<&'a Rule> {
    policy.rules().iter().find(|other| {
        let glob = globs::read(&other.glob).expect("it was read before");
        globs::covers(&glob.compile_matcher(), &rule.glob)
    })
}

fn refuse_twice(policy: &Policy, rule: &Rule) -> Result<(), ConfigError> {
    let Some(twin) = policy.rules().iter().find(|other| other.glob == rule.glob) else { return Ok(()) };
    let message = format!("there is a rule for {:?} already", rule.glob);
    let finding = policy.source().error(twin.glob_at.clone(), message);
    Err(finding.hint("change it by hand, or remove it first").into())
}

/// The first backend of the file that the rule can use: the one that was named, or one of the kind that is not weaker for
/// these answers than a new one. What was not answered is taken at its worse, as it was for the advice.
fn same_backend<'a>(policy: &'a Policy, new: &Policy, rule: &Rule, fenced: bool) -> Option<&'a str> {
    let wanted = new.template(rule);
    let new = wanted.outline().and_then(Result::ok)?;
    let is_known = !new.body().contains(FILL_IN) && wanted.to_string() != DIRECTORY;
    let answers = rule.answers.assuming_the_worse();
    let weak = |url: &BackendUrl| weaknesses(&answers, Held { backend: Some(url), fenced });
    let is_as_strong = |url: &BackendUrl| {
        let least = weak(&new);
        url.kind() == new.kind()
            && is_plain(url)
            && is_lasting(url)
            && weak(url).iter().all(|weak| least.contains(weak))
    };
    let is_same = |template: &Template| match template.outline() {
        Some(Ok(_)) if is_known => template.to_string() == wanted.to_string(),
        Some(Ok(url)) => is_as_strong(&url),
        _ => false,
    };
    let backends = policy.content().backends.iter();
    let same = backends.filter(|(_, template)| is_same(template.get_ref()));
    same.min_by_key(|(_, template)| template.span().start).map(|(name, _)| name.as_str())
}

/// Whether everything stands in the URL that may weaken it.
fn is_plain(url: &BackendUrl) -> bool {
    ["quarantine", "on_pause"]
        .iter()
        .all(|option| !url.option(option).is_some_and(|text| text.contains(BLANK)))
}

/// Whether a directory is there for the jobs of every user, as long as they want it. A server is.
fn is_lasting(url: &BackendUrl) -> bool {
    let path = Path::new(url.body().trim_start_matches("//"));
    url.kind() != "file" || (path.is_absolute() && !SWEPT.iter().any(|swept| path.starts_with(swept)))
}

fn free_name(policy: &Policy, wanted: &str) -> String {
    let is_free = |name: &String| !policy.content().backends.contains_key(name);
    let numbered = (2..).map(|number| format!("{wanted}-{number}"));
    std::iter::once(wanted.to_owned()).chain(numbered).find(is_free).expect("there is always one more number")
}

fn rule_table(source: &mut DocumentMut) -> Option<Table> {
    Some(source.get_mut("locks")?.as_array_of_tables_mut()?.iter().next()?.clone())
}

/// Puts `table` before the rule `index`, or at the end.
fn insert_rule(
    path: &Path,
    document: &mut DocumentMut,
    mut table: Table,
    index: Option<usize>,
) -> Result<(), ConfigError> {
    let last = last_position(document);
    let tail = tail(document);
    let rules = document.entry("locks").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let Some(rules) = rules.as_array_of_tables_mut() else {
        let message = "the rules are written as a list in one line, and none can be put among them";
        return Err(refusal(path, message).with_hint("write each rule below `[[locks]]`"));
    };
    let index = index.unwrap_or(rules.len());
    let neighbour = rules.get(index).or_else(|| rules.get(index.checked_sub(1)?));
    let position = neighbour.map_or(last, Table::position);
    let is_at_the_end = index == rules.len() && position >= last;
    table.set_position(position);
    table.decor_mut().set_prefix(if is_at_the_end { tail.as_str() } else { "\n" });
    if let Some(next) = rules.get_mut(index) {
        keep_head(&mut table, next);
    }
    let mut all: Vec<Table> = rules.iter().cloned().collect();
    all.insert(index, table);
    *rules = all.into_iter().collect();
    if is_at_the_end {
        document.set_trailing("");
    }
    Ok(())
}

/// What stands behind the last table, and an empty line: it stays above what is put at the end.
fn tail(document: &DocumentMut) -> String {
    let trailing = document.trailing().as_str().unwrap_or_default();
    match trailing.trim_end_matches('\n') {
        "" => "\n".to_owned(),
        remarks => format!("{remarks}\n\n"),
    }
}

/// What stands above `next` behind an empty line is about more than that rule, and stays above both.
fn keep_head(table: &mut Table, next: &mut Table) {
    let prefix = next.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or("").to_owned();
    let Some(end) = prefix.rfind("\n\n").map(|end| end + 1).or_else(|| prefix.starts_with('\n').then_some(0))
    else {
        table.decor_mut().set_prefix("");
        next.decor_mut().set_prefix(format!("\n{prefix}"));
        return;
    };
    let (head, own) = prefix.split_at(end);
    table.decor_mut().set_prefix(format!("{head}\n"));
    next.decor_mut().set_prefix(own);
}

fn insert_backend(
    path: &Path,
    document: &mut DocumentMut,
    source: &DocumentMut,
    (from, to): (&str, &str),
) -> Result<(), ConfigError> {
    let new = source.get("backends").and_then(|backends| backends.get(from)).and_then(Item::as_table);
    let Some(mut new) = new.cloned() else { return Err(refusal(path, "there is no backend to add")) };
    let last = last_position(document);
    let tail = tail(document);
    let backends = document.entry("backends").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let Some(backends) = backends.as_table_like_mut() else {
        return Err(refusal(path, "the backends are no table"));
    };
    let beside = backends.iter().filter_map(|(_, item)| item.as_table()?.position()).max();
    let position = beside.or(last).or(Some(0));
    let is_at_the_end = position >= last;
    new.set_position(position);
    new.decor_mut().set_prefix(if is_at_the_end { tail.as_str() } else { "\n" });
    backends.insert(to, Item::Table(new));
    if is_at_the_end {
        document.set_trailing("");
    }
    Ok(())
}

/// The place of the last table of a file.
fn last_position(document: &DocumentMut) -> Option<isize> {
    fn of(item: &Item) -> Option<isize> {
        match item {
            Item::Table(table) => {
                table.position().into_iter().chain(table.iter().filter_map(|(_, item)| of(item))).max()
            }
            Item::ArrayOfTables(tables) => tables.iter().filter_map(Table::position).max(),
            _ => None,
        }
    }
    document.iter().filter_map(|(_, item)| of(item)).max()
}

/// The new text with the line ends and the byte order mark of the old one.
fn as_written_before(before: &str, text: &str) -> String {
    let text = if before.contains("\r\n") { text.replace('\n', "\r\n") } else { text.to_owned() };
    if before.starts_with('\u{feff}') { format!("\u{feff}{text}") } else { text }
}

/// Reads the result again.
fn verify(path: &Path, before: &Policy, text: &str, rule: &Rule) -> Result<(), ConfigError> {
    let after = Policy::parse(path, text)?;
    let globs = |policy: &Policy| -> Vec<String> {
        policy.rules().iter().map(|rule| rule.glob.clone()).filter(|glob| *glob != rule.glob).collect()
    };
    let dead = |policy: &Policy| -> Vec<String> {
        check::covered(policy).into_iter().map(|(rule, _)| rule.glob.clone()).collect()
    };
    let is_there = after.rules().iter().any(|other| other.glob == rule.glob);
    if !is_there || globs(before) != globs(&after) || dead(before) != dead(&after) {
        return Err(
            refusal(path, "the rule cannot be put among these by itself").with_hint("write it by hand")
        );
    }
    Ok(())
}

fn parsed(path: &Path, text: &str) -> Result<DocumentMut, ConfigError> {
    text.parse().map_err(|error: toml_edit::TomlError| refusal(path, error.message()))
}

fn refusal(path: &Path, message: &str) -> ConfigError {
    Finding::new(Severity::Error, path, message).into()
}

impl ConfigError {
    fn with_hint(self, hint: &str) -> Self {
        let findings: Vec<Finding> =
            self.findings().iter().cloned().map(|finding| finding.hint(hint)).collect();
        findings.into_iter().next().map_or(self, Self::from)
    }
}

/// Directories in which somebody removes what others have left.
const SWEPT: &[&str] = &["/tmp", "/var/tmp", "/run/user", "/dev/shm"];
