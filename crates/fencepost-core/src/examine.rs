//! What a look at a store shows beside its locks: which server it is, and what in its set-up weakens a promise.

use serde::Serialize;

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
pub struct Examination {
    /// The servers and their versions, as found: `Redis 7.0.15 at cache:6379`; empty where there is no server.
    pub servers: Vec<String>,
    /// What should be known, the worst first.
    pub findings: Vec<Finding>,
}
