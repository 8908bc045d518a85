//! Two configurations that put one lock in two places: jobs that read different files would not exclude each other.
//!
//! Names are tried that the globs of both files match, so that what is found is so; not all is found.

use fencepost_core::LockName;

use crate::finding::{Finding, Severity};
use crate::policy::Policy;
use crate::rule::Rule;

/// What stands for a wildcard where the other glob says nothing either.
const ANY: &str = "x";

/// What `policy` says otherwise than `other`, at the places of `policy`; once for each pair of rules.
pub(crate) fn differences(policy: &Policy, other: &Policy) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut told: Vec<(usize, usize)> = Vec::new();
    for name in common_names(policy, other) {
        let (Some(ours), Some(theirs)) = (policy.rule_for(&name), other.rule_for(&name)) else { continue };
        let pair = (ours.number, theirs.number);
        if policy.template(ours).to_string() != other.template(theirs).to_string() && !told.contains(&pair) {
            told.push(pair);
            found.push(difference(policy, ours, other, theirs, &name));
        }
    }
    found
}

fn difference(policy: &Policy, ours: &Rule, other: &Policy, theirs: &Rule, name: &LockName) -> Finding {
    let message = format!(
        "the lock {name} is in {} here, and in {} by {}:{}",
        policy.template(ours),
        other.template(theirs),
        other.path().display(),
        theirs.line
    );
    let finding = policy.source().finding(Severity::Warning, ours.backend_at.clone(), message);
    finding.hint("jobs that read different files would not exclude each other: name one place in both")
}

fn common_names(policy: &Policy, other: &Policy) -> Vec<LockName> {
    let rules = policy.rules().iter();
    let pairs = rules.flat_map(|ours| other.rules().iter().map(move |theirs| (&ours.glob, &theirs.glob)));
    let names = pairs.flat_map(|(ours, theirs)| common(ours, theirs));
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Names that both globs may match; a rule has the last word on that.
fn common(one: &str, other: &str) -> Vec<String> {
    let mut names = Vec::new();
    for one in plain(one) {
        for other in plain(other) {
            let (one, other): (Vec<&str>, Vec<&str>) = (one.split('/').collect(), other.split('/').collect());
            if one.len().max(other.len()) <= MOST_PARTS {
                names.extend(joined(&one, &other).into_iter().map(|parts| parts.join("/")));
            }
        }
    }
    names
}

/// Globs without alternatives and classes, which match some of what `glob` does.
fn plain(glob: &str) -> Vec<String> {
    if let Some((start, class)) = glob.split_once('[') {
        let letter = class.chars().find(|letter| letter.is_alphanumeric()).unwrap_or('x');
        let end = class.find(']').map_or("", |end| &class[end + 1..]);
        return plain(&format!("{start}{letter}{end}"));
    }
    let Some(end) = glob.find('}') else { return vec![glob.replace('\\', "")] };
    let Some(start) = glob[..end].rfind('{') else { return vec![glob.replace('\\', "")] };
    let one = |alternative: &str| plain(&format!("{}{alternative}{}", &glob[..start], &glob[end + 1..]));
    glob[start + 1..end].split(',').flat_map(one).take(MOST_ALTERNATIVES).collect()
}

/// The parts of such names.
fn joined(one: &[&str], other: &[&str]) -> Vec<Vec<String>> {
    match (one, other) {
        ([], []) => vec![Vec::new()],
        (["**", rest @ ..], ["**", others @ ..]) => {
            let mut names = before(&[ANY.to_owned()], joined(rest, others));
            names.extend(joined(rest, other));
            names.extend(joined(one, others));
            names
        }
        (["**", rest @ ..], [part, others @ ..]) => {
            let mut names = before(&[filled(part)], joined(one, others));
            names.extend(joined(rest, other));
            names
        }
        (["**", rest @ ..], []) => joined(rest, other),
        (_, ["**", ..]) => joined(other, one),
        ([part, rest @ ..], [its_part, others @ ..]) => before(&merged(part, its_part), joined(rest, others)),
        _ => Vec::new(),
    }
}

/// Each of `firsts` before each of `names`.
fn before(firsts: &[String], names: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let with = |name: Vec<String>| {
        firsts.iter().map(move |first| [std::slice::from_ref(first), &name].concat()).collect::<Vec<_>>()
    };
    names.into_iter().flat_map(with).collect()
}

/// Texts that two parts without slashes may both match.
fn merged(one: &str, other: &str) -> Vec<String> {
    if !one.contains(WILD) {
        return vec![one.to_owned()];
    }
    if !other.contains(WILD) {
        return vec![other.to_owned()];
    }
    let longer = |one: &str, other: &str| (if one.len() > other.len() { one } else { other }).to_owned();
    let ends = |part: &str| {
        let (first, last) = (part.find(WILD).unwrap_or_default(), part.rfind(WILD).unwrap_or_default());
        (part[..first].to_owned(), part[last + 1..].to_owned())
    };
    let ((start, end), (its_start, its_end)) = (ends(one), ends(other));
    let (start, end) = (longer(&start, &its_start), longer(&end, &its_end));
    vec![format!("{start}{ANY}{end}"), format!("{start}{end}"), filled(one), filled(other)]
}

fn filled(part: &str) -> String {
    part.replace(WILD, ANY)
}

const WILD: [char; 2] = ['*', '?'];

/// Longer globs, and more alternatives, are not looked at: they would give too many names.
const MOST_PARTS: usize = 7;
const MOST_ALTERNATIVES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn policy(globs: &[&str], kind: &str) -> Policy {
        let rule = |glob: &&str| format!("[[locks]]\nmatch = {glob:?}\nbackend = \"x\"\n");
        let rules: String = globs.iter().map(rule).collect();
        let text = format!("[backends.x]\nurl = \"{kind}://{kind}\"\n{rules}");
        Policy::parse(Path::new(kind), &text).unwrap()
    }

    fn count(ours: &[&str], theirs: &[&str]) -> usize {
        differences(&policy(ours, "redis"), &policy(theirs, "etcd")).len()
    }

    #[test]
    fn lock_in_two_places_is_found() {
        for (one, other) in [
            ("a/b", "a/b"),
            ("a/**", "a/b"),
            ("a/*/c", "a/b/*"),
            ("**", "a*/?"),
            ("a*", "*b"),
            ("**/z", "a/**"),
            ("a/**/c", "**/b/**"),
            ("{a,b}", "{c,b}"),
            ("{a/**,{c,d}/x}", "d/*"),
            ("[a-c]?", "a*"),
            ("*-nightly", "dbt-*"),
        ] {
            assert_eq!((count(&[one], &[other]), count(&[other], &[one])), (1, 1), "{one} {other}");
        }
    }

    #[test]
    fn locks_that_have_nothing_in_common_are_no_difference() {
        for (one, other) in [("a/b", "a/c"), ("a/*", "a/b/c"), ("a", "b/**"), ("*a", "b")] {
            assert_eq!((count(&[one], &[other]), count(&[other], &[one])), (0, 0), "{one} {other}");
        }
    }

    #[test]
    fn one_place_in_both_files_is_no_difference() {
        assert_eq!(differences(&policy(&["a/**"], "etcd"), &policy(&["**"], "etcd")), []);
    }

    #[test]
    fn rule_that_never_gets_the_name_does_not_count() {
        let ours = policy(&["a/**", "a/b"], "redis");
        assert_eq!(differences(&ours, &policy(&["a/b"], "etcd")).len(), 1);
    }
}
