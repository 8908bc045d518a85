//! Where a text has secrets in it: the passwords that somebody wrote into the file itself.
//!
//! Apart because it must work on any text, also on one that is no TOML: a message about a broken line shows that line.
//! Invariant: where it is not clear how far a secret goes, more is hidden rather than less.

use std::ops::Range;

use crate::placeholder::{Piece, pieces};

const STARS: &str = "***";

/// Names that announce a secret when a `=` follows, as an option of a URL or as a key of the file.
const TELLTALE: &[&str] = &["pass", "pwd", "secret", "token", "key", "credential"];

/// `text` with `***` for its secrets, and where the bytes of `span` have gone.
pub(crate) fn hide(text: &str, hidden: &[Range<usize>], span: Range<usize>) -> (String, Range<usize>) {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for secret in hidden {
        shown.push_str(&text[from..secret.start]);
        shown.push_str(STARS);
        from = secret.end;
    }
    shown.push_str(&text[from..]);
    (shown, moved(span.start, hidden)..moved(span.end, hidden))
}

/// `text` without its secrets; what stands for one (`${VAR}`) is kept.
pub(crate) fn redacted(text: &str) -> String {
    hide(text, &secrets(text), 0..0).0
}

/// The secrets of a line, in order, apart from each other.
pub(crate) fn secrets(line: &str) -> Vec<Range<usize>> {
    // What is part of a string over several lines, and what is not, no single line tells.
    if has_long_quotes(line) {
        return everything(line);
    }
    let found = [userinfo(line), assigned(line), escaped(line)].into_iter().flatten().collect();
    let kept: Vec<Range<usize>> = placeholders(line).collect();
    merged(found).into_iter().flat_map(|secret| without(secret, &kept)).collect()
}

/// All of a line, unless it is empty.
pub(crate) fn everything(line: &str) -> Vec<Range<usize>> {
    (!line.is_empty()).then_some(0..line.len()).into_iter().collect()
}

/// Whether a string over several lines begins or ends in `text`.
pub(crate) fn has_long_quotes(text: &str) -> bool {
    ["\"\"\"", "'''"].iter().any(|quotes| text.contains(quotes))
}

/// From the first colon after the slashes to the last `@`.
fn userinfo(line: &str) -> Option<Range<usize>> {
    let before = &line[..line.rfind('@')?];
    let start =
        before.find("//").map_or_else(|| before.find(':').map(|colon| colon + 1), |at| Some(at + 2))?;
    let colon = before[start..].find(':')?;
    Some(start + colon + 1..before.len())
}

/// What follows `password=` and the like, to the end of the line.
fn assigned(line: &str) -> Option<Range<usize>> {
    let lower = line.to_ascii_lowercase();
    let after = |word: &&str| lower.match_indices(*word).filter_map(|(at, _)| value_after(line, at)).min();
    TELLTALE.iter().filter_map(after).min().map(|start| start..line.len())
}

fn value_after(line: &str, name: usize) -> Option<usize> {
    let rest =
        line[name..].trim_start_matches(|letter: char| letter.is_alphanumeric() || "_-.".contains(letter));
    let value = rest.trim_start_matches(['"', '\'', ' ', '\t']).strip_prefix('=')?.trim_start();
    Some(line.len() - value.len()).filter(|start| *start < line.len())
}

/// An escape can stand for a colon or an `@`, so nothing after the scheme is safe to show.
fn escaped(line: &str) -> Option<Range<usize>> {
    let escapes = ["\\u", "\\U", "\\x"].iter().any(|escape| line.contains(escape));
    line.find(':').filter(|_| escapes).map(|colon| colon + 1..line.len()).filter(|range| !range.is_empty())
}

fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match apart.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => apart.push(range),
        }
    }
    apart
}

/// What stands for a secret is none: a name of a variable or a file is what the reader of a message needs.
fn placeholders(line: &str) -> impl Iterator<Item = Range<usize>> {
    pieces(line).into_iter().filter(|(_, piece)| matches!(piece, Piece::Secret(_))).map(|(at, _)| at)
}

fn without(secret: Range<usize>, kept: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut from = secret.start;
    for keep in kept.iter().filter(|keep| keep.end > secret.start && keep.start < secret.end) {
        parts.push(from..keep.start.max(from));
        from = keep.end;
    }
    parts.push(from..secret.end.max(from));
    parts.retain(|part| !part.is_empty());
    parts
}

/// The new place of the byte at `offset`.
fn moved(offset: usize, hidden: &[Range<usize>]) -> usize {
    let mut place = offset;
    for secret in hidden.iter().filter(|secret| secret.start < offset) {
        let covered = secret.end.min(offset) - secret.start;
        place = place - covered + if secret.end <= offset { STARS.len() } else { covered.min(STARS.len()) };
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn passwords_in_a_file_are_hidden() {
        for (text, shown) in [
            (r#"url = "redis://app:hunter2@h:6379/0""#, r#"url = "redis://app:***@h:6379/0""#),
            (r#"url = "redis://app:hun\"ter@2@h""#, r#"url = "redis://app:***@h""#),
            (r#"url = "redis:app:hunter2@h""#, r#"url = "redis:app:***@h""#),
            (r#"url = "redis://app\u003ahunter2@h""#, r#"url = "redis:***"#),
            (r#"url = "postgres://h/db?sslpassword=hunter2""#, r#"url = "postgres://h/db?sslpassword=***"#),
            (r#"password = "hunter2""#, "password = ***"),
            (r#"url = "redis://app:${PW}@h""#, r#"url = "redis://app:${PW}@h""#),
            (r#"url = "redis://${file:/run/pw}@h""#, r#"url = "redis://${file:/run/pw}@h""#),
            (r#"url = "redis://app:a${PW}b@h""#, r#"url = "redis://app:***${PW}***@h""#),
            (r#"url = "redis://app:$${PW}@h""#, r#"url = "redis://app:***@h""#),
            ("url = \"\"\"redis://app:hun", "***"),
            (r#"match = "tokens/**" # mail"#, r#"match = "tokens/**" # mail"#),
            (r#"url = "redlock://h1:6379,h2:6379""#, r#"url = "redlock://h1:6379,h2:6379""#),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn span_moves_with_its_text() {
        let text = r#"url = "redis://app:hunter2000@h" x"#;
        let (shown, span) = hide(text, &secrets(text), 33..34);
        assert_eq!(&shown[span], "x");
        let (shown, span) = hide(text, &secrets(text), 6..32);
        assert_eq!(&shown[span], r#""redis://app:***@h""#);
        let (shown, span) = hide(text, &secrets(text), 20..23);
        assert_eq!(&shown[span], "**");
    }

    proptest! {
        #[test]
        fn any_text_can_be_redacted(
            text in "(\\PC|\n|\\$\\{A\\}|//|:|@|\"\"\"|password=){0,30}", start in 0..99_usize, end in 0..99_usize,
        ) {
            let span = text.floor_char_boundary(start.min(end))..text.floor_char_boundary(start.max(end));
            let (shown, span) = hide(&text, &secrets(&text), span);
            prop_assert!(shown.get(span).is_some());
        }

        #[test]
        fn no_password_of_a_url_is_shown(password in "[a-z?&=/:@\"'\\\\]{0,20}secret[a-z?&=/:@\"'\\\\]{0,6}") {
            let line = format!("url = \"redis://user:{password}@host/0\"");
            prop_assert!(!redacted(&line).contains("secret"));
        }
    }
}
