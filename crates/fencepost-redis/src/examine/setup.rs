//! What a server is, who may do what there, and what it does when its memory is full.

use std::fmt;

use fencepost_core::Finding;

use super::facts::Facts;
use crate::endpoint::Options;

/// What is wrong with the server as such.
pub(super) fn findings(facts: &Facts, options: &Options) -> Vec<Finding> {
    let found = [
        refusal(facts),
        version(facts),
        cluster(facts),
        role(facts),
        rights(facts),
        settings(facts),
        eviction(&facts.address, options.is_fence, |field| facts.info(field)),
        memory(facts),
        lasting(facts),
        encryption(facts),
    ];
    found.into_iter().flatten().collect()
}

/// That it answers, and refuses what everybody may ask.
fn refusal(facts: &Facts) -> Option<Finding> {
    let means = "no lock can be acquired or renewed there, and no mark raised, as long as that lasts";
    if facts.info("loading") == "1" {
        let (percent, left) = (facts.info("loading_loaded_perc"), facts.info("loading_eta_seconds"));
        let evidence = format!("it loads its data: {percent} % are there, and {left} s are left");
        return Some(
            Finding::serious(&facts.address, evidence).means(means).remedy("wait until it has them"),
        );
    }
    let error = facts.refusal.as_ref()?;
    let remedy = match error.to_string() {
        what if what.contains("BUSY") => "end the script that keeps it busy: SCRIPT KILL, or FUNCTION KILL",
        what if what.contains("MASTERDOWN") => "repair the way to its primary, or promote it",
        _ => "see what it says, and its log",
    };
    Some(Finding::serious(&facts.address, error.to_string()).means(means).remedy(remedy))
}

fn version(facts: &Facts) -> Option<Finding> {
    let version = facts.info("redis_version");
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (major < 7).then(|| {
        Finding::serious(&facts.address, format!("its version is {version}"))
            .means("it is refused: the scripts need what came with Redis 7.0")
            .remedy("use Redis 7.0 or newer")
    })
}

fn cluster(facts: &Facts) -> Option<Finding> {
    (facts.info("cluster_enabled") == "1").then(|| {
        Finding::serious(&facts.address, "cluster_enabled is 1")
            .means("it is refused: a Redis Cluster gives acknowledged writes up when it fails over")
            .remedy("use a Redis that stands alone, or redlock:// on several of them")
    })
}

fn role(facts: &Facts) -> Option<Finding> {
    (facts.info("role") == "slave").then(|| {
        let primary = format!("{}:{}", facts.info("master_host"), facts.info("master_port"));
        Finding::serious(&facts.address, format!("it is a replica of {primary}"))
            .means("nothing can be acquired or sealed there: only a primary takes writes")
            .remedy(format!("name the primary, redis://{primary}, or let sentinels say who it is: redis+sentinel://s1,s2,s3/NAME"))
    })
}

fn rights(facts: &Facts) -> Option<Finding> {
    if facts.forbidden.is_empty() {
        return None;
    }
    let evidence = format!("the user {} may not run {}", facts.user, facts.forbidden.join(", "));
    let remedy = format!(
        "ACL SETUSER {} +@scripting +@read +@write +@pubsub +@connection +info +time +scan ~fencepost:* &fencepost:*",
        facts.user
    );
    Some(
        Finding::serious(&facts.address, evidence)
            .means("a script that needs it is refused in its middle: locks cannot be acquired, given back or waited for")
            .remedy(remedy),
    )
}

fn settings(facts: &Facts) -> Option<Finding> {
    (!facts.tells_settings()).then(|| {
        Finding::note(&facts.address, format!("the user {} may not run CONFIG GET", facts.user))
            .means("save, appendfsync and min-replicas-to-write are not known; the rest is what INFO tells")
            .remedy(format!("look at them yourself, or ACL SETUSER {} +config|get", facts.user))
    })
}

/// What its `maxmemory-policy` may drop. `info` looks up a field of `INFO`.
pub(super) fn eviction<'a>(
    about: impl fmt::Display,
    is_fence: bool,
    info: impl Fn(&str) -> &'a str,
) -> Option<Finding> {
    let policy = info("maxmemory_policy");
    // The others drop only what has an expiry, and a mark has none.
    let is_harmless = if is_fence { !policy.starts_with("allkeys-") } else { policy == "noeviction" };
    if is_harmless || policy.is_empty() {
        return None;
    }
    let (what, means) = if is_fence {
        ("marks", "former holders are accepted then")
    } else {
        ("locks and their tokens", "two may hold a lock then")
    };
    let most = info("maxmemory_human");
    let found = if info("maxmemory") == "0" {
        Finding::note(about, format!("maxmemory-policy is {policy}, and maxmemory is not set"))
            .means(format!("it drops nothing now; with a maxmemory it may drop {what}"))
    } else {
        Finding::serious(about, format!("maxmemory-policy is {policy}, and maxmemory is {most}"))
            .means(format!("it may drop {what} when its memory is full: {means}"))
    };
    Some(found.remedy("CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"))
}

fn memory(facts: &Facts) -> Option<Finding> {
    let (used, most) = (facts.number("used_memory")?, facts.number("maxmemory")?);
    if most == 0 || used / 9 < most / 10 {
        return None;
    }
    let evidence =
        format!("it uses {} of maxmemory {}", facts.info("used_memory_human"), facts.info("maxmemory_human"));
    Some(
        Finding::warning(&facts.address, evidence)
            .means("when it is full, locks can be neither acquired nor renewed, and marks not raised")
            .remedy("CONFIG SET maxmemory to more, or keep other data elsewhere"),
    )
}

fn lasting(facts: &Facts) -> Option<Finding> {
    let first = facts.lasting.first()?;
    let evidence = match facts.lasting.len() {
        1 => format!("the key {first} has no expiry"),
        count => format!("{first} and {} other keys of locks have no expiry", count - 1),
    };
    Some(
        Finding::serious(&facts.address, evidence)
            .means("fencepost writes none such: somebody has taken the expiry away, and what it stands for lasts for ever")
            .remedy(format!("see that nobody holds the lock (fencepost status), then DEL {first}")),
    )
}

fn encryption(facts: &Facts) -> Option<Finding> {
    let host = facts.address.host.as_str();
    let is_near = host == "localhost" || host.starts_with("127.") || host == "::1";
    (facts.has_password && !facts.is_tls && !is_near).then(|| {
        Finding::warning(&facts.address, "a password goes there without TLS")
            .means("whoever listens on the network can read it, and then take or revoke any lock")
            .remedy("serve TLS there, and write rediss:// (or rediss+sentinel://)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_is_too_old_is_found() {
        assert!(version(&Facts::at("h", &[("redis_version", "6.2.14")])).is_some());
        assert_eq!(version(&Facts::at("h", &[("redis_version", "7.0.0")])), None);
        assert_eq!(version(&Facts::at("h", &[("redis_version", "10.1.0")])), None);
    }

    #[test]
    fn server_that_still_loads_its_data_is_serious() {
        let loading = Facts::at(
            "h",
            &[("loading", "1"), ("loading_loaded_perc", "12.5"), ("loading_eta_seconds", "9")],
        );
        let evidence = refusal(&loading).unwrap().evidence;
        assert_eq!(evidence, "it loads its data: 12.5 % are there, and 9 s are left");
        assert_eq!(refusal(&Facts::at("h", &[("loading", "0")])), None);
    }

    #[test]
    fn password_that_goes_over_the_network_in_the_open_is_found() {
        let mut far = Facts::at("cache", &[]);
        assert!(encryption(&far).is_some());
        far.is_tls = true;
        assert_eq!(encryption(&far), None);
        (far.is_tls, far.has_password) = (false, false);
        assert_eq!(encryption(&far), None);
        for near in ["localhost", "127.0.0.1", "::1"] {
            assert_eq!(encryption(&Facts::at(near, &[])), None);
        }
    }
}
