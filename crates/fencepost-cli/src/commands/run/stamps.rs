//! The stamps of a run in the form in which a fence in Postgres finds them: a setting at the end of `PGOPTIONS`, which every
//! program on libpq passes on to the server.
//!
//! Invariant: the setting contains neither white space nor a backslash, so that nothing in it is split or needs an escape, and
//! the stamps of the runs around this one are carried on.

use std::collections::BTreeMap;
use std::ffi::OsString;

use fencepost::{BackendUrl, Error, ErrorKind, FencingToken, LockName, Result, Stamp, StampHolder};
use serde::{Deserialize, Serialize};

/// The variable that libpq reads.
pub(super) const VARIABLE: &str = "PGOPTIONS";

/// The setting that a fence in Postgres reads.
const SETTING: &str = "fencepost.stamps";

/// What the whole variable stays below, in bytes: the server takes 10,000 for all that a connection begins with, of which names
/// of database, user and program need their part.
const LIMIT: usize = 8_000;

/// What `PGOPTIONS` says before this run adds its stamps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    /// The options of others, passed on as they are.
    others: String,
    /// What the runs around this one have added.
    outer: BTreeMap<String, Shown>,
}

/// Token and holder, by the canonical spelling of the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shown(FencingToken, String);

impl Stamps {
    /// The stamps of a run behind the `inherited` value of the variable, if one of the run's fences is in Postgres.
    ///
    /// # Errors
    /// `InvalidArgument` when the variable would become too long, or is no text.
    pub(super) fn of_run<'a>(
        mut fences: impl Iterator<Item = &'a BackendUrl>,
        locks: &[LockName],
        inherited: Option<OsString>,
    ) -> Result<Option<Self>> {
        if !fences.any(|fence| fence.kind() == "postgres") {
            return Ok(None);
        }
        let inherited = inherited.unwrap_or_default().into_string();
        let inherited = inherited.map_err(|_| wrong(format!("{VARIABLE} is not UTF-8")))?;
        let stamps = Self::after(&inherited);
        stamps.refuse_too_long(locks)?;
        Ok(Some(stamps))
    }

    /// What is to be carried on of an inherited value. The last setting of a name is the one that counts, so one that
    /// cannot be read may stay in front of ours.
    fn after(inherited: &str) -> Self {
        let words = words(inherited);
        let (settings, others) = apart(&words);
        let outer = settings.last().map_or_else(|| Some(BTreeMap::new()), |value| parsed(value));
        if let Some(outer) = outer {
            return Self { others: others.join(" "), outer };
        }
        let all: Vec<_> = words.iter().map(|word| word.written).collect();
        Self { others: all.join(" "), outer: BTreeMap::new() }
    }

    /// The variable's value for a command that holds these.
    pub(super) fn with(&self, stamps: impl IntoIterator<Item = Stamp>) -> String {
        self.value(
            stamps
                .into_iter()
                .map(|stamp| (stamp.lock.canonical(), Shown(stamp.token, stamp.holder.as_str().to_owned()))),
        )
    }

    fn value(&self, own: impl Iterator<Item = (String, Shown)>) -> String {
        let mut all = self.outer.clone();
        all.extend(own);
        let all = serde_json::to_string(&all).expect("stamps are plain data");
        let space = if self.others.is_empty() { "" } else { " " };
        format!("{}{space}-c {SETTING}={all}", self.others)
    }

    /// Refuses a run whose stamps may turn out too long, before anything is acquired.
    fn refuse_too_long(&self, locks: &[LockName]) -> Result<()> {
        let greatest = FencingToken::try_from(FencingToken::MAX).expect("it is a token");
        let longest = Shown(greatest, "f".repeat(32));
        let length = self.value(locks.iter().map(|lock| (lock.canonical(), longest.clone()))).len();
        if length < LIMIT {
            return Ok(());
        }
        let locks = if locks.len() == 1 { "1 lock".to_owned() } else { format!("{} locks", locks.len()) };
        let what = format!(
            "{VARIABLE} can have {length} bytes with the tokens of {locks}, and must stay below {LIMIT}"
        );
        Err(wrong(what)
            .hint("a fence in Postgres needs fewer locks in one run, shorter names, or fewer options"))
    }
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "pass the tokens on to Postgres", what)
}

/// A setting's value, if a run has written it.
fn parsed(value: &str) -> Option<BTreeMap<String, Shown>> {
    let stamps: BTreeMap<String, Shown> = serde_json::from_str(value).ok()?;
    let is_spelled = |lock: &str| lock.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-%~".contains(&b));
    let fits = stamps.iter().all(|(lock, shown)| is_spelled(lock) && StampHolder::new(&shown.1).is_ok());
    fits.then_some(stamps)
}

/// One option, as it is written and as the server reads it.
#[derive(Debug, PartialEq, Eq)]
struct Word<'a> {
    written: &'a str,
    read: String,
}

/// The words of a value, split as [the server does it][1]: at white space that has no backslash before it. A backslash
/// at the very end means nothing, and would take the space after it; it is left out.
///
/// [1]: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-OPTIONS
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let (mut read, mut end) = (String::new(), 0);
        let mut letters = rest.char_indices();
        while let Some((at, letter)) = letters.next().filter(|(_, letter)| !is_space(*letter)) {
            let kept = if letter == '\\' { letters.next() } else { Some((at, letter)) };
            let Some((at, letter)) = kept else { break };
            read.push(letter);
            end = at + letter.len_utf8();
        }
        let written = &rest[..end];
        rest = letters.as_str();
        if !written.is_empty() {
            words.push(Word { written, read });
        }
        rest = rest.trim_start_matches(is_space);
    }
    words
}

/// White space in the sense of C.
fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// The values of our setting, and all other options as they are written.
fn apart<'a>(words: &'a [Word<'_>]) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut settings, mut others) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let next = if word.read == "-c" { words.next() } else { None };
        let assignment = next.map_or_else(|| attached(&word.read), |next| next.read.as_str());
        match assignment.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case(SETTING) => settings.push(value),
            _ => others.extend([Some(word), next].into_iter().flatten().map(|word| word.written)),
        }
    }
    (settings, others)
}

/// What follows `-c` or `--` in the same word.
fn attached(word: &str) -> &str {
    word.strip_prefix("-c").or_else(|| word.strip_prefix("--")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(lock: &str, token: u64) -> Stamp {
        let holder = StampHolder::new("0123456789abcdef0123456789abcdef").unwrap();
        Stamp { lock: lock.parse().unwrap(), token: token.try_into().unwrap(), holder }
    }

    fn with(inherited: &str, stamps: &[Stamp]) -> String {
        Stamps::after(inherited).with(stamps.iter().cloned())
    }

    const ONE: &str =
        r#"-c fencepost.stamps={"ledger%2F1":[1764420000123457,"0123456789abcdef0123456789abcdef"]}"#;

    fn one() -> [Stamp; 1] {
        [stamp("ledger/1", 1_764_420_000_123_457)]
    }

    #[test]
    fn stamps_stand_behind_the_options_of_others() {
        assert_eq!(with("", &one()), ONE);
        assert_eq!(with("  ", &one()), ONE);
        let others = r"-c search_path=a\ b,c -c  work_mem=1MB";
        assert_eq!(with(others, &one()), format!(r"-c search_path=a\ b,c -c work_mem=1MB {ONE}"));
        let both = with("", &[stamp("b", 2), stamp("a", FencingToken::MAX)]);
        let holder = "0123456789abcdef0123456789abcdef";
        let expected = format!(r#"{{"a":[9223372036854775807,"{holder}"],"b":[2,"{holder}"]}}"#);
        assert_eq!(both, format!("-c fencepost.stamps={expected}"));
    }

    #[test]
    fn stamps_of_the_runs_around_are_carried_on() {
        let outer = r#"{"a":[1,""],"ledger%2F1":[2,"x"]}"#;
        let merged = format!(r#"{{"a":[1,""],{}"#, ONE.split_once('{').unwrap().1);
        for written in
            ["-c fencepost.stamps=", "-cfencepost.stamps=", "--fencepost.stamps=", "-c FENCEPOST.Stamps="]
        {
            let inherited = format!("-c x=1 -c fencepost.stamps=[] {written}{outer} -c y=2");
            assert_eq!(with(&inherited, &one()), format!("-c x=1 -c y=2 -c fencepost.stamps={merged}"));
        }
        let nested = with(&with(&with("-c x=1", &one()), &[stamp("b", 3)]), &[stamp("b", 4)]);
        let again = Stamps::after(&nested);
        assert_eq!((again.others.as_str(), again.outer.len()), ("-c x=1", 2));
        assert_eq!(again.outer["b"].0.get(), 4);
    }

    #[test]
    fn setting_that_no_run_has_written_stays_in_front() {
        for value in
            ["", "{}x", "[]", r#"{"a":[0,""]}"#, r#"{"a":[1,"é"]}"#, r#"{"a/b":[1,""]}"#, r#"{"a":1}"#]
        {
            let inherited = format!("-c fencepost.stamps={value} -c x=1");
            assert_eq!(with(&inherited, &one()), format!("{inherited} {ONE}"));
        }
        assert_eq!(with("-c", &one()), format!("-c {ONE}"));
    }

    #[test]
    fn too_many_locks_are_refused_by_their_number() {
        let locks: Vec<LockName> = (0..100).map(|index| format!("{index:0>60}").parse().unwrap()).collect();
        let error = Stamps::default().refuse_too_long(&locks).unwrap_err();
        assert!(error.to_string().contains("100 locks"), "{error}");
        Stamps::default().refuse_too_long(&locks[..50]).unwrap();
        let long = format!("-c x={}", "y".repeat(LIMIT));
        assert!(Stamps::after(&long).refuse_too_long(&locks[..1]).is_err());
    }

    #[test]
    fn stamps_are_for_fences_in_postgres_alone() {
        let urls =
            ["file:/srv", "redis://h/0", "postgres://h/db"].map(|url| url.parse::<BackendUrl>().unwrap());
        assert_eq!(Stamps::of_run(urls[..2].iter(), &[], None).unwrap(), None);
        assert!(Stamps::of_run(urls.iter(), &[], None).unwrap().is_some());
    }

    proptest! {
        #[test]
        fn setting_needs_no_escape_and_is_one_word(lock in "\\PC{1,80}", inherited in r"[-cx=1 \\\t\né]{0,30}") {
            let Ok(lock) = lock.parse::<LockName>() else { return Ok(()) };
            let value = with(&inherited, &[stamp(lock.as_str(), 7)]);
            let (before, setting) = value.split_once("-c fencepost.stamps=").unwrap();
            prop_assert!(!setting.contains(|letter: char| letter == '\\' || letter.is_whitespace()));
            let reads = |text| words(text).into_iter().map(|word| word.read).collect::<Vec<_>>();
            let mut expected = reads(&inherited);
            prop_assert_eq!(&reads(before), &expected);
            expected.extend(["-c".to_owned(), format!("fencepost.stamps={setting}")]);
            prop_assert_eq!(reads(&value), expected);
            prop_assert!(parsed(setting).unwrap().contains_key(&lock.canonical()));
        }
    }
}
