//! The pages that people read: short, named alike, and about the project alone.

use super::Finding;
use super::tree::{File, Tree};

/// A page is as long as its readers' patience; a decision has a number.
pub(super) fn page(tree: &Tree) -> Vec<Finding> {
    let pages = tree.files().filter_map(|file| Some((file, most_lines(&file.path)?)));
    let long = pages.filter_map(|(file, most)| too_long(file, most));
    long.chain(tree.files().filter_map(misnamed)).collect()
}

fn most_lines(path: &str) -> Option<usize> {
    match path {
        "README.md" | "ARCHITECTURE.md" => Some(150),
        path => decision(path).map(|_| 60),
    }
}

fn too_long(file: &File, most: usize) -> Option<Finding> {
    let lines = file.text.lines().count();
    (lines > most)
        .then(|| Finding::new(file, most + 1, format!("the page has {lines} lines, more than {most}")))
}

fn misnamed(file: &File) -> Option<Finding> {
    let (number, rest) = decision(&file.path)?.split_at_checked(4).unwrap_or_default();
    let is_named =
        number.bytes().all(|digit| digit.is_ascii_digit()) && rest.starts_with('-') && rest.len() > 1;
    (!is_named).then(|| Finding::new(file, 1, "a decision is named `NNNN-what-was-decided.md`"))
}

/// The file name without `.md`.
fn decision(path: &str) -> Option<&str> {
    path.strip_prefix("docs/decisions/")?.strip_suffix(".md")
}

/// No file speaks of the machine on which it was written, nor of where packages come from.
pub(super) fn machine(tree: &Tree) -> Vec<Finding> {
    let files = tree.files().filter(|file| !["Cargo.lock", "deny.toml"].contains(&file.path.as_str()));
    files.flat_map(machine_in).collect()
}

fn machine_in(file: &File) -> Vec<Finding> {
    let folders = FOLDERS.iter().map(|folder| (format!("/{folder}/"), "a path of one machine"));
    let registries = REGISTRIES.iter().map(|host| (host.join("."), "the name of a package registry"));
    let needles: Vec<_> = folders.chain(registries).collect();
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        for (needle, what) in needles.iter().filter(|(needle, _)| stands_alone(line, needle)) {
            findings.push(Finding::new(file, number, format!("`{needle}` is {what}")));
        }
    }
    findings
}

/// Whether `needle` stands in the line, and not as the end of a longer name or path.
fn stands_alone(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "~_-})".contains(letter))
    })
}

const FOLDERS: &[&str] = &["home", "root", "work", "Users"];

/// In parts, so that this file does not name them either.
const REGISTRIES: &[[&str; 2]] = &[
    ["crates", "io"],
    ["deb.debian", "org"],
    ["npmjs", "com"],
    ["npmjs", "org"],
    ["proxy.golang", "org"],
    ["pypi", "org"],
    ["rubygems", "org"],
];
