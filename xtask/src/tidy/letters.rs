//! What is shown to people is ASCII, but for what they wrote themselves: nobody can say which letters their terminal has.

use super::Finding;
use super::tree::{File, Tree};

/// No other letter stands in a text of the code, nor in a help text.
pub(super) fn ascii(tree: &Tree) -> Vec<Finding> {
    let sources = tree.sources().filter(|(file, _)| is_shown(file));
    let findings = sources.flat_map(|(file, source)| {
        let texts = source.texts().filter(|(line, bytes)| {
            let text = &file.text[bytes.clone()];
            !text.is_ascii() && !source.is_test(*line) && (!text.starts_with("//") || is_help(file))
        });
        texts
            .map(|(line, _)| Finding::new(file, line, "not every terminal can show it: write ASCII"))
            .collect::<Vec<_>>()
    });
    findings.collect()
}

/// Whether users see what stands in it. A page for a browser says itself which letters it has, and the suite needs all of them.
fn is_shown(file: &File) -> bool {
    let is_a_users = file.crate_name().is_some_and(|name| !["xtask", "fencepost-testkit"].contains(&name));
    is_a_users && file.is_in_src() && !file.is_test() && !file.path.contains("/src/page/")
}

/// Whether its comments are help texts.
fn is_help(file: &File) -> bool {
    file.path.contains("/src/args/")
}
