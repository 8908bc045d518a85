//! The replicas of a server: how many there are, how far behind, and what a failover to one would lose.

use std::collections::BTreeMap;

use fencepost_core::Finding;

use super::facts::Facts;
use crate::endpoint::Options;

pub(super) fn findings(facts: &Facts, options: &Options) -> Vec<Finding> {
    if facts.info("role") != "master" {
        return Vec::new();
    }
    let replicas = facts.replicas();
    let mut found: Vec<Finding> = replicas.iter().filter_map(|replica| behind(facts, replica)).collect();
    let online = replicas.iter().filter(|replica| is_current(replica)).count();
    found.extend(
        [wanted(facts, options, online), least(facts), split(facts, replicas.len())].into_iter().flatten(),
    );
    found
}

/// A replica answers each second.
const BEHIND_SECONDS: i64 = 3;

fn value<'a>(replica: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    replica.get(name).map(String::as_str).unwrap_or_default()
}

fn is_current(replica: &BTreeMap<String, String>) -> bool {
    let lag: i64 = value(replica, "lag").parse().unwrap_or_default();
    value(replica, "state") == "online" && lag < BEHIND_SECONDS
}

fn behind(facts: &Facts, replica: &BTreeMap<String, String>) -> Option<Finding> {
    if is_current(replica) {
        return None;
    }
    let (ip, port) = (value(replica, "ip"), value(replica, "port"));
    let (state, lag) = (value(replica, "state"), value(replica, "lag"));
    let offset: i64 = value(replica, "offset").parse().unwrap_or_default();
    let bytes = facts.number("master_repl_offset").unwrap_or_default().saturating_sub(offset).max(0);
    let evidence = format!(
        "its replica {ip}:{port} is {state}, was last heard {lag} s ago, and is {bytes} bytes behind"
    );
    Some(
        Finding::warning(&facts.address, evidence)
            .means("a failover to it forgets the last grants: nothing is granted for max_ttl then, and the last tokens and marks are lost")
            .remedy("see the replica's log and its network; promote another one"),
    )
}

/// What `replicas=N` of the URL asks for.
fn wanted(facts: &Facts, options: &Options, online: usize) -> Option<Finding> {
    let wanted = options.replicas as usize;
    (online < wanted).then(|| {
        Finding::serious(
            &facts.address,
            format!("{online} replicas follow it, and the URL says replicas={wanted}"),
        )
        .means("no lock can be acquired: a grant counts only when so many replicas have it")
        .remedy("bring the replicas back, or say fewer in the URL")
    })
}

/// What `min-replicas-to-write` asks for.
fn least(facts: &Facts) -> Option<Finding> {
    let least: i64 = facts.setting("min-replicas-to-write")?.parse().ok()?;
    let good = facts.number("min_slaves_good_slaves").unwrap_or_default();
    (least > good).then(|| {
        Finding::serious(
            &facts.address,
            format!("min-replicas-to-write is {least}, and {good} replicas are well"),
        )
        .means("it refuses all writes: no lock can be acquired or renewed")
        .remedy("bring the replicas back, or CONFIG SET min-replicas-to-write to fewer")
    })
}

/// An old primary that is cut off goes on, unless it needs a replica for that.
fn split(facts: &Facts, replicas: usize) -> Option<Finding> {
    let is_bounded = facts.setting("min-replicas-to-write").is_none_or(|least| least != "0");
    (replicas > 0 && !is_bounded).then(|| {
        Finding::warning(&facts.address, "it has replicas, and min-replicas-to-write is 0")
            .means("when one of them is promoted while this server is cut off, it goes on for those clients that still reach it: two may hold a lock then")
            .remedy("CONFIG SET min-replicas-to-write 1, and CONFIG SET min-replicas-max-lag 10, also on the replicas")
    })
}
