//! A look at the members of an ensemble and how they are set up: what weakens the promises of a lock there.

use std::time::Duration;

use fencepost_core::{Examination, Finding, Result, Severity};
use fencepost_net::Address;
use futures_util::future::join_all;

use crate::ensemble::Ensemble;
use crate::nodes;
use crate::protocol::{Code, Request};
use crate::session::{garbled, lost_touch};
use crate::words::{Answer, ask};

/// Less than any server gives, to see what it gives instead.
const LEAST: Duration = Duration::from_millis(1);

/// What a member says of itself.
struct Member {
    address: Address,
    status: Answer,
    settings: Answer,
}

impl Member {
    fn shown(&self) -> Option<String> {
        let version = self.status.field("Zookeeper version")?;
        let version = version.split(['-', ',']).next().unwrap_or(version);
        let mode = self.status.field("Mode").unwrap_or("unknown");
        Some(format!("ZooKeeper {version} at {} ({mode})", self.address))
    }

    /// Whether it has no vote, as far as it says so.
    fn is_observer(&self) -> bool {
        self.status.field("Mode") == Some("observer")
    }

    fn milliseconds(&self, name: &str) -> Option<u64> {
        self.settings.field(name)?.parse().ok()
    }
}

/// Looks at the members that the URL names.
///
/// # Cancel safety
/// Dropping it changes nothing.
///
/// # Errors
/// `Unavailable` when no session can be had.
pub(crate) async fn examine(ensemble: &Ensemble) -> Result<Examination> {
    let endpoint = ensemble.endpoint();
    let transport = endpoint.transport().await?;
    let members = join_all(endpoint.addresses.iter().map(async |address| {
        let status = ask(ensemble.clock(), address, &transport, "srvr").await;
        let settings = ask(ensemble.clock(), address, &transport, "conf").await;
        Member { address: address.clone(), status, settings }
    }));
    let members = Box::pin(members).await;
    let mut findings: Vec<Finding> = members.iter().flat_map(of_member).collect();
    findings.extend(of_all(&members));
    findings.extend(of_limits(ensemble).await?);
    findings.extend(of_access(ensemble).await?);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(Examination::new(members.iter().filter_map(Member::shown).collect(), findings))
}

fn of_member(member: &Member) -> Vec<Finding> {
    let about = member.address.to_string();
    let mut findings = Vec::new();
    if let Answer::Unreached(why) = &member.status {
        findings.push(finding(
            Severity::Warning,
            &about,
            format!("it cannot be reached: {why}"),
            "one more member may be all that can fail before nothing is granted",
            "start it, or take it out of the URL",
        ));
    }
    if member.is_observer() {
        findings.push(finding(
            Severity::Warning,
            &about,
            "it is an observer (Mode: observer)".to_owned(),
            "behind an observer master a session may end before its holder knows: two servers pass on what was heard of it, and nothing \
             orders the two; and it helps no majority",
            "name the voters in the URL, and no observer",
        ));
    }
    if let (Some(tick), Some(least)) =
        (member.milliseconds("tickTime"), member.milliseconds("minSessionTimeout"))
        && least < tick * 2
    {
        findings.push(finding(
            Severity::Serious,
            &about,
            format!("minSessionTimeout is {least} ms, less than two ticks of {tick} ms"),
            "a session of fewer than two ticks may end before its holder knows; two could hold at once",
            "set minSessionTimeout to at least twice the tickTime, or ask for a ttl of at least two ticks",
        ));
    }
    if matches!((&member.status, &member.settings), (Answer::Text(_), Answer::Nothing)) {
        findings.push(finding(
            Severity::Note,
            &about,
            "it does not answer the word conf".to_owned(),
            "whether its tick fits its session limits was not seen",
            "4lw.commands.whitelist=srvr,conf",
        ));
    }
    findings
}

fn of_all(members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let about = "the ensemble";
    let count = members.iter().filter(|member| !member.is_observer()).count();
    if count > 1 && count.is_multiple_of(2) {
        let evidence = format!("the URL names {count} members that may vote");
        let what = "an even number bears the loss of no more members than one less";
        findings.push(finding(
            Severity::Note,
            about,
            evidence,
            what,
            "run an odd number of voters, and name all of them",
        ));
    }
    if members.iter().any(|member| member.status.field("Mode") == Some("standalone")) {
        findings.push(finding(
            Severity::Warning,
            about,
            "it is a single server (Mode: standalone)".to_owned(),
            "while it is down nothing is granted and every lease runs out",
            "run three members on three machines",
        ));
    }
    findings
}

/// What becomes of a ttl at the servers' limits.
async fn of_limits(ensemble: &Ensemble) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for asked in [LEAST, ensemble.endpoint().max_ttl] {
        let used = ensemble.session(asked);
        used.session.connection().await?;
        let granted = used.session.timeout();
        if asked == LEAST {
            findings.push(finding(
                Severity::Note,
                "session limits",
                format!("no session is shorter than {granted:?}"),
                "a shorter ttl becomes that one; a crashed holder keeps its lock so long",
                "minSessionTimeout; two ticks are the least that is safe",
            ));
        } else if granted < asked {
            findings.push(finding(
                Severity::Note,
                "session limits",
                format!("no session is longer than {granted:?}"),
                "a longer ttl becomes that one, and of it half is certain after a renewal",
                "raise maxSessionTimeout, or ask for less",
            ));
        }
    }
    Ok(findings)
}

/// Who can read, change and overhear what locks are made of.
async fn of_access(ensemble: &Ensemble) -> Result<Vec<Finding>> {
    let endpoint = ensemble.endpoint();
    let mut findings = Vec::new();
    let is_remote = endpoint.addresses.iter().any(|address| !is_local(address));
    if is_remote && endpoint.trust.is_none() {
        findings.push(finding(
            Severity::Warning,
            "the connection",
            "it is not encrypted, to another host".to_owned(),
            "whoever is on the way can read a login and change an answer",
            "?tls=on, with a secureClientPort on the servers",
        ));
    }
    let root = nodes::root(&endpoint.chroot);
    let used = ensemble.any_session();
    let connection = used.session.connection().await?;
    let answer = connection.call(&Request::access(&root)).await.map_err(|broken| lost_touch(&broken))?;
    let is_open = match answer.code {
        Code::OK => answer.access().map_err(garbled)?.iter().any(|(scheme, _)| scheme == "world"),
        // There is none yet.
        _ => endpoint.access == crate::protocol::Access::Open,
    };
    if is_open && (is_remote || endpoint.login.is_some()) {
        findings.push(finding(
            Severity::Warning,
            &root,
            "everybody who reaches the servers may change it (world:anyone)".to_owned(),
            "anybody can take a lease away, or stand in a queue for ever",
            "put a login into the URL before the first lock is taken, or change the ACL of the node",
        ));
    }
    Ok(findings)
}

fn is_local(address: &Address) -> bool {
    let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
    address.host == "localhost" || address.host.parse().is_ok_and(is_loopback)
}

fn finding(severity: Severity, about: &str, evidence: String, consequence: &str, remedy: &str) -> Finding {
    Finding::new(severity, about, evidence).means(consequence).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(mode: &str) -> Member {
        let address = Address { host: "zk".to_owned(), port: 2181 };
        let status = Answer::Text(format!("Zookeeper version: 3.8.0-1, built\nMode: {mode}\n"));
        Member { address, status, settings: Answer::Nothing }
    }

    #[test]
    fn observer_is_warned_of_and_is_no_voter() {
        let warned =
            |mode| of_member(&member(mode)).iter().any(|finding| finding.severity == Severity::Warning);
        assert!(warned("observer") && !warned("follower"));
        let even = |modes: &[&str]| {
            let members: Vec<Member> = modes.iter().map(|mode| member(mode)).collect();
            of_all(&members).iter().any(|finding| finding.evidence.contains("that may vote"))
        };
        assert!(!even(&["leader", "follower", "follower", "observer"]));
        assert!(even(&["leader", "follower", "follower", "follower"]));
    }
}
