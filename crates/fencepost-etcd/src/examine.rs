//! A look at the members and how they are set up: what of it weakens a promise, and what to change.
//!
//! What is found is judged by pure functions, so that versions and clusters that no test can start are judged as well.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use fencepost_core::{Error, Examination, Finding, Result, Severity, TtlRange};
use futures_util::future::join_all;

use crate::failure::Failure;
use crate::generated::alarm_member::AlarmType;
use crate::generated::{
    AlarmMember, AlarmRequest, AlarmResponse, MemberListRequest, MemberListResponse, StatusRequest,
    StatusResponse,
};
use crate::grpc::framed;
use crate::members::{Failed, Members};
use crate::server::{ONCE, Server};
use crate::session;

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";

/// How long one member may take to tell of itself.
const MEMBER_MOST: Duration = Duration::from_secs(2);

/// Looks at all members that the URL names.
///
/// # Cancel safety
/// Dropping it leaves a lease without keys at most, which ends by itself.
pub(crate) async fn examine(server: &Server) -> Result<Examination> {
    let members = server.members();
    let asked = (0..members.count()).map(|index| {
        members.ask_one::<StatusResponse>(index, STATUS, framed(&StatusRequest {}), MEMBER_MOST)
    });
    let statuses = join_all(asked).await;
    if statuses.iter().all(Result::is_err) {
        return Err(first_error(statuses));
    }
    let mut found = Examination::default();
    for (index, status) in statuses.iter().enumerate() {
        let at = members.address(index);
        match status {
            Ok(status) => {
                found.servers.push(format!("etcd {} at {at}", status.version));
                found.findings.extend(of_member(&at, status));
            }
            Err(failure) => found.findings.push(is_away(&at, failure)),
        }
    }
    found.findings.extend(of_ways(members));
    let has_leader = statuses.iter().flatten().any(|status| status.leader != 0);
    let told = if has_leader { of_cluster(server).await } else { Told::default() };
    let away = statuses.iter().filter(|status| status.is_err()).count();
    let voting = told.voting.unwrap_or(members.count());
    found.findings.extend(slack(&members.address(0), voting, away, has_leader));
    if !told.tells_alarms {
        let alarms = statuses.iter().flatten().flat_map(|status| &status.errors);
        let alarms: BTreeSet<&str> = alarms.map(|alarm| alarm.trim()).collect();
        found.findings.extend(alarms.into_iter().filter_map(|alarm| alarmed_by(&members.address(0), alarm)));
    }
    found.findings.extend(told.findings);
    found.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found.ttl = told.shortest.map(|shortest| TtlRange { shortest, longest: LONGEST });
    Ok(found)
}

/// The longest lease that etcd gives, nine thousand million seconds: `MaxLeaseTTL`.
const LONGEST: Duration = Duration::from_hours(2_500_000);

fn first_error(statuses: Vec<Result<StatusResponse, Failure>>) -> Error {
    let failure = statuses.into_iter().find_map(Result::err);
    let failure = failure.unwrap_or_else(|| Failure::Unsent("no member is named".to_owned()));
    failure.error().during("look at etcd")
}

/// What only a cluster with a majority tells of.
#[derive(Default)]
struct Told {
    findings: Vec<Finding>,
    tells_alarms: bool,
    /// How many members it has, but for learners.
    voting: Option<usize>,
    shortest: Option<Duration>,
}

async fn of_cluster(server: &Server) -> Told {
    let members = server.members();
    let at = members.address(0);
    let mut told = Told::default();
    let alarms = members.call::<AlarmResponse>(ALARM, || framed(&AlarmRequest::default()), ONCE).await;
    match alarms {
        Ok(answer) => {
            told.tells_alarms = true;
            told.findings.extend(answer.message.alarms.iter().filter_map(|alarm| alarmed(&at, alarm)));
        }
        Err(failed) => told.findings.push(untold(&at, "its alarms", failed)),
    }
    let listed = members.call::<MemberListResponse>(MEMBERS, || framed(&MemberListRequest {}), ONCE).await;
    match listed {
        Ok(answer) => {
            let voting = answer.message.members.iter().filter(|member| !member.is_learner).count();
            told.findings.extend(of_count(&at, voting, members.count()));
            told.voting = Some(voting);
        }
        Err(failed) => told.findings.push(untold(&at, "its members", failed)),
    }
    match shortest_ttl(server).await {
        Ok(ttl) => {
            told.findings.extend((ttl > Duration::from_secs(1)).then(|| raised(&at, ttl)));
            told.shortest = Some(ttl);
        }
        Err(failed) => told.findings.push(untold(&at, "its shortest lease", failed)),
    }
    told.findings.extend(is_open_to_all(server).await.then(|| open_to_all(members)).flatten());
    told
}

/// What the server makes of a ttl of one second: no other question tells.
async fn shortest_ttl(server: &Server) -> Result<Duration, Failed> {
    let granted = session::grant(server, 1, ONCE).await?;
    // It ends by itself otherwise.
    drop(session::end(server, granted.id, ONCE).await);
    Ok(granted.ttl)
}

/// Whether it lets in whoever comes.
async fn is_open_to_all(server: &Server) -> bool {
    // Without a login it has answered; with one it has been asked for none.
    server.members().is_without_login() && server.learn_offset(ONCE).await.is_ok()
}

fn of_member(at: &str, status: &StatusResponse) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !has_lease_fix(&status.version) {
        findings.push(finding(
            Severity::Warning,
            at,
            format!("etcd {} lacks the fix #16822", status.version),
            "a member that was stalled while it led may end leases that are renewed elsewhere: the lock is then taken away early, \
             and its holder is told within a moment; only a fence refuses what it writes until then",
            "update to 3.4.31, 3.5.13, 3.6.0 or later",
        ));
    }
    findings.extend(nearly_full(at, status.db_size, status.db_size_quota));
    if status.leader == 0 {
        findings.push(finding(
            Severity::Serious,
            at,
            "it knows of no leader".to_owned(),
            "without a majority no lock is granted or renewed",
            "start the other members, or repair the network between them",
        ));
    }
    if status.is_learner {
        findings.push(finding(
            Severity::Warning,
            at,
            "it is a learner".to_owned(),
            "it answers nothing that a lock needs, and every request that goes there is repeated elsewhere",
            "promote it: etcdctl member promote; or leave it out of the URL",
        ));
    }
    findings
}

/// The first version of each line in which only the leader ends leases: <https://github.com/etcd-io/etcd/pull/16822>, which 3.6 has
/// from its beginning; to 3.4 it came by <https://github.com/etcd-io/etcd/pull/17465>.
const LEASE_FIX: [[u32; 3]; 3] = [[3, 4, 31], [3, 5, 13], [3, 6, 0]];

/// Whether a version has it. One that cannot be read has not.
fn has_lease_fix(version: &str) -> bool {
    let numbers = version.split(['-', '+']).next().unwrap_or_default().split('.');
    let numbers: Vec<u32> = numbers.map_while(|number| number.parse().ok()).collect();
    let Ok(version) = <[u32; 3]>::try_from(numbers) else { return false };
    let of_line = LEASE_FIX.iter().find(|fixed| fixed[..2] == version[..2]);
    version >= *of_line.unwrap_or(&LEASE_FIX[2])
}

/// Whether it soon writes nothing any more. Before 3.6 it does not tell its quota.
fn nearly_full(at: &str, size: i64, quota: i64) -> Option<Finding> {
    (quota > 0 && size / 9 >= quota / 10).then(|| {
        finding(
            Severity::Warning,
            at,
            format!("its database has {size} bytes, and its quota is {quota}"),
            "when it is full nothing is written any more, so no lock is granted",
            "compact and defragment it, or raise --quota-backend-bytes",
        )
    })
}

fn is_away(at: &str, failure: &Failure) -> Finding {
    Finding::failed(at, &failure.clone().error(), "one member fewer can fail beside it")
}

/// How many more may fail. What members do that the URL does not name is not seen.
fn slack(at: &str, voting: usize, away: usize, has_leader: bool) -> Option<Finding> {
    let majority = voting / 2 + 1;
    let left = voting.saturating_sub(away);
    if away == 0 && has_leader {
        return None;
    }
    let means = match left.checked_sub(majority).filter(|_| has_leader) {
        None => "no lock is granted or renewed, and every lease is lost at its deadline".to_owned(),
        Some(0) => "no further member may fail: the next failure takes every lease".to_owned(),
        Some(slack) => format!("{slack} more may fail"),
    };
    let leader = if has_leader { "" } else { ", and none of them knows of a leader" };
    Some(finding(
        Severity::Serious,
        at,
        format!("{left} of {voting} members are left, and {majority} are a majority{leader}"),
        &means,
        "bring the missing members back, or repair the network between them",
    ))
}

/// What lies open on the way there.
fn of_ways(members: &Members) -> Vec<Finding> {
    if members.endpoint().trust.is_some() {
        return Vec::new();
    }
    let far = members.endpoint().addresses.iter().filter(|address| !is_near(&address.host));
    far.map(|address| {
        finding(
            Severity::Warning,
            &address.to_string(),
            "the connection is not encrypted".to_owned(),
            "whoever is on the way can read the login and change who holds a lock",
            "serve clients by TLS (--cert-file, --key-file) and write etcds:// with ca=FILE",
        )
    })
    .collect()
}

fn open_to_all(members: &Members) -> Option<Finding> {
    // Whoever shows a certificate is most likely asked for one.
    if members.endpoint().trust.as_ref().is_some_and(|trust| trust.identity.is_some()) {
        return None;
    }
    let far = members.endpoint().addresses.iter().find(|address| !is_near(&address.host))?;
    Some(finding(
        Severity::Warning,
        &far.to_string(),
        "it asks nobody for a login".to_owned(),
        "whoever reaches it can take any lock away",
        "make users and roles, and run: etcdctl auth enable; or let TLS ask for certificates (--client-cert-auth)",
    ))
}

fn is_near(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// An alarm as the status of a member has it: `memberID:10276657743932975437 alarm:NOSPACE`.
fn alarmed_by(at: &str, told: &str) -> Option<Finding> {
    let (member, alarm) = told.strip_prefix("memberID:")?.split_once(" alarm:")?;
    let alarm = AlarmType::from_str_name(alarm.trim())?.into();
    alarmed(at, &AlarmMember { member_id: member.parse().ok()?, alarm })
}

fn alarmed(at: &str, alarm: &AlarmMember) -> Option<Finding> {
    let member = alarm.member_id;
    match alarm.alarm() {
        AlarmType::None => None,
        AlarmType::Nospace => Some(finding(
            Severity::Serious,
            at,
            format!("the alarm NOSPACE of member {member:x}"),
            "nothing is written any more, so no lock is granted",
            "compact and defragment it, or raise --quota-backend-bytes; then: etcdctl alarm disarm",
        )),
        AlarmType::Corrupt => Some(finding(
            Severity::Serious,
            at,
            format!("the alarm CORRUPT of member {member:x}"),
            "members tell different things, so two may hold one lock",
            "replace the member whose data differ: etcdctl member remove, and add it anew with empty data",
        )),
    }
}

/// How many failures the cluster bears, and whether the URL knows all members.
fn of_count(at: &str, voting: usize, named: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    if voting == 1 {
        findings.push(finding(
            Severity::Note,
            at,
            "it is the only member".to_owned(),
            "while it is down no lock is granted or renewed",
            "run three members on three hosts where that matters",
        ));
    } else if voting.is_multiple_of(2) {
        findings.push(finding(
            Severity::Note,
            at,
            format!("it has {voting} members, an even number"),
            "it bears no more failures than with one member less, and a failure is likelier",
            "run an odd number of members: etcdctl member add, or remove",
        ));
    }
    if named < voting {
        findings.push(finding(
            Severity::Warning,
            at,
            format!("the URL names {named} of {voting} members"),
            "locks are lost when those fail, although the others are a majority",
            "name all members in the URL: etcd://h1,h2,h3",
        ));
    }
    findings
}

fn raised(at: &str, ttl: Duration) -> Finding {
    finding(
        Severity::Note,
        at,
        format!("its shortest lease is {ttl:?}: one and a half times its election timeout"),
        "a shorter ttl is raised to that; the lock of a holder that is gone stays taken so long",
        "ask for a ttl that is not shorter, or lower --election-timeout on all members",
    )
}

fn untold(at: &str, what: &str, failed: Failed) -> Finding {
    finding(
        Severity::Note,
        at,
        format!("it does not tell {what}: {}", failed.error()),
        "what is wrong there is not seen here",
        "look at it as a user who may: etcdctl endpoint status, etcdctl alarm list",
    )
}

fn finding(severity: Severity, about: &str, evidence: String, consequence: &str, remedy: &str) -> Finding {
    Finding::new(severity, about, evidence).means(consequence).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_and_without_the_fix_are_told_apart() {
        for (version, has) in [
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.5.13-rc.0", true),
            ("3.6.0", true),
            ("3.10.1", true),
            ("4.0.0", true),
            ("3.3.27", false),
            ("3.4", false),
            ("unknown", false),
        ] {
            assert_eq!(has_lease_fix(version), has, "{version}");
        }
    }

    #[test]
    fn clusters_that_bear_little_are_named() {
        let seen = |voting, named| -> Vec<String> {
            of_count("h", voting, named).into_iter().map(|finding| finding.evidence).collect()
        };
        assert!(seen(3, 3).is_empty());
        assert_eq!(seen(1, 1), ["it is the only member"]);
        assert_eq!(seen(4, 4), ["it has 4 members, an even number"]);
        assert_eq!(seen(3, 1), ["the URL names 1 of 3 members"]);
    }

    #[test]
    fn alarms_are_serious() {
        for alarm in [AlarmType::Nospace, AlarmType::Corrupt] {
            let seen = alarmed("h", &AlarmMember { member_id: 10, alarm: alarm.into() }).unwrap();
            assert_eq!(seen.severity, Severity::Serious);
            assert!(seen.evidence.ends_with("of member a"), "{seen:?}");
        }
        assert_eq!(alarmed("h", &AlarmMember::default()), None);
        let told = alarmed_by("h", "memberID:10 alarm:NOSPACE").unwrap();
        assert_eq!(told.evidence, "the alarm NOSPACE of member a");
        assert_eq!(alarmed_by("h", "etcdserver: no leader"), None);
    }

    #[test]
    fn members_that_are_away_are_counted_against_the_majority() {
        let means = |voting, away, has_leader| {
            slack("h", voting, away, has_leader).map(|finding| finding.consequence).unwrap_or_default()
        };
        assert_eq!(means(3, 0, true), "");
        assert!(means(3, 1, true).starts_with("no further member may fail"));
        assert_eq!(means(5, 1, true), "1 more may fail");
        assert!(means(3, 2, false).starts_with("no lock is granted"));
        assert!(means(3, 0, false).starts_with("no lock is granted"));
    }

    #[test]
    fn database_near_its_quota_is_found() {
        assert!(nearly_full("h", 95, 100).is_some());
        assert_eq!(nearly_full("h", 80, 100), None);
        assert_eq!(nearly_full("h", 80, 0), None, "it does not tell");
    }

    #[test]
    fn only_what_is_far_is_exposed() {
        for (host, near) in
            [("localhost", true), ("127.0.0.1", true), ("::1", true), ("10.0.0.1", false), ("e1", false)]
        {
            assert_eq!(is_near(host), near, "{host}");
        }
    }
}
