//! Where one lock lives: the one decision for the command line and for programs.
//!
//! Invariant: no lock falls back to a weaker place. Where a configuration exists, a name that no rule matches has none.

use std::error::Error as StdError;
use std::fmt;

use fencepost_core::{BackendUrl, Error, ErrorKind, LockName};

use crate::finding::ConfigError;
use crate::policy::Policy;
use crate::rule::Choice;
use crate::search::Surroundings;

/// Where one lock lives, and what its rule says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Placement {
    /// The backend.
    pub url: BackendUrl,
    /// Who decided that.
    pub origin: Origin,
    /// What the rule says that matches the lock, also where another backend was given.
    pub choice: Option<Choice>,
}

/// Who decides where a lock lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The caller.
    Given,
    /// A rule of the configuration.
    Rule,
    /// `FENCEPOST_BACKEND`.
    Variable,
    /// Nobody, since there is no configuration: a directory of this host.
    Default,
}

/// Why a lock lives nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misplaced {
    /// The rule that matches is wrong, or too weak for its own answers.
    Config(ConfigError),
    /// No rule matches, and nobody else has said where.
    Unmatched {
        /// The rules that come nearest.
        nearest: Vec<String>,
    },
}

impl Placement {
    /// Where `lock` lives: at the backend that the caller has given, by the rule of `policy`, at the backend of
    /// `FENCEPOST_BACKEND`, or, only where there is no configuration at all, in a directory of this host.
    ///
    /// # Errors
    /// A rule that is wrong, or that is weaker than its own answers demand on that backend; a name that no rule matches.
    ///
    /// # Panics
    /// Never: the URL of the default is one.
    pub fn of(
        policy: Option<&Policy>,
        surroundings: &Surroundings<'_>,
        lock: &LockName,
        given: Option<&BackendUrl>,
        variable: Option<&BackendUrl>,
    ) -> Result<Self, Misplaced> {
        let choose = |policy: &Policy| policy.choose_in(surroundings, lock, given);
        let choice = policy.map(choose).transpose().map_err(Misplaced::Config)?.flatten();
        let at = |url: BackendUrl, origin, choice| Self { url, origin, choice };
        match (given, choice, variable, policy) {
            (Some(url), choice, ..) => Ok(at(url.clone(), Origin::Given, choice)),
            (None, Some(choice), ..) => Ok(at(choice.backend.clone(), Origin::Rule, Some(choice))),
            (None, None, Some(url), _) => Ok(at(url.clone(), Origin::Variable, None)),
            (None, None, None, Some(policy)) => {
                let nearest = policy.nearest(lock).into_iter().map(ToOwned::to_owned).collect();
                Err(Misplaced::Unmatched { nearest })
            }
            (None, None, None, None) => Ok(at("file:".parse().expect("it is a URL"), Origin::Default, None)),
        }
    }

    /// What `FENCEPOST_BACKEND` says.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no URL.
    pub fn variable(surroundings: &Surroundings<'_>) -> fencepost_core::Result<Option<BackendUrl>> {
        let Some(text) = (surroundings.variable)(BACKEND).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let text = text.into_string().map_err(|_| {
            let operation = "read FENCEPOST_BACKEND";
            Error::new(ErrorKind::InvalidArgument, operation, "it is not UTF-8, and so no URL")
        })?;
        text.parse().map(Some)
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Unmatched { .. } => f.write_str("no rule of the configuration matches the lock"),
        }
    }
}

impl StdError for Misplaced {}

/// The variable that names a backend.
const BACKEND: &str = "FENCEPOST_BACKEND";

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn variable(text: &[u8]) -> fencepost_core::Result<Option<BackendUrl>> {
        let value = OsString::from_vec(text.to_vec());
        let variable = |name: &str| (name == BACKEND).then(|| value.clone());
        Placement::variable(&Surroundings { variable: &variable, ..Surroundings::of_process() })
    }

    #[test]
    fn variable_is_a_url_or_refused_or_as_good_as_unset_where_it_is_empty() {
        assert_eq!(variable(b"").unwrap(), None);
        assert_eq!(variable(b"redis://h").unwrap().unwrap().kind(), "redis");
        assert!(variable(b"reddis://h").is_err() && variable(&[0xff]).is_err());
    }
}
