//! What no code contains, or only the one place that exists for it.

use super::Finding;
use super::source::Source;
use super::tree::{File, Tree};

/// A lint is switched off with `expect`, which fails when it is not needed any more.
pub(super) fn allow(tree: &Tree) -> Vec<Finding> {
    let message = "write `#[expect(…, reason = \"…\")]`, which says why and fails when it is not needed";
    let files = tree.written_sources();
    files.flat_map(|(file, source)| at(file, source.attributes_with(&["allow", "("]), message)).collect()
}

/// What is left to do is an issue or a decision, not a remark in the code.
pub(super) fn leftover(tree: &Tree) -> Vec<Finding> {
    let sources = tree.sources();
    let macros = sources.flat_map(|(file, source)| {
        let lines = UNFINISHED_MACROS.iter().flat_map(|pattern| source.lines_of(pattern));
        at(file, lines, UNFINISHED)
    });
    macros.chain(tree.files().flat_map(|file| at(file, remarks(file), UNFINISHED))).collect()
}

/// The lines with a word that says that something is left to do.
fn remarks(file: &File) -> Vec<usize> {
    let text = match &file.source {
        Some(Ok(source)) => source.without_literals(),
        None if is_script(file) => &file.text,
        _ => return Vec::new(),
    };
    let is_remark =
        |line: &str| line.split(|letter: char| !letter.is_alphanumeric()).any(|word| REMARKS.contains(&word));
    (1..).zip(text.lines()).filter(|(_, line)| is_remark(line)).map(|(number, _)| number).collect()
}

fn is_script(file: &File) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_none_or(|(_, extension)| SCRIPTS.contains(&extension))
}

/// A panic says which invariant was broken, so the code says `expect`.
pub(super) fn unwrap(tree: &Tree) -> Vec<Finding> {
    let message = "say with `expect` which invariant holds here, or return the error";
    let files = tree.written_sources().filter(|(file, _)| !file.is_test());
    files
        .flat_map(|(file, source)| outside_tests(file, source, &[&[".", "unwrap", "(", ")"]], message))
        .collect()
}

/// Only programs print.
pub(super) fn print(tree: &Tree) -> Vec<Finding> {
    let files =
        crates(tree).filter(|(file, _)| !file.crate_name().is_some_and(|name| PRINTING.contains(&name)));
    files
        .flat_map(|(file, source)| outside_tests(file, source, PRINTS, "only the command line prints"))
        .collect()
}

/// Time and randomness come from one place, where they can be virtual.
pub(super) fn clock(tree: &Tree) -> Vec<Finding> {
    let message = "time and randomness come from `fencepost_core::Clock`";
    let files = crates(tree).filter(|(file, _)| file.path != CLOCK);
    files.flat_map(|(file, source)| outside_tests(file, source, CLOCKS, message)).collect()
}

fn crates(tree: &Tree) -> impl Iterator<Item = (&File, &Source)> {
    tree.sources().filter(|(file, _)| file.is_in_src() && file.path.starts_with("crates/"))
}

fn outside_tests(file: &File, source: &Source, patterns: &[&[&str]], message: &str) -> Vec<Finding> {
    let lines = patterns.iter().flat_map(|pattern| source.lines_of(pattern));
    at(file, lines.filter(|line| !file.is_test() && !source.is_test(*line)), message)
}

fn at(file: &File, lines: impl IntoIterator<Item = usize>, message: &str) -> Vec<Finding> {
    lines.into_iter().map(|line| Finding::new(file, line, message)).collect()
}

const UNFINISHED: &str = "finish it, or write an issue or a decision";
const UNFINISHED_MACROS: &[&[&str]] = &[&["todo", "!"], &["unimplemented", "!"]];
const REMARKS: &[&str] = &["TODO", "FIXME", "XXX"];
/// What is code but not Rust; a file without an extension is a shell script.
const SCRIPTS: &[&str] = &["lua", "proto", "sh", "sql", "toml", "yml"];

const PRINTING: &[&str] = &["fencepost-cli", "fencepost-lab", "fencepost-testkit"];
const PRINTS: &[&[&str]] = &[&["print", "!"], &["println", "!"], &["eprint", "!"], &["eprintln", "!"]];

const CLOCK: &str = "crates/fencepost-core/src/clock.rs";
const CLOCKS: &[&[&str]] = &[
    &["Instant", ":", ":", "now"],
    &["SystemTime", ":", ":", "now"],
    &["thread", ":", ":", "sleep"],
    &["time", ":", ":", "sleep"],
    &["time", ":", ":", "sleep_until"],
    &["getrandom", "("],
];
