//! One word a concept: the names that the tree declares.
//!
//! Only declarations are looked at, because a name that is merely used is the choice of whoever declared it.

use super::Finding;
use super::declarations::Name;
use super::tree::{File, Tree};

/// A test is a sentence: `held_lock_refuses_a_second_holder`.
pub(super) fn sentence(tree: &Tree) -> Vec<Finding> {
    let functions = names(tree).filter(|(_, name)| name.is_function && name.text.starts_with("test_"));
    functions.map(|(file, name)| found(file, name, "a test is named by a sentence that it proves")).collect()
}

/// What a method gives is its name.
pub(super) fn getter(tree: &Tree) -> Vec<Finding> {
    let functions = names(tree).filter(|(_, name)| name.is_function && name.text.starts_with("get_"));
    functions
        .map(|(file, name)| found(file, name, "a method is named after what it gives, without `get_`"))
        .collect()
}

/// A concept has one word.
pub(super) fn word(tree: &Tree) -> Vec<Finding> {
    let names = names(tree).filter(|(file, _)| file.path.starts_with("crates/"));
    names.filter_map(|(file, name)| other_word(file, name)).collect()
}

fn other_word(file: &File, name: &Name) -> Option<Finding> {
    let segments = segments(&name.text);
    let pairs = WORDS.iter().flat_map(|(word, others)| others.iter().map(move |other| (word, other)));
    let (word, other) = pairs.into_iter().find(|(_, other)| says(&segments, other))?;
    Some(found(file, name, &format!("the word for `{other}` is {word}")))
}

fn names(tree: &Tree) -> impl Iterator<Item = (&File, &Name)> {
    tree.written_sources().flat_map(|(file, source)| source.names().iter().map(move |name| (file, name)))
}

fn found(file: &File, name: &Name, message: &str) -> Finding {
    Finding::new(file, name.line, format!("`{}`: {message}", name.text))
}

/// Whether the segments of `other` follow each other in `segments`; a plural counts as well.
fn says(segments: &[String], other: &str) -> bool {
    let other: Vec<&str> = other.split('_').collect();
    segments.windows(other.len()).any(|window| {
        window
            .iter()
            .zip(&other)
            .all(|(segment, word)| segment.strip_suffix('s').unwrap_or(segment) == *word || segment == word)
    })
}

/// The parts of a name in snake case or camel case, in lower case.
fn segments(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut segments = vec![String::new()];
    for (index, letter) in letters.iter().enumerate() {
        if *letter == '_' || begins_a_segment(&letters, index) {
            segments.push(String::new());
        }
        let segment = segments.last_mut().expect("there is one from the start");
        segment.extend(letter.to_lowercase().filter(|letter| *letter != '_'));
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

/// An upper-case letter does after a lower-case one, or before one: `DbUrl`, `TTLRange`.
fn begins_a_segment(letters: &[char], index: usize) -> bool {
    let is_lower = |index: Option<usize>| {
        index.and_then(|index| letters.get(index)).is_some_and(|letter| letter.is_lowercase())
    };
    letters[index].is_uppercase() && (is_lower(index.checked_sub(1)) || is_lower(Some(index + 1)))
}

/// The word of a concept, and the words that others use for it. Words with a plain meaning of their own (`timeout`,
/// `handle`, `owner`) are here only in the company that makes them mean the concept.
const WORDS: &[(&str, &[&str])] = &[
    ("`lock`", &["mutex", "latch"]),
    ("`holder`", &["contender", "lock_owner", "lease_owner", "owner_id"]),
    ("`lease`", &["ticket", "lock_guard", "lease_guard", "lock_handle", "lease_handle"]),
    ("`grant`", &["lock_info", "lease_info"]),
    ("`acquire`", &["obtain", "take_lock"]),
    ("`renew`", &["refresh_lock", "refresh_lease", "extend_lock", "extend_lease"]),
    ("`release`", &["unlock"]),
    ("`revoke`", &["break_lock", "break_lease", "lock_breaker", "steal", "stolen"]),
    ("`ttl` or `deadline`", &["lease_timeout", "lock_expiry"]),
    ("`margin`", &["fudge"]),
    ("`wait`", &["acquire_timeout"]),
    ("`token`", &["epoch"]),
    ("`fence`", &["fence_guard", "fence_gate"]),
    ("`mark`", &["high_water", "watermark"]),
    ("`fault`", &["chaos", "nemesis", "monkey"]),
    ("`config`", &["cfg"]),
    ("`connection`", &["conn"]),
    ("`context`", &["ctx"]),
    ("`index`", &["idx"]),
    ("`manager`", &["mgr"]),
    ("`message`", &["msg"]),
    ("`request`", &["req"]),
];
