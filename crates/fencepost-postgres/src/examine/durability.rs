//! What the server still knows after a crash, and after a standby took over.

use fencepost_core::Finding;

use super::Purpose;
use super::facts::Facts;

pub(super) fn findings(facts: &Facts, purpose: Purpose<'_>) -> Vec<Finding> {
    let what = match purpose {
        Purpose::Locks(_) => "tokens may go back, and a fence accepts an older holder",
        Purpose::Marks => "marks may go back, and former holders are accepted",
    };
    [
        fsync(facts, what),
        full_pages(facts, what),
        commits(facts),
        standbys(facts, what),
        absent_standbys(facts),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn fsync(facts: &Facts, what: &str) -> Option<Finding> {
    (facts.setting("fsync") == "off").then(|| {
        Finding::serious(&facts.host, "fsync is off")
            .means(format!(
                "a crash of the machine may lose what was committed, and damage the database: {what}"
            ))
            .remedy("fsync = on in postgresql.conf, and reload")
    })
}

fn full_pages(facts: &Facts, what: &str) -> Option<Finding> {
    (facts.setting("full_page_writes") == "off").then(|| {
        Finding::serious(&facts.host, "full_page_writes is off")
            .means(format!("a crash of the machine may leave pages that are half old: {what}"))
            .remedy("full_page_writes = on in postgresql.conf, and reload")
    })
}

fn commits(facts: &Facts) -> Option<Finding> {
    (facts.setting("synchronous_commit") == "off").then(|| {
        let source = facts.source("synchronous_commit");
        Finding::warning(&facts.host, format!("synchronous_commit is off (set by: {source})"))
            .means("grants and marks are committed with `on` all the same; what the jobs themselves write may be lost by a crash after they were told that it is done")
            .remedy("synchronous_commit = on where that was set")
    })
}

fn standbys(facts: &Facts, what: &str) -> Option<Finding> {
    let count = facts.number("standbys").unwrap_or_default();
    (count > 0 && facts.setting("synchronous_standby_names").is_empty()).then(|| {
        let evidence = format!("{count} standbys follow it, and synchronous_standby_names is empty");
        Finding::warning(&facts.host, evidence)
            .means(format!("a standby that is promoted may lack the last commits: {what}, as far as the wall clock has gone back"))
            .remedy("synchronous_standby_names = 'ANY 1 (*)' in postgresql.conf, and reload")
    })
}

/// Every commit waits for a standby.
fn absent_standbys(facts: &Facts) -> Option<Finding> {
    let names = facts.setting("synchronous_standby_names");
    let count = facts.number("standbys").unwrap_or_default();
    (!names.is_empty() && count == 0 && !facts.is("is_standby")).then(|| {
        let evidence = format!("synchronous_standby_names is {names:?}, and no standby follows it");
        Finding::serious(&facts.host, evidence)
            .means(
                "every commit waits for one that is not there: no lock can be acquired and no token sealed",
            )
            .remedy("bring the standby back, or take it out of synchronous_standby_names and reload")
    })
}
