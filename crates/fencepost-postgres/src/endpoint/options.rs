//! The options that are fencepost's own.
//!
//! Invariant: a `max_ttl` out of bounds cannot be written down.

use std::time::Duration;

use fencepost_core::{BackendUrl, Result};

/// What happens to a lease while its process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PausePolicy {
    /// The server keeps it as long as the session.
    Hold,
    /// The server ends the session after the ttl.
    Expire,
}

/// What the options of a URL say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) max_ttl: Duration,
    pub(crate) has_quarantine: bool,
    pub(crate) on_pause: PausePolicy,
    /// Whether a pooler that keeps a server's session for each client stands before the server.
    pub(crate) has_pooler: bool,
}

impl Options {
    /// # Errors
    /// `InvalidArgument` that says which option is wrong.
    pub(crate) fn of(url: &BackendUrl) -> Result<Self> {
        let on_pause = match url.option("on_pause") {
            None | Some("hold") => PausePolicy::Hold,
            Some("expire") => PausePolicy::Expire,
            Some(other) => return Err(url.wrong(format!("on_pause={other:?} is neither hold nor expire"))),
        };
        Ok(Self {
            max_ttl: max_ttl(url)?,
            has_quarantine: url.switch("quarantine", true)?,
            on_pause,
            has_pooler: has_pooler(url)?,
        })
    }
}

fn max_ttl(url: &BackendUrl) -> Result<Duration> {
    let Some(text) = url.option("max_ttl") else { return Ok(MAX_TTL) };
    let ttl = duration(text).filter(|ttl| (SHORTEST_MAX_TTL..=LONGEST_MAX_TTL).contains(ttl));
    ttl.ok_or_else(|| {
        url.wrong(format!("max_ttl={text:?} is not a duration such as 60s, 5m or 500ms, from 100ms to 24h"))
    })
}

fn has_pooler(url: &BackendUrl) -> Result<bool> {
    match url.option("pooler") {
        None => Ok(false),
        Some("session") => Ok(true),
        Some(other) => {
            let hint = "a pooler that shares sessions between clients cannot hold a lock: let it pool by session \
                        and write pooler=session, or go around it";
            Err(url.wrong(format!("pooler={other:?} is not session")).hint(hint))
        }
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

/// The longest ttl unless `max_ttl` says otherwise.
const MAX_TTL: Duration = Duration::from_mins(1);

/// The shortest `max_ttl`: less is no time to renew in.
const SHORTEST_MAX_TTL: Duration = Duration::from_millis(100);

/// The longest `max_ttl`: a quarantine is as long.
const LONGEST_MAX_TTL: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> Result<Options> {
        Options::of(&format!("postgres://h?{query}").parse().unwrap())
    }

    #[test]
    fn options_have_defaults() {
        let expected = Options {
            max_ttl: Duration::from_mins(1),
            has_quarantine: true,
            on_pause: PausePolicy::Hold,
            has_pooler: false,
        };
        assert_eq!(options("").unwrap(), expected);
    }

    #[test]
    fn options_are_read() {
        let expected = Options {
            max_ttl: Duration::from_millis(1500),
            has_quarantine: false,
            on_pause: PausePolicy::Expire,
            has_pooler: true,
        };
        let query = "max_ttl=1500ms&quarantine=off&on_pause=expire&pooler=session";
        assert_eq!(options(query).unwrap(), expected);
    }

    #[test]
    fn odd_options_are_refused() {
        for query in [
            "max_ttl=60",
            "max_ttl=0s",
            "max_ttl=50ms",
            "max_ttl=25h",
            "max_ttl=99999999999999999999s",
            "quarantine=no",
            "on_pause=stop",
            "pooler=transaction",
            "pooler=",
        ] {
            assert!(options(query).is_err(), "{query}");
        }
    }
}
