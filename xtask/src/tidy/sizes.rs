//! The shape of a file: it parses, says at its head what it holds, and neither it nor a function in it is too long.

use super::Finding;
use super::source::Source;
use super::tree::{File, Tree};

/// A file in Rust parses; no other rule sees one that does not.
pub(super) fn syntax(tree: &Tree) -> Vec<Finding> {
    let failed = tree.files().filter_map(|file| Some((file, file.source.as_ref()?.as_ref().err()?)));
    failed
        .map(|(file, error)| {
            Finding::new(file, error.span().start().line, format!("does not parse: {error}"))
        })
        .collect()
}

/// A file begins with what it holds and why it is apart, in a few lines.
pub(super) fn head(tree: &Tree) -> Vec<Finding> {
    of_crates(tree).filter_map(|(file, _)| head_of(file)).collect()
}

fn head_of(file: &File) -> Option<Finding> {
    if file.is_crate_root() && file.text.starts_with("#![doc = include_str!(") {
        return None;
    }
    let first = file.text.lines().next().unwrap_or_default();
    if first.strip_prefix("//!").is_none_or(|rest| rest.trim().is_empty()) {
        return Some(Finding::new(file, 1, "begins without a `//!` head that says what it holds"));
    }
    let lines = file.text.lines().take_while(|line| line.starts_with("//!")).count();
    let is_too_long = lines > LONGEST_HEAD && !file.is_crate_root();
    is_too_long.then(|| too_long(file, LONGEST_HEAD + 1, "the head", lines, LONGEST_HEAD))
}

/// A file is short enough to be read at once. Test code does not count.
pub(super) fn file_size(tree: &Tree) -> Vec<Finding> {
    let files = of_crates(tree).filter(|(file, _)| !file.is_test());
    files.filter_map(|(file, source)| file_size_of(file, source)).collect()
}

fn file_size_of(file: &File, source: &Source) -> Option<Finding> {
    let lines = file.lines().map(|(number, _)| number).filter(|number| !source.is_test(*number));
    let lines: Vec<usize> = lines.collect();
    let excess = lines.get(LONGEST_FILE)?;
    Some(too_long(file, *excess, "the file", lines.len(), LONGEST_FILE))
}

/// A function fits on a screen, also in a test.
pub(super) fn function_size(tree: &Tree) -> Vec<Finding> {
    of_crates(tree).flat_map(|(file, source)| long_functions(file, source)).collect()
}

fn long_functions(file: &File, source: &Source) -> impl Iterator<Item = Finding> {
    let long = source.functions().iter().filter(|function| function.length() > LONGEST_FUNCTION);
    long.map(|function| {
        let what = format!("the function `{}`", function.name);
        too_long(file, *function.lines.start(), &what, function.length(), LONGEST_FUNCTION)
    })
}

fn of_crates(tree: &Tree) -> impl Iterator<Item = (&File, &Source)> {
    tree.written_sources().filter(|(file, _)| file.crate_name().is_some())
}

fn too_long(file: &File, line: usize, what: &str, lines: usize, most: usize) -> Finding {
    Finding::new(file, line, format!("{what} has {lines} lines, more than {most}"))
}

const LONGEST_HEAD: usize = 8;
const LONGEST_FILE: usize = 500;
const LONGEST_FUNCTION: usize = 70;
