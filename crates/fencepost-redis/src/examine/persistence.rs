//! What a server still knows after a crash.

use fencepost_core::{Finding, Severity};

use super::facts::Facts;
use crate::endpoint::Options;

pub(super) fn findings(facts: &Facts, options: &Options) -> Vec<Finding> {
    [kept(facts, options), failing(facts)].into_iter().flatten().collect()
}

/// What is lost by a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Everything.
    All,
    /// What was written since the last snapshot.
    SinceTheSnapshot,
    /// At best what was written since the last snapshot: whether it makes any is not told.
    SinceAnySnapshot,
    /// About a second.
    ASecond,
    /// Perhaps about a second: it is not told.
    PerhapsASecond,
}

fn lost(facts: &Facts) -> Option<(Lost, String)> {
    let is_logged = facts.info("aof_enabled") == "1" || facts.setting("appendonly") == Some("yes");
    match (is_logged, facts.setting("appendfsync"), facts.setting("save")) {
        (true, Some(often @ ("everysec" | "no")), _) => {
            Some((Lost::ASecond, format!("appendonly is yes, and appendfsync is {often}")))
        }
        (true, Some(_), _) => None,
        (true, None, _) => {
            Some((Lost::PerhapsASecond, "aof_enabled is 1, and appendfsync is not told".to_owned()))
        }
        (false, _, Some("")) => Some((Lost::All, "save is empty, and appendonly is no".to_owned())),
        (false, _, Some(save)) => {
            Some((Lost::SinceTheSnapshot, format!("appendonly is no, and save is {save:?}")))
        }
        // Where not even this is told, that is a finding of its own.
        (false, _, None) => {
            (facts.info("aof_enabled") == "0").then(|| (Lost::SinceAnySnapshot, unsaved(facts)))
        }
    }
}

/// What `INFO` tells of snapshots where the setting is not told.
fn unsaved(facts: &Facts) -> String {
    let told = ["rdb_saves", "rdb_changes_since_last_save"].map(|field| (field, facts.number(field)));
    let told = told.into_iter().filter_map(|(field, value)| Some(format!(", {field} is {}", value?)));
    format!("aof_enabled is 0, and save is not told{}", told.collect::<String>())
}

fn kept(facts: &Facts, options: &Options) -> Option<Finding> {
    let (lost, evidence) = lost(facts)?;
    let what = match lost {
        Lost::All => "a restart forgets everything",
        Lost::SinceTheSnapshot => "a crash forgets what was written since the last snapshot",
        Lost::SinceAnySnapshot => {
            "a crash forgets what was written since the last snapshot, or everything where it makes none"
        }
        Lost::ASecond => "a crash forgets about the last second",
        Lost::PerhapsASecond => "unless that is always, a crash forgets about the last second",
    };
    let (severity, means) = if options.is_fence {
        let severity = if lost == Lost::All { Severity::Serious } else { Severity::Warning };
        (severity, format!("{what}, marks with it: former holders are accepted then"))
    } else {
        let severity = if lost == Lost::All { Severity::Warning } else { Severity::Note };
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
        Lost::PerhapsASecond => "see that appendfsync is always where the server is managed",
        Lost::SinceAnySnapshot => {
            "set appendonly to yes, and appendfsync to always, where the server is managed"
        }
        Lost::All | Lost::SinceTheSnapshot => "CONFIG SET appendonly yes, and the same in redis.conf",
    };
    let finding = Finding::new(severity, &facts.address, evidence).means(means).remedy(remedy);
    // For a lock it is nothing to act upon, and that the settings are not told is said.
    (options.is_fence || lost != Lost::PerhapsASecond).then_some(finding)
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
