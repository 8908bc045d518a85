//! What a server still knows after a crash.

use fencepost_core::{Finding, Severity};

use super::facts::Facts;
use crate::endpoint::Options;

pub(super) fn findings(facts: &Facts, options: &Options) -> Vec<Finding> {
    [kept(facts, options), failing(facts)].into_iter().flatten().collect()
}

/// What is lost by a crash.
enum Lost {
    /// Everything.
    All,
    /// What was written since the last snapshot.
    SinceTheSnapshot,
    /// About a second.
    ASecond,
}

fn lost(facts: &Facts) -> Option<(Lost, String)> {
    if facts.info("aof_enabled") == "1" || facts.setting("appendonly") == Some("yes") {
        let often = facts.setting("appendfsync").unwrap_or_default();
        let is_behind = matches!(often, "everysec" | "no");
        return is_behind.then(|| (Lost::ASecond, format!("appendonly is yes, and appendfsync is {often}")));
    }
    match facts.setting("save") {
        Some("") => Some((Lost::All, "save is empty, and appendonly is no".to_owned())),
        Some(save) => Some((Lost::SinceTheSnapshot, format!("appendonly is no, and save is {save:?}"))),
        // That it does not tell its settings is a finding of its own.
        None => None,
    }
}

fn kept(facts: &Facts, options: &Options) -> Option<Finding> {
    let (lost, evidence) = lost(facts)?;
    let what = match lost {
        Lost::All => "a restart forgets everything",
        Lost::SinceTheSnapshot => "a crash forgets what was written since the last snapshot",
        Lost::ASecond => "a crash forgets about the last second",
    };
    let (severity, means) = if options.is_fence {
        let severity = if matches!(lost, Lost::All) { Severity::Serious } else { Severity::Warning };
        (severity, format!("{what}, marks with it: former holders are accepted then"))
    } else {
        let severity = if matches!(lost, Lost::All) { Severity::Warning } else { Severity::Note };
        let tokens = if options.is_node {
            "the node then gets the floor of its tokens from the others"
        } else {
            "tokens grow on as long as the wall clock has not gone back"
        };
        (severity, format!("{what}: nothing is granted for max_ttl then, and {tokens}"))
    };
    let remedy = match lost {
        Lost::ASecond => {
            "CONFIG SET appendfsync always, where a write to the disk for each grant is no burden"
        }
        _ => "CONFIG SET appendonly yes, and the same in redis.conf",
    };
    Some(Finding::new(severity, &facts.address, evidence).means(means).remedy(remedy))
}

/// A server that could not write its data refuses all writes until it can again.
fn failing(facts: &Facts) -> Option<Finding> {
    let stops = facts.setting("stop-writes-on-bgsave-error").is_none_or(|stops| stops == "yes");
    let field = ["aof_last_write_status", "rdb_last_bgsave_status"].into_iter().find(|field| {
        let is_bad = facts.info(field) == "err";
        is_bad && (stops || field.starts_with("aof"))
    })?;
    Some(
        Finding::serious(&facts.address, format!("{field} is err"))
            .means("it could not write its data to its disk and refuses all writes: no lock can be acquired or renewed")
            .remedy("see its log; make room on its disk"),
    )
}
