//! Durations as people write them: `30s`, `1m30s`, `500ms`. One reader for the configuration and the command line.
//!
//! Invariant: a number without a unit is never guessed at, and no text makes the reader panic.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Nobody means more, and no arithmetic on it overflows.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// Within these bounds the sums inside `humantime` cannot overflow: it panics where seconds and a carry do.
const MOST_BYTES: usize = 64;
const MOST_DIGITS: usize = 10;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationError {
    message: String,
    hint: String,
}

impl DurationError {
    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.hint)
    }
}

impl StdError for DurationError {}

/// Reads a duration with a unit.
///
/// # Errors
/// A number without a unit, a space inside, a sign, an unknown unit, or more than a hundred years.
///
/// # Examples
/// ```
/// use fencepost_policy::duration;
///
/// assert_eq!(duration::parse("1m30s")?.as_secs(), 90);
/// let error = duration::parse("30").unwrap_err();
/// assert_eq!(error.to_string(), r#""30" has no unit; did you mean "30s"?"#);
/// # Ok::<(), duration::DurationError>(())
/// ```
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    read(text).map_err(|(problem, hint)| {
        let hint = hint.or_else(|| suggestion(text));
        DurationError {
            message: format!("{text:?} {problem}"),
            hint: hint.unwrap_or_else(|| "write it like 500ms, 30s or 1m30s".to_owned()),
        }
    })
}

/// Writes a duration so that [`parse`] reads it.
pub fn format(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

type Problem = (String, Option<String>);

fn read(text: &str) -> Result<Duration, Problem> {
    let wrong = |problem: &str| Err((problem.to_owned(), None));
    if text.is_empty() {
        return wrong("is no duration");
    }
    if text.contains(char::is_whitespace) {
        return wrong("contains a space");
    }
    if text.starts_with('-') {
        return wrong("is negative");
    }
    if text.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return Err(("has no unit".to_owned(), Some("did you mean \"0s\"? For no wait use -n".to_owned())));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return wrong("has no unit");
    }
    // The only unit with a capital letter is the month, and nobody who writes `5M` for a lock means five of them.
    if text.contains(char::is_uppercase) {
        return wrong("has a unit in capital letters");
    }
    let longest_number = text.split(|letter: char| !letter.is_ascii_digit()).map(str::len).max();
    if text.len() > MOST_BYTES || longest_number > Some(MOST_DIGITS) {
        return wrong("is too long");
    }
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        Ok(_) => wrong("is more than a hundred years"),
        Err(error) => Err((refusal(&error), None)),
    }
}

fn refusal(error: &humantime::DurationError) -> String {
    use humantime::DurationError as E;
    match error {
        E::UnknownUnit { unit, .. } if unit.is_empty() => "ends in a number without a unit".to_owned(),
        E::UnknownUnit { unit, .. } => format!("has the unknown unit {unit:?}"),
        E::NumberOverflow => "is out of range".to_owned(),
        E::InvalidCharacter(_) | E::NumberExpected(_) | E::Empty => "is no duration".to_owned(),
    }
}

/// The nearest text that would have been one.
fn suggestion(text: &str) -> Option<String> {
    let compact: String = text.split_whitespace().collect::<String>().to_lowercase();
    let compact = compact.trim_start_matches(['-', '+']);
    let candidates = [compact.to_owned(), format!("{compact}s")];
    let fits = |candidate: &&String| candidate.as_str() != text && read(candidate).is_ok();
    candidates.iter().find(fits).map(|candidate| format!("did you mean {candidate:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_read() {
        for (text, millis) in
            [("500ms", 500), ("30s", 30_000), ("1m30s", 90_000), ("1.5s", 1500), ("2h", 7_200_000), ("0s", 0)]
        {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(millis));
        }
    }

    #[test]
    fn mistakes_get_a_hint() {
        for (text, shown) in [
            ("30", r#""30" has no unit; did you mean "30s"?"#),
            ("1.5", r#""1.5" has no unit; did you mean "1.5s"?"#),
            ("0", r#""0" has no unit; did you mean "0s"? For no wait use -n"#),
            ("1 m", r#""1 m" contains a space; did you mean "1m"?"#),
            ("-5s", r#""-5s" is negative; did you mean "5s"?"#),
            ("5M", r#""5M" has a unit in capital letters; did you mean "5m"?"#),
            ("1m30", r#""1m30" ends in a number without a unit; did you mean "1m30s"?"#),
            ("3x", r#""3x" has the unknown unit "x"; write it like 500ms, 30s or 1m30s"#),
            ("", r#""" is no duration; write it like 500ms, 30s or 1m30s"#),
            ("999y", r#""999y" is more than a hundred years; write it like 500ms, 30s or 1m30s"#),
            ("0.5ns", r#""0.5ns" is out of range; write it like 500ms, 30s or 1m30s"#),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), shown);
        }
    }

    #[test]
    fn sum_at_the_edge_of_the_range_is_refused() {
        assert!(parse("18446744073709551615s1000ms").is_err());
        assert!(parse("584542046090y7d1000ms").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|[-+]?([0-9.]{1,22}[a-zµM ]{0,4}){1,12}") {
            if let Ok(duration) = parse(&text) {
                prop_assert_eq!(parse(&format(duration)).unwrap(), duration);
            }
        }

        #[test]
        fn written_durations_are_read_again(nanos in 0..u64::MAX / 10) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)).unwrap(), duration);
        }
    }
}
