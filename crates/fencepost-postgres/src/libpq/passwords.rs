//! The [password file](https://www.postgresql.org/docs/current/libpq-pgpass.html), read anew for every connection
//! attempt because a password may be replaced while we run.
//!
//! Invariant: a file that others can read gives no password, and a password is never shown.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(String);

impl Password {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself, for the server alone.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(***)")
    }
}

/// Whose password is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

/// What there is to log in with, and what the user should know about how it was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) password: Option<Password>,
    pub(crate) warning: Option<String>,
}

/// Where passwords are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PasswordFile(pub(crate) PathBuf);

impl PasswordFile {
    /// The password of the first line that answers the question. A file that is not there or cannot be read answers
    /// nothing, as with libpq.
    pub(crate) fn answer(&self, question: &Question) -> Answer {
        let Ok(metadata) = self.0.metadata() else { return Answer::default() };
        if !metadata.is_file() {
            return self.warning("is not a plain file");
        }
        if metadata.permissions().mode() & ANY_OF_OTHERS != 0 {
            return self.warning("can be used by others; its permissions have to be 0600 or less");
        }
        match std::fs::read(&self.0).map(String::from_utf8) {
            Ok(Ok(text)) => Answer { password: password_in(&text, question), warning: None },
            Ok(Err(_)) => self.warning("is not UTF-8"),
            Err(_) => Answer::default(),
        }
    }

    fn warning(&self, flaw: &str) -> Answer {
        let warning = format!("the password file {} {flaw}; it is not used", self.0.display());
        Answer { password: None, warning: Some(warning) }
    }
}

fn password_in(text: &str, question: &Question) -> Option<Password> {
    let port = question.port.to_string();
    let wanted = [question.host, &port, question.database, question.user];
    let lines = text.split('\n').map(|line| line.trim_end_matches('\r'));
    let mut lines = lines.filter(|line| !line.starts_with('#'));
    let rest =
        lines.find_map(|line| wanted.iter().try_fold(line, |line, wanted| after_field(line, wanted)))?;
    // An empty password is none, and no later line is asked.
    Some(unescaped(rest)).filter(|password| !password.is_empty()).map(Password::new)
}

/// What follows the first field of `line`, where that is a star or `wanted`. As with libpq a colon in what is wanted
/// may stand with or without its backslash.
fn after_field<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut letters = line.char_indices();
    let mut wanted = wanted.chars();
    loop {
        let (at, letter) = letters.next()?;
        let is_escaped = letter == '\\';
        let (at, letter) = if is_escaped { letters.next()? } else { (at, letter) };
        match wanted.next() {
            None if letter == ':' && !is_escaped => return Some(&line[at + 1..]),
            Some(expected) if expected == letter => {}
            _ => return None,
        }
    }
}

/// The last field, which ends at the next colon.
fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut letters = field.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ':' => break,
            // A backslash at the end stands for itself.
            '\\' => text.push(letters.next().unwrap_or('\\')),
            letter => text.push(letter),
        }
    }
    text
}

/// The permissions of the group and of everybody.
const ANY_OF_OTHERS: u32 = 0o077;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn password(text: &str, host: &str, database: &str) -> Option<String> {
        let question = Question { host, port: 5432, database, user: "ann" };
        password_in(text, &question).map(|password| password.expose().to_owned())
    }

    #[test]
    fn first_line_that_fits_counts() {
        for (text, expected) in [
            ("h:5432:db:ann:pw", Some("pw")),
            ("h:5432:db:ann:pw\r\n", Some("pw")),
            ("#h:5432:db:ann:no\n\nh:5432:db:ann:pw", Some("pw")),
            ("x:*:*:*:no\n*:*:*:*:pw\n*:*:*:*:no", Some("pw")),
            ("h:5432:db:ann:p\\:w\\\\:more", Some("p:w\\")),
            ("h:5432:db:ann:p\\", Some("p\\")),
            ("h:5432:d\\b:ann:pw", Some("pw")),
            ("h:5432:db:ann:\n*:*:*:*:no", None),
            ("h:5433:db:ann:no", None),
            ("h:5432:d*:ann:no", None),
            (" h:5432:db:ann:no", None),
            ("h:5432:db:ann", None),
            ("h\\:5432:db:ann:no", None),
            ("h2:5432:db:ann:no", None),
        ] {
            assert_eq!(password(text, "h", "db").as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn colon_of_an_address_needs_no_backslash() {
        assert_eq!(password("::1:5432:db:ann:pw", "::1", "db").as_deref(), Some("pw"));
        assert_eq!(password(r"\:\:1:5432:db:ann:pw", "::1", "db").as_deref(), Some("pw"));
    }

    #[test]
    fn file_of_everybody_is_passed_over_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let file = PasswordFile(folder.path().join("pgpass"));
        let question = Question { host: "h", port: 1, database: "db", user: "ann" };
        assert_eq!(file.answer(&question), Answer::default());
        std::fs::write(&file.0, "*:*:*:*:s3cret").unwrap();
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o610, false)]
        {
            std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(mode)).unwrap();
            let answer = file.answer(&question);
            assert_eq!(answer.password, is_read.then(|| Password::new("s3cret")), "{mode:o}");
            assert_eq!(answer.warning.is_none(), is_read);
            assert!(!format!("{answer:?}").contains("s3cret"));
        }
        let folder = PasswordFile(folder.path().to_owned());
        assert!(folder.answer(&question).warning.unwrap().contains("plain file"));
    }

    proptest! {
        #[test]
        fn escaped_line_gives_the_password_back(host in "[^\\x00\n\r]{1,9}", secret in "[^\\x00\n\r]{1,9}") {
            let escaped = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
            let line = format!("{}:*:*:ann:{}", escaped(&host), escaped(&secret));
            prop_assume!(!line.starts_with('#'));
            prop_assert_eq!(password(&line, &host, "db"), Some(secret));
        }
    }
}
