//! Globs over the names of locks: how they are read, when one covers another, and which is near to a name.
//!
//! `*` and `?` stay between two slashes, `**` crosses them. A name is matched as it was given.

use std::ops::RangeInclusive;

use globset::{Glob, GlobBuilder, GlobMatcher};

/// Longer than any name. With it no glob is too large to be compiled.
const MOST_BYTES: usize = 1024;

/// What no name contains, so that only a wildcard matches it.
const ANY: &str = "\u{1}";

/// Beyond these bounds it is left undecided whether one glob covers another.
const MOST_SLASHES: usize = 10;
const MOST_MODELS: usize = 400;

/// The name of the lock that `name` is a slot of.
pub(crate) fn whole(name: &str) -> Option<&str> {
    let (whole, number) = name.rsplit_once('#')?;
    let is_slot = match number.as_bytes() {
        [one] => one.is_ascii_digit(),
        [b'1'..=b'9', two] => two.is_ascii_digit(),
        _ => false,
    };
    (is_slot && !whole.is_empty()).then_some(whole)
}

/// Why a text is no glob, and what to do about it.
pub(crate) type Problem = (String, &'static str);

/// Reads a glob.
pub(crate) fn read(text: &str) -> Result<Glob, Problem> {
    if text.is_empty() {
        return Err(("this glob matches no name".to_owned(), "`**` matches every name"));
    }
    if text.len() > MOST_BYTES {
        return Err((format!("this glob is longer than {MOST_BYTES} bytes"), "no name is so long"));
    }
    if text.contains(char::is_control) {
        return Err(("this glob contains a control character".to_owned(), "no name contains one"));
    }
    refuse_surprises(text)?;
    let glob = GlobBuilder::new(text).literal_separator(true).build();
    glob.map_err(|error| {
        (format!("this is no glob: {}", error.kind()), "`\\\\` in front of a letter takes its meaning away")
    })
}

/// Refuses what `globset` accepts and reads otherwise than one would think: `a**` does not cross slashes there, and a
/// class works on bytes.
fn refuse_surprises(text: &str) -> Result<(), Problem> {
    let letters: Vec<char> = text.chars().collect();
    let (mut in_class, mut alternates, mut index) = (false, 0_usize, 0);
    while let Some(&letter) = letters.get(index) {
        match letter {
            '\\' => index += 1,
            ']' if in_class => in_class = false,
            _ if in_class && !letter.is_ascii() => {
                return Err((
                    format!("{letter:?} cannot stand in a class of letters"),
                    "a class takes ASCII letters; use alternatives, such as {a,b}",
                ));
            }
            _ if in_class => {}
            '[' => in_class = true,
            '{' => alternates += 1,
            '}' => alternates = alternates.saturating_sub(1),
            '*' if letters.get(index + 1) == Some(&'*') => {
                let before = index.checked_sub(1).map(|at| letters[at]);
                let after = letters.get(index + 2).copied();
                let ends = alternates > 0 && matches!(after, Some(',' | '}'));
                if !matches!(before, None | Some('/')) || !(ends || matches!(after, None | Some('/'))) {
                    return Err((
                        "`**` must stand between slashes".to_owned(),
                        "write `a/**`, or `a*` for a part of a name",
                    ));
                }
                index += 1;
            }
            _ => {}
        }
        index += 1;
    }
    Ok(())
}

/// Whether `earlier` surely matches every name that `later` matches.
///
/// A glob of plain wildcards matches everything that another one does if it matches the other's text with a letter for
/// each wildcard that nothing but a wildcard matches, and with any number of such parts for each `**`; more parts than
/// it has slashes itself change nothing. Where either has more than plain wildcards, it is undecided and so `false`.
pub(crate) fn covers(earlier: &GlobMatcher, later: &str) -> bool {
    let glob = earlier.glob().glob();
    if glob == later || glob == "**" {
        return true;
    }
    let slashes = glob.matches('/').count();
    let is_name = !later.contains(['*', '?', '[', '{', '\\']);
    let decidable =
        !glob.contains(['?', '[', '{', '\\']) && !later.contains(['[', '{', '\\']) && slashes <= MOST_SLASHES;
    if is_name {
        return earlier.is_match(later);
    }
    decidable
        && models(later, slashes + 2).is_some_and(|names| names.iter().all(|name| earlier.is_match(name)))
}

/// Names that stand for all that `glob` matches; `None` if they are too many.
fn models(glob: &str, most_parts: usize) -> Option<Vec<String>> {
    let last = glob.matches('/').count();
    let mut names: Vec<Vec<String>> = vec![Vec::new()];
    for (index, part) in glob.split('/').enumerate() {
        let expansions: Vec<Vec<String>> = if part == "**" {
            counts(index == last, most_parts).map(|count| vec![ANY.to_owned(); count]).collect()
        } else {
            vec![vec![part.replace(['*', '?'], ANY)]]
        };
        let longer = |name: &Vec<String>| -> Vec<Vec<String>> {
            expansions.iter().map(|more| [name.as_slice(), more.as_slice()].concat()).collect()
        };
        names = names.iter().flat_map(longer).collect();
        if names.len() > MOST_MODELS {
            return None;
        }
    }
    Some(names.iter().map(|parts| parts.join("/")).collect())
}

/// `a/**` does not match `a`, but `**/a` does.
fn counts(at_the_end: bool, most: usize) -> RangeInclusive<usize> {
    usize::from(at_the_end)..=most
}

/// How near `glob` is to matching `name`, from 0 to 1.
pub(crate) fn nearness(glob: &str, name: &str) -> f64 {
    let plain: String = glob.chars().take_while(|letter| !"*?[{\\".contains(*letter)).collect();
    let beginning: String = name.chars().take(plain.chars().count()).collect();
    let by_beginning =
        if plain.is_empty() { 0.0 } else { strsim::normalized_damerau_levenshtein(&plain, &beginning) };
    by_beginning.max(strsim::normalized_damerau_levenshtein(glob, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use globset::GlobSet;
    use proptest::prelude::*;

    fn matches(glob: &str, name: &str) -> bool {
        read(glob).unwrap().compile_matcher().is_match(name)
    }

    fn covered(earlier: &str, later: &str) -> bool {
        covers(&read(earlier).unwrap().compile_matcher(), later)
    }

    #[test]
    fn only_two_stars_cross_a_slash() {
        assert!(matches("events/*", "events/a"));
        assert!(!matches("events/*", "events/a/b"));
        assert!(matches("events/**", "events/a/b"));
        assert!(!matches("events/**", "events"));
        assert!(matches("**/daily", "daily"));
        assert!(matches("a/**/z", "a/z"));
        assert!(matches("**", "any/name at.all"));
        assert!(!matches("a?b", "a/b"));
        assert!(!matches("a[!x]b", "a/b"));
        assert!(matches("ü/{a,b*}", "ü/bc"));
    }

    #[test]
    fn name_is_matched_as_given() {
        assert!(!matches("a/b", "a//b"));
        assert!(!matches("a/b", "./a/b"));
        assert!(!matches("a/b", "A/b"));
        assert!(matches("a/**", "a/.."));
    }

    #[test]
    fn surprising_globs_are_refused() {
        for glob in ["", "a**", "**a", "a/**b", "***", "{**,a}", "[ä]", "[a", "{a", "a}", "a\\", "a\nb"] {
            assert!(read(glob).is_err(), "{glob}");
        }
        for glob in ["{a/**,b}", "[*]", "\\*\\*a", "[a-z]*"] {
            assert!(read(glob).is_ok(), "{glob}");
        }
    }

    #[test]
    fn covered_globs_are_recognised() {
        for (earlier, later) in [
            ("**", "[a-z]"),
            ("a/**", "a/b"),
            ("a/**", "a/*/c"),
            ("a/**", "a/b/**"),
            ("*", "a?c"),
            ("**/x", "a/**/x"),
            ("{a,b}", "a"),
        ] {
            assert!(covered(earlier, later), "{earlier} {later}");
        }
        for (earlier, later) in [
            ("a/*", "a/**"),
            ("a/*/**", "a/**"),
            ("a/**/b", "a/*"),
            ("a?", "a*"),
            ("*", "**"),
            ("a/b", "a/*"),
        ] {
            assert!(!covered(earlier, later), "{earlier} {later}");
        }
    }

    #[test]
    fn near_glob_is_nearer() {
        assert!(nearness("ledger/**", "leger/2026") > nearness("events/**", "leger/2026"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_glob_or_refused(text in "\\PC{0,40}|[a-c*?/\\[\\]{},\\\\!^:ä-]{0,30}", name in "[a-c/ä.]{1,8}") {
            if let Ok(glob) = read(&text) {
                let matched = glob.compile_matcher().is_match(&name);
                prop_assert_eq!(GlobSet::new([&glob]).unwrap().is_match(&name), matched);
            }
        }

        #[test]
        fn covering_glob_matches_what_the_other_does(
            earlier in "(a|b|\\*|\\*\\*)?(/(a|b|a\\*|\\*|\\*b|\\*\\*)){0,3}",
            later in "(a|b|\\*|\\*\\*)?(/(a|b|a\\*|\\*|\\?b|\\*\\*)){0,3}",
            names in proptest::collection::vec("[ab]{0,2}(/[ab]{0,2}){0,4}", 40),
        ) {
            let covering = !earlier.is_empty() && !later.is_empty() && covered(&earlier, &later);
            for name in names.iter().filter(|name| covering && matches(&later, name)) {
                prop_assert!(matches(&earlier, name), "{} covers {}, but not {:?}", earlier, later, name);
            }
        }
    }
}
