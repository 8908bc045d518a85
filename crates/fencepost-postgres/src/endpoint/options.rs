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
            max_ttl: url.max_ttl()?,
            has_quarantine: url.switch("quarantine", true)?,
            on_pause,
            has_pooler: has_pooler(url)?,
        })
    }
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
