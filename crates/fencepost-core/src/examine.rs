//! What a look at a store shows beside its locks: which server it is, and what in its set-up weakens a promise.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, ErrorKind};

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// A promise holds, but with less in hand than one might think.
    Warning,
    /// A promise may fail.
    Serious,
}

/// One thing about a store that whoever relies on it should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The server, table or directory that it is about.
    pub about: String,
    /// What was seen there, with the value: `maxmemory-policy is allkeys-lru`.
    pub evidence: String,
    /// What that means for locks and fences.
    pub consequence: String,
    /// What to change, exactly.
    pub remedy: String,
}

/// What a look at a store has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Examination {
    /// The servers and their versions, as found: `Redis 7.0.15 at cache:6379`; empty where there is no server.
    pub servers: Vec<String>,
    /// What should be known, the worst first.
    pub findings: Vec<Finding>,
    /// The lengths of lease that the servers give, where they bound them themselves.
    pub ttl: Option<TtlRange>,
}

/// The lengths of lease that a server gives: what is asked for outside of them is given as the nearest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TtlRange {
    /// The shortest.
    pub shortest: Duration,
    /// The longest.
    pub longest: Duration,
}

/// By how much a clock is ahead of another: between two bounds, since what came in between is the way there and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// At least by so many microseconds.
    pub least: i64,
    /// At most by so many.
    pub most: i64,
}

impl Ahead {
    /// By how much this clock is ahead of one that is itself ahead by `other` of the same third one.
    pub fn beside(self, other: Self) -> Self {
        Self { least: self.least.saturating_sub(other.most), most: self.most.saturating_sub(other.least) }
    }

    /// How far they are apart, in words that go before the other's name, where it is certain that this is a second or more:
    /// `2.000 s (to within 1.0 ms) ahead of`.
    pub fn apart(self) -> Option<String> {
        let Self { least, most } = self;
        let (way, certain) = if least > 0 { ("ahead of", least) } else { ("behind", most.saturating_neg()) };
        let certain = Duration::from_micros(u64::try_from(certain).ok()?);
        let by = Duration::from_micros(i64::midpoint(least, most).unsigned_abs()).as_secs_f64();
        let within = Duration::from_micros(most.abs_diff(least).div_ceil(2)).as_secs_f64() * 1_000.0;
        (certain >= APART_MOST).then(|| format!("{by:.3} s (to within {within:.1} ms) {way}"))
    }
}

/// Clocks that are kept by NTP are nearer.
const APART_MOST: Duration = Duration::from_secs(1);

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Serious => "serious",
        })
    }
}

impl Finding {
    /// Something that is seen, and worth knowing.
    pub fn note(about: impl fmt::Display, evidence: impl Into<String>) -> Self {
        Self::new(Severity::Note, about, evidence)
    }

    /// Something that is seen, and leaves less in hand.
    pub fn warning(about: impl fmt::Display, evidence: impl Into<String>) -> Self {
        Self::new(Severity::Warning, about, evidence)
    }

    /// Something that is seen, and by which a promise may fail.
    pub fn serious(about: impl fmt::Display, evidence: impl Into<String>) -> Self {
        Self::new(Severity::Serious, about, evidence)
    }

    /// What could not be looked at, and why.
    pub fn failed(about: impl fmt::Display, error: &Error, means: impl Into<String>) -> Self {
        let usual = match error.kind() {
            ErrorKind::Denied => "give a user and a password that are let in there, or grant what is missing",
            ErrorKind::InvalidArgument => "correct what the configuration says of it",
            ErrorKind::Unsupported => "use a server, or a way to it, that can do what is said",
            _ => "see that it runs, and that it can be reached from this host",
        };
        Self::serious(about, error.to_string()).means(means).remedy(error.advice().unwrap_or(usual))
    }

    /// What it means for locks and fences.
    pub fn means(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = consequence.into();
        self
    }

    /// What to change.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Something that is seen. What it means and what to do are added to it.
    pub fn new(severity: Severity, about: impl fmt::Display, evidence: impl Into<String>) -> Self {
        Self {
            severity,
            about: about.to_string(),
            evidence: evidence.into(),
            consequence: String::new(),
            remedy: String::new(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.evidence, self.consequence)
    }
}

impl Examination {
    /// What was found at these servers; the worst comes first, and the rest stays in its order.
    pub fn new(servers: Vec<String>, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self { servers, findings, ttl: None }
    }

    /// How bad the worst finding is.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

impl TtlRange {
    /// The length of lease that is given to whoever asks for `ttl`.
    pub fn given(&self, ttl: Duration) -> Duration {
        ttl.min(self.longest).max(self.shortest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_finding_comes_first_and_the_rest_stays_in_order() {
        let found = vec![
            Finding::note("a", "1"),
            Finding::serious("a", "2"),
            Finding::warning("a", "3"),
            Finding::serious("a", "4"),
        ];
        let examination = Examination::new(Vec::new(), found);
        let order: Vec<_> = examination.findings.iter().map(|finding| &*finding.evidence).collect();
        assert_eq!(order, ["2", "4", "3", "1"]);
        assert_eq!(examination.worst(), Some(Severity::Serious));
    }

    #[test]
    fn clocks_are_apart_only_where_that_is_certain() {
        let words = |(least, most)| Ahead { least, most }.apart();
        assert_eq!(words((1_999_000, 2_001_000)).as_deref(), Some("2.000 s (to within 1.0 ms) ahead of"));
        assert_eq!(words((-3_000_000, -2_000_000)).as_deref(), Some("2.500 s (to within 500.0 ms) behind"));
        for near in [(0, 0), (-900_000, 900_000), (-5_000_000, 5_000_000), (900_000, 9_000_000)] {
            assert_eq!(words(near), None, "{near:?}");
        }
    }

    #[test]
    fn ttl_outside_the_range_is_given_as_the_nearest() {
        let second = Duration::from_secs;
        let range = TtlRange { shortest: second(4), longest: second(40) };
        let given = [1, 4, 30, 99].map(|ttl| range.given(second(ttl)));
        assert_eq!(given, [4, 4, 30, 40].map(second));
    }
}
