//! What a look at real members shows.

use std::time::Duration;

use fencepost_core::{Backend, ErrorKind, Examination, Severity};
use fencepost_testkit::servers::{EtcdCluster, EtcdServer, EtcdSetup};

use super::stage::{backend, block_on};

fn examine(url: &str) -> Examination {
    block_on(backend(url).examine()).unwrap()
}

/// The severity of the finding whose evidence holds this.
fn severity(found: &Examination, evidence: &str) -> Option<Severity> {
    let finding = found.findings.iter().find(|finding| finding.evidence.contains(evidence));
    finding.map(|finding| finding.severity)
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn version_and_what_it_lacks_are_named() {
    let server = EtcdServer::start();
    let found = examine(&server.url());
    let version = server.control(&["version"]);
    let version = version.lines().next().unwrap().rsplit(' ').next().unwrap();
    assert_eq!(found.servers, [format!("etcd {version} at {}", server.address())]);
    let is_old = version.starts_with("3.4.2");
    assert_eq!(severity(&found, "#16822"), is_old.then_some(Severity::Warning), "{found:?}");
    assert_eq!(severity(&found, "only member"), Some(Severity::Note));
    assert_eq!(severity(&found, "shortest lease"), None);
    assert_eq!(found.ttl.unwrap().shortest, Duration::from_secs(1));
    assert_eq!(found.findings.len(), 1 + usize::from(is_old), "{found:?}");
    assert!(found.findings.iter().all(|finding| !finding.remedy.is_empty()));
    assert_eq!(server.keys("/"), Vec::<String>::new(), "looking changed something");
    assert_eq!(server.control(&["lease", "list"]).lines().count(), 1, "looking left a lease");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn shortest_lease_and_alarms_are_told() {
    let slow = ["--heartbeat-interval", "200", "--election-timeout", "2000"];
    let server = EtcdSetup::default().arguments(&slow).arguments(&["--quota-backend-bytes", "65536"]).start();
    let found = examine(&server.url());
    assert_eq!(severity(&found, "shortest lease is 3s"), Some(Severity::Note), "{found:?}");
    assert_eq!(found.ttl.unwrap().given(Duration::from_secs(2)), Duration::from_secs(3));
    let much = "x".repeat(40_000);
    while server.try_control(&["put", "ballast", &much]).is_ok() {}
    let found = examine(&server.url());
    assert_eq!(severity(&found, "NOSPACE"), Some(Severity::Serious), "{found:?}");
    assert_eq!(found.findings[0].severity, Severity::Serious, "the worst comes first");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn members_that_are_away_and_a_majority_that_is_are_told() {
    let mut cluster = EtcdCluster::start();
    let one = format!("etcd://{}", cluster[0].address());
    assert_eq!(severity(&examine(&one), "names 1 of 3"), Some(Severity::Warning));
    cluster[1].stop();
    let found = examine(&cluster.url());
    assert_eq!(found.servers.len(), 2);
    assert_eq!(severity(&found, "has not answered"), Some(Severity::Serious), "{found:?}");
    let slack = found.findings.iter().find(|finding| finding.evidence.starts_with("2 of 3 members are left"));
    assert!(slack.unwrap().consequence.contains("no further member may fail"), "{found:?}");
    cluster[1].kill();
    cluster[2].kill();
    fencepost_testkit::servers::wait_until("the last member has no leader", || {
        let found = examine(&cluster.url());
        let slack =
            found.findings.iter().find(|finding| finding.evidence.starts_with("1 of 3 members are left"));
        assert!(slack.is_none_or(|slack| slack.severity == Severity::Serious));
        severity(&found, "it knows of no leader") == Some(Severity::Serious)
            && slack.is_some_and(|slack| slack.consequence.contains("no lock is granted"))
    });
    cluster[0].kill();
    let refused = block_on(backend(&cluster.url()).examine()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}
