//! Whether the server grants nothing for a while, or would when it is next asked.

use std::time::Duration;

use fencepost_core::Finding;

use super::facts::Facts;
use crate::endpoint::Options;

pub(super) fn findings(facts: &Facts, options: &Options) -> Vec<Finding> {
    if !options.has_quarantine {
        return vec![off(facts)];
    }
    [present(facts, options), longer(facts, options)].into_iter().flatten().collect()
}

fn off(facts: &Facts) -> Finding {
    Finding::warning(&facts.address, "the URL says quarantine=off")
        .means(
            "after a restart or a failover it grants at once, and two may hold a lock that it has forgotten",
        )
        .remedy("leave quarantine=off out of the URL, but for tests")
}

/// How long nothing is granted after a loss of data, as `learn.lua` reckons.
fn length_ms(facts: &Facts, options: &Options) -> u64 {
    let own = u64::try_from(options.max_ttl.as_millis()).unwrap_or(u64::MAX);
    let longest = own.max(facts.longest_ttl_ms.unwrap_or_default());
    longest.saturating_add(longest / 1_000).saturating_add(50)
}

fn present(facts: &Facts, options: &Options) -> Option<Finding> {
    if !facts.tells_incarnation || facts.info("run_id").is_empty() {
        return None;
    }
    let length = Duration::from_millis(length_ms(facts, options)).as_secs_f64();
    let Some(record) = &facts.incarnation else {
        let up = facts.number("uptime_in_seconds").and_then(|up| u64::try_from(up).ok())?;
        let evidence = format!("it was started {up} s ago, and knows of no lock");
        let is_young = options.is_node || up.saturating_mul(1_000) < length_ms(facts, options);
        let found = || Finding::note(&facts.address, evidence);
        return is_young.then(|| {
            found()
                .means(format!("the first acquisition there waits for {length:.1} s: it may have lost what others still hold"))
                .remedy("acquire a lock there once before it matters")
        });
    };
    let mut fields = record.split('|');
    let (id, ready) = (fields.next()?, fields.next()?.parse::<i64>().ok()?);
    if id != facts.info("run_id") {
        let evidence = "it is another server than the one that granted the last lock: restarted, or promoted";
        return Some(
            Finding::warning(&facts.address, evidence)
                .means(format!(
                    "the next acquisition begins a quarantine: nothing is granted for {length:.1} s"
                ))
                .remedy("nothing, or acquire a lock there once before it matters"),
        );
    }
    let why = fields.nth(1).unwrap_or_default();
    let left = Duration::from_millis(u64::try_from(ready - facts.now_ms).ok()?).as_secs_f64();
    (left > 0.0).then(|| {
        Finding::warning(&facts.address, format!("it is in quarantine for {left:.1} s more: {why}"))
            .means("it grants nothing until every lease that it may have forgotten is over")
            .remedy("wait")
    })
}

/// Whether others use a longer one.
fn longer(facts: &Facts, options: &Options) -> Option<Finding> {
    let longest = Duration::from_millis(facts.longest_ttl_ms?);
    (longest > options.max_ttl).then(|| {
        let evidence = format!("a client has used max_ttl={longest:?} there, and this URL says {:?}", options.max_ttl);
        Finding::note(&facts.address, evidence)
            .means("a quarantine lasts for the longest; it is forgotten with the data, and the next one may be too short")
            .remedy("use one max_ttl in all URLs of a server")
    })
}
