//! The stamp that a command line means: what it gives, and for the rest what the environment of `run` gives.
//!
//! Invariant: the token and the holder of one lock are never taken for another lock.

use fencepost::{Error, ErrorKind, FencingToken, LockName, Result, Stamp, StampHolder};
use serde::Deserialize;

use crate::args::Stamped;

/// The stamp of a command line in the environment of this process.
///
/// # Errors
/// `InvalidArgument` when something is missing, or a variable that is needed cannot be read.
pub(super) fn stamp(given: impl Into<Given>) -> Result<Stamp> {
    given.into().in_environment(|name| {
        let text = std::env::var_os(name).filter(|text| !text.is_empty());
        text.map(|text| text.into_string().map_err(|_| unreadable(name, "it is not UTF-8"))).transpose()
    })
}

/// What stands on the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    pub(super) lock: Option<LockName>,
    pub(super) token: Option<FencingToken>,
    pub(super) holder: Option<StampHolder>,
}

impl From<&Stamped> for Given {
    fn from(args: &Stamped) -> Self {
        Self { lock: args.lock.clone(), token: args.token, holder: args.holder.clone() }
    }
}

/// What one run of `run` was granted for one lock.
#[derive(Clone, Debug, Deserialize)]
struct Inherited {
    lock: LockName,
    token: FencingToken,
    holder: String,
}

type Variable<'a> = &'a dyn Fn(&'static str) -> Result<Option<String>>;

impl Given {
    fn in_environment(self, variable: impl Fn(&'static str) -> Result<Option<String>>) -> Result<Stamp> {
        if let (Some(lock), Some(token), Some(holder)) = (&self.lock, self.token, &self.holder) {
            return Ok(Stamp { lock: lock.clone(), token, holder: holder.clone() });
        }
        let lock = match self.lock {
            Some(lock) => lock,
            None => read(&variable, "FENCEPOST_LOCK")?.ok_or_else(|| missing("LOCK"))?,
        };
        let inherited = Inherited::of(&lock, &variable)?;
        let token = self.token.or(inherited.as_ref().map(|inherited| inherited.token));
        let token = token.ok_or_else(|| missing("TOKEN").on(&lock))?;
        let holder = match (self.holder, inherited) {
            (Some(holder), _) => holder,
            (None, Some(inherited)) => StampHolder::new(inherited.holder)?,
            (None, None) => StampHolder::default(),
        };
        Ok(Stamp { lock, token, holder })
    }
}

impl Inherited {
    /// The grant of `lock` that the environment speaks of, if it speaks of that lock.
    fn of(lock: &LockName, variable: Variable<'_>) -> Result<Option<Self>> {
        if read(variable, "FENCEPOST_LOCK")?.as_ref() == Some(lock) {
            let holder = variable("FENCEPOST_HOLDER")?.unwrap_or_default();
            let token = read(variable, "FENCEPOST_TOKEN")?;
            return Ok(token.map(|token| Self { lock: lock.clone(), token, holder }));
        }
        let Some(several) = variable("FENCEPOST_TOKENS")? else { return Ok(None) };
        let several: Vec<Self> = serde_json::from_str(&several)
            .map_err(|error| unreadable("FENCEPOST_TOKENS", "it is no list of grants").caused_by(error))?;
        Ok(several.into_iter().find(|inherited| inherited.lock == *lock))
    }
}

fn read<T: std::str::FromStr<Err = Error>>(variable: Variable<'_>, name: &'static str) -> Result<Option<T>> {
    let text = variable(name)?;
    text.map(|text| text.parse().map_err(|error| unreadable(name, "it makes no sense").caused_by(error)))
        .transpose()
}

fn missing(what: &str) -> Error {
    let context = format!("no {what} is given, and this is not a run of that lock");
    Error::new(ErrorKind::InvalidArgument, "use the fence", context)
        .hint("give the LOCK and its TOKEN behind the URL; they can be left out under `fencepost run`")
}

fn unreadable(variable: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, "use the fence", format!("{variable} cannot be read: {why}"))
        .hint("give LOCK, TOKEN and --holder")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[(&str, &str)] =
        &[("FENCEPOST_LOCK", "a"), ("FENCEPOST_TOKEN", "7"), ("FENCEPOST_HOLDER", "me")];
    const TWO: &[(&str, &str)] = &[
        ("FENCEPOST_LOCK", "a"),
        ("FENCEPOST_TOKEN", "7"),
        ("FENCEPOST_HOLDER", "me"),
        (
            "FENCEPOST_TOKENS",
            r#"[{"lock":"a","token":7,"holder":"me"},{"lock":"b/ü","token":9007199254740993,"holder":"you"}]"#,
        ),
    ];

    fn given(lock: &str, token: u64, holder: Option<&str>) -> Given {
        Given {
            lock: lock.parse().ok(),
            token: token.try_into().ok(),
            holder: holder.map(|holder| StampHolder::new(holder).unwrap()),
        }
    }

    fn stamp(given: Given, variables: &[(&str, &str)]) -> Result<(String, u64, String)> {
        let variable = |name| variables.iter().find(|(known, _)| *known == name);
        let stamp = given.in_environment(|name| Ok(variable(name).map(|(_, value)| (*value).to_owned())))?;
        Ok((stamp.lock.to_string(), stamp.token.get(), stamp.holder.as_str().to_owned()))
    }

    fn assert_stamp(given: Given, variables: &[(&str, &str)], lock: &str, token: u64, holder: &str) {
        let expected = (lock.to_owned(), token, holder.to_owned());
        assert_eq!(stamp(given, variables).unwrap(), expected);
    }

    #[test]
    fn what_is_left_out_comes_from_the_run() {
        assert_stamp(Given::default(), ONE, "a", 7, "me");
        assert_stamp(given("a", 0, None), ONE, "a", 7, "me");
        assert_stamp(given("a", 8, None), ONE, "a", 8, "me");
        assert_stamp(given("a", 0, Some("")), ONE, "a", 7, "");
        assert_stamp(given("b/ü", 0, None), TWO, "b/ü", 9_007_199_254_740_993, "you");
        assert_stamp(given("b/ü", 3, None), TWO, "b/ü", 3, "you");
    }

    #[test]
    fn nothing_is_taken_from_the_run_of_another_lock() {
        assert_stamp(given("b", 3, None), ONE, "b", 3, "");
        assert_stamp(given("b", 3, None), TWO, "b", 3, "");
        for variables in [ONE, TWO, &[], &ONE[1..]] {
            let error = stamp(given("b", 0, None), variables).unwrap_err();
            assert!(error.to_string().contains("no TOKEN") && error.advice().is_some(), "{error}");
        }
        assert!(stamp(Given::default(), &[]).unwrap_err().to_string().contains("no LOCK"));
        assert!(stamp(given("", 7, Some("me")), &ONE[1..]).unwrap_err().to_string().contains("no LOCK"));
    }

    #[test]
    fn variable_that_makes_no_sense_is_an_error_where_it_is_needed() {
        for variable in [("FENCEPOST_TOKENS", "{}"), ("FENCEPOST_TOKENS", "["), ("FENCEPOST_LOCK", "a\n")] {
            assert!(stamp(given("b", 3, None), &[variable]).is_err(), "{variable:?}");
            assert_stamp(given("b", 3, Some("x")), &[variable], "b", 3, "x");
        }
        for token in ["0", "9223372036854775808", "7.0", "-1", ""] {
            let variables = [("FENCEPOST_LOCK", "a"), ("FENCEPOST_TOKEN", token)];
            assert!(stamp(Given::default(), &variables).is_err(), "{token:?}");
        }
    }
}
