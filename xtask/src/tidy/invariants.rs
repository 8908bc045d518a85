//! Every invariant that `ARCHITECTURE.md` states names what guards it, and that exists.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Finding;
use super::tree::{File, Tree};

/// An invariant names a test or a lint, in backticks.
pub(super) fn invariant(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file("ARCHITECTURE.md") else { return Vec::new() };
    let (guards, names) = (guards(tree), names(tree));
    let unguarded = |(line, statement): (usize, String)| {
        let spans = statement.split('`').skip(1).step_by(2).filter(|name| is_guard_like(name));
        let message = complaint(&spans.collect::<Vec<_>>(), &guards, &names)?;
        Some(Finding::new(page, line, message))
    };
    statements(page).into_iter().filter_map(unguarded).collect()
}

fn complaint(spans: &[&str], guards: &BTreeSet<String>, names: &BTreeSet<String>) -> Option<String> {
    let exists = |name: &str| guards.contains(last_segment(name)) || names.contains(last_segment(name));
    if let Some(missing) = spans.iter().find(|name| !exists(name)) {
        return Some(format!("there is no test and no lint `{missing}`"));
    }
    let is_guarded = spans.iter().any(|name| guards.contains(last_segment(name)));
    (!is_guarded).then(|| "the invariant names no test and no lint".to_owned())
}

/// From the line that says so to the end of its paragraph or item.
fn statements(page: &File) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines() {
        if line.contains(INVARIANT) {
            statements.push((number, String::new()));
            inside = true;
        } else if line.trim().is_empty() || line.trim_start().starts_with(['-', '*', '#', '|']) {
            inside = false;
        }
        if let Some((_, statement)) = statements.last_mut().filter(|_| inside) {
            statement.push_str(line);
            statement.push(' ');
        }
    }
    statements
}

/// A path, or a name of several words in snake case; other code in backticks is what the statement is about.
fn is_guard_like(name: &str) -> bool {
    let is_word =
        |word: &str| word.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    let is_path = name.split("::").all(|segment| segment.split(['_', '-']).all(is_word));
    is_path && (name.contains("::") || name.contains('_'))
}

fn last_segment(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// What can fail when an invariant is broken: a test, a case of the conformance suite, a lint, a rule of tidy.
fn guards(tree: &Tree) -> BTreeSet<String> {
    let tests = tree.sources().flat_map(|(file, source)| {
        let is_test = |line| file.is_test() || source.is_test(line) || file.crate_name() == Some(SUITE);
        source.names().iter().filter(move |name| name.is_function && is_test(name.line))
    });
    tests.map(|name| name.text.clone()).chain(lints(tree)).chain(super::rules().map(str::to_owned)).collect()
}

/// All names, of which a statement may speak.
fn names(tree: &Tree) -> BTreeSet<String> {
    tree.sources().flat_map(|(_, source)| source.names()).map(|name| name.text.clone()).collect()
}

/// The lints of the workspace, and those that `clippy.toml` configures.
fn lints(tree: &Tree) -> Vec<String> {
    let table =
        |path| tree.file(path).and_then(|file| toml::from_str::<Table>(&file.text).ok()).unwrap_or_default();
    let manifest = table("Cargo.toml");
    let tools =
        manifest.get("workspace").and_then(|workspace| workspace.get("lints")).and_then(Value::as_table);
    let tables = tools.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let lints = tables.flat_map(Table::keys).cloned();
    lints.chain(table("clippy.toml").keys().map(|key| key.replace('-', "_"))).collect()
}

const INVARIANT: &str = "Invariant:";
const SUITE: &str = "fencepost-testkit";
