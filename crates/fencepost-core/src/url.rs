//! Where a backend lives, as the user writes it: `scheme:rest?option=value`.
//!
//! Invariant: neither `Display` nor `Debug` ever shows a password, so a URL may stand in any message.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Schemes, and the kind of backend or fence that each means.
const SCHEMES: &[(&str, &str)] = &[
    ("file", "file"),
    ("memory", "memory"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+sentinel", "redis"),
    ("redlock", "redlock"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("zookeeper", "zookeeper"),
    ("sqlite", "sqlite"),
    ("s3", "s3"),
    ("gs", "gs"),
    ("az", "az"),
];

/// The longest ttl unless `max_ttl` says otherwise, and what it may say: less is no time to renew in, and a quarantine is as long.
const MAX_TTL: Duration = Duration::from_mins(1);
const SHORTEST_MAX_TTL: Duration = Duration::from_millis(100);
const LONGEST_MAX_TTL: Duration = Duration::from_hours(24);

/// Query parameters whose values are secrets.
const SECRET_OPTIONS: &[&str] = &["passwd", "pass", "sig"];

/// Words that make a parameter secret wherever they stand in its name, whether or not there is such an option.
const SECRET_WORDS: &[&str] = &["password", "secret", "token", "credential", "access_key", "account_key"];

/// The URL of a backend or a fence.
///
/// # Examples
/// ```
/// use fencepost_core::BackendUrl;
///
/// let url: BackendUrl = "redis://app:s3cret@cache:6379/0?quarantine=off".parse()?;
/// assert_eq!(url.kind(), "redis");
/// assert_eq!(url.option("quarantine"), Some("off"));
/// assert_eq!(url.to_string(), "redis://app:***@cache:6379/0?quarantine=off");
/// # Ok::<(), fencepost_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct BackendUrl {
    text: String,
    shown: String,
    kind: &'static str,
    scheme_end: usize,
    query_start: usize,
}

impl BackendUrl {
    /// The kind of backend that it names: `file`, `redis`, …
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The scheme as it was written.
    pub fn scheme(&self) -> &str {
        &self.text[..self.scheme_end]
    }

    /// What stands between the scheme and the options.
    pub fn body(&self) -> &str {
        &self.text[self.scheme_end + 1..self.query_start]
    }

    /// The options in their order.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.text[self.query_start..].trim_start_matches('?');
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// The value of one option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options().find(|(option, _)| *option == name).map(|(_, value)| value)
    }

    /// Refuses options other than `known`, and any that is given twice.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] that names the option and what there is.
    pub fn accept_options(&self, known: &[&str]) -> Result<()> {
        let mut seen = Vec::new();
        for (option, _) in self.options() {
            if option.contains('@') {
                // It may be the end of a password.
                let what = "a ? before the host begins the options";
                return Err(self.wrong(what).hint("write a ? in a password as %3F"));
            }
            if !known.contains(&option) {
                // Options for fencepost's own tests are not offered to users.
                let offered: Vec<_> =
                    known.iter().filter(|name| !name.starts_with("test_")).copied().collect();
                let hint = match offered[..] {
                    [] => format!("{}: takes no options", self.scheme()),
                    _ => format!("{}: takes {}", self.scheme(), offered.join(", ")),
                };
                return Err(self.wrong(format!("there is no option {option:?}")).hint(hint));
            }
            if seen.contains(&option) {
                return Err(self.wrong(format!("the option {option:?} is given twice")));
            }
            seen.push(option);
        }
        Ok(())
    }

    /// The value of a switch that is `on` or `off`; `default` where it is not given.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for any other value.
    pub fn switch(&self, name: &str, default: bool) -> Result<bool> {
        match self.option(name) {
            None => Ok(default),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => Err(self.wrong(format!("{name}={other:?} is neither on nor off"))),
        }
    }

    /// The longest lease that a server gives, by the option `max_ttl`: a minute where it is not given.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for what is no duration with a unit, or out of bounds.
    pub fn max_ttl(&self) -> Result<Duration> {
        let Some(text) = self.option("max_ttl") else { return Ok(MAX_TTL) };
        let ttl = duration(text).filter(|ttl| (SHORTEST_MAX_TTL..=LONGEST_MAX_TTL).contains(ttl));
        ttl.ok_or_else(|| {
            self.wrong(format!(
                "max_ttl={text:?} is not a duration such as 60s, 5m or 500ms, from 100ms to 24h"
            ))
        })
    }

    /// The whole text with its secrets, for the client that connects, and for nobody's eyes.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The same URL, shown as `text` from now on: as it was written before secrets were filled in.
    pub fn shown_as(mut self, text: impl Into<String>) -> Self {
        self.shown = text.into();
        self
    }

    /// Whether it contains a password.
    pub fn has_password(&self) -> bool {
        redacted(&self.text) != self.text
    }

    /// An error about this URL.
    pub fn wrong(&self, what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidArgument, "use the URL", format!("{self}: {what}"))
    }
}

/// A duration as it stands in a URL: digits and a unit.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|letter: char| !letter.is_ascii_digit())?;
    let number: u64 = text[..unit].parse().ok()?;
    let in_ms = match &text[unit..] {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(in_ms).map(Duration::from_millis)
}

impl FromStr for BackendUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: String| Error::new(ErrorKind::InvalidArgument, "read the URL", what);
        let known = || "a URL begins with file:, redis://, redlock://, postgres://, etcd:// or zookeeper://";
        let Some((scheme, _)) = text.split_once(':') else {
            let hint =
                if text.starts_with(['/', '.', '~']) { format!("file:{text}") } else { known().to_owned() };
            return Err(wrong(format!("{:?} has no scheme", redacted(text))).hint(hint));
        };
        let Some((_, kind)) = SCHEMES.iter().find(|(name, _)| *name == scheme) else {
            return Err(wrong(format!("there is no backend {scheme:?}")).hint(known()));
        };
        if text.chars().any(char::is_control) {
            return Err(wrong(format!("{:?} contains a control character", redacted(text))));
        }
        let query_start = text.find('?').unwrap_or(text.len()).max(scheme.len() + 1);
        Ok(Self { text: text.to_owned(), shown: redacted(text), kind, scheme_end: scheme.len(), query_start })
    }
}

impl fmt::Display for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendUrl({self})")
    }
}

/// `text` without its secrets. Where it is not clear how far a password goes, more is hidden rather than less.
fn redacted(text: &str) -> String {
    if let (Some(at), Some(query)) = (text.rfind('@'), text.find('?'))
        && query < at
        && text[query..].split('&').any(|pair| is_secret(pair.split('=').next().unwrap_or_default()))
    {
        // The @ may belong to the secret, or the ? to a password.
        let before = &text[..query];
        return format!("{}?***", hide_userinfo(before, !before.contains('@')));
    }
    let (before, query) = match (text.rfind('@'), text.find('?')) {
        (Some(at), Some(query)) if query < at => text.split_at(at),
        (_, Some(query)) => text.split_at(query),
        _ => (text, ""),
    };
    let mut hidden = hide_userinfo(before, !query.is_empty() && query.starts_with('@'));
    for (index, pair) in query.split('&').enumerate() {
        if index > 0 {
            hidden.push('&');
        }
        match pair.split_once('=') {
            Some((name, _)) if is_secret(name) => hidden.extend([name, "=***"]),
            _ => hidden.push_str(pair),
        }
    }
    hidden
}

fn is_secret(option: &str) -> bool {
    let option = option.trim_start_matches('?').to_ascii_lowercase();
    SECRET_OPTIONS.contains(&option.as_str()) || SECRET_WORDS.iter().any(|word| option.contains(word))
}

/// Hides what stands between the first colon after the slashes and the last `@`, which stands at the end of `text`
/// where `cut_at_sign` says so.
fn hide_userinfo(text: &str, cut_at_sign: bool) -> String {
    let end = if cut_at_sign { Some(text.len()) } else { text.rfind('@') };
    let start =
        text.find("//").map_or_else(|| text.find(':').map_or(0, |colon| colon + 1), |slashes| slashes + 2);
    let Some(end) = end.filter(|end| *end > start) else { return text.to_owned() };
    match text[start..end].find(':') {
        Some(colon) => format!("{}:***{}", &text[..start + colon], &text[end..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn passwords_are_hidden() {
        for (text, shown) in [
            ("redis://:pw@h/0", "redis://:***@h/0"),
            ("redis://u:p@ss/w@h:1/0", "redis://u:***@h:1/0"),
            ("redis://u:p?w@h:1/0", "redis://u:***@h:1/0"),
            ("postgres://h/db?user=a&password=pw&x=1", "postgres://h/db?user=a&password=***&x=1"),
            ("postgres://h/db?x=1&password=p@ss", "postgres://h/db?***"),
            ("postgres://u:pw@h/db?password=p@ss", "postgres://u:***@h/db?***"),
            ("redis://u:p?token=w@h:1/0", "redis://u:***?***"),
            ("s3://b/p?secret_access_key=pw", "s3://b/p?secret_access_key=***"),
            ("etcd://h1:2379,h2:2379/p", "etcd://h1:2379,h2:2379/p"),
            ("file:/var/lib/x?fsync=on", "file:/var/lib/x?fsync=on"),
        ] {
            let url: BackendUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(url.has_password(), text != shown);
        }
    }

    #[test]
    fn path_gets_a_hint() {
        let error = "/var/lib/locks".parse::<BackendUrl>().unwrap_err();
        assert_eq!(error.advice(), Some("file:/var/lib/locks"));
    }

    #[test]
    fn unknown_option_is_refused() {
        let url: BackendUrl = "file:/x?fsinc=on".parse().unwrap();
        assert_eq!(url.accept_options(&["fsync"]).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(url.body(), "/x");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*|[a-z+]{0,8}:.{0,40}") {
            if let Ok(url) = text.parse::<BackendUrl>() {
                prop_assert!(url.body().len() <= text.len());
                prop_assert!(url.options().count() <= text.len());
            }
        }

        #[test]
        fn no_password_of_an_option_is_shown(password in "[a-z?=/:@]{0,6}secret[a-z?=/:@]{0,6}", name in "password|token") {
            let url: BackendUrl = format!("postgres://user@host/db?x=1&{name}={password}").parse().unwrap();
            prop_assert!(!url.to_string().contains("secret"), "{url}");
        }

        #[test]
        fn no_password_is_shown(password in "[a-z?&=/:@]{6,20}secret[a-z?&=/:@]{0,6}") {
            let url: BackendUrl = format!("redis://user:{password}@host/0?quarantine=on").parse().unwrap();
            prop_assert!(!url.to_string().contains("secret"), "{url}");
            let debug = format!("{url:?}");
            prop_assert!(!debug.contains("secret"));
        }
    }
}
