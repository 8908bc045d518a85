//! What is wrong with the nodes of a quorum is found, and what the quorum costs is as its profile says.

use std::time::Duration;

use fencepost_core::{Backend, Clock, Examination, Finding, Severity};
use fencepost_redis::redlock::{PROFILE, RedlockBackend};
use fencepost_testkit::block_on;
use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::RedisServer;

use super::nodes::{AT_ONCE, Nodes, locks, url_of};

fn examined(url: &str) -> Examination {
    let url = url.parse().expect("a test writes a URL");
    let backend = RedlockBackend::from_url(&url, Clock::system()).expect("the URL names nodes");
    block_on(backend.examine()).expect("what is away is a finding")
}

#[track_caller]
fn found<'a>(examination: &'a Examination, severity: Severity, evidence: &str) -> &'a Finding {
    let finding = examination.findings.iter().find(|finding| finding.evidence.contains(evidence));
    let finding = finding.unwrap_or_else(|| panic!("{evidence:?} in {examination:#?}"));
    assert_eq!(finding.severity, severity, "{finding:?}");
    finding
}

/// Three addresses of this host, each with a node: in a test no others are at hand.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nodes_that_are_well_have_no_finding_but_that_they_share_a_host() {
    let nodes = Nodes::durable(3);
    let examination = examined(&nodes.url(""));
    assert_eq!(examination.servers.len(), 3);
    found(&examination, Severity::Warning, "3 of them are on the host 127.0.0.1");
    let others = examination.findings.iter().filter(|finding| finding.severity > Severity::Note);
    assert_eq!(others.count(), 1, "{examination:#?}");
    for server in &nodes.servers {
        assert!(server.command(&["KEYS", "*"]).array().is_empty(), "nothing is left behind");
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nodes_that_are_away_are_counted_against_the_majority() {
    let mut nodes = Nodes::durable(3);
    let url = nodes.url("");
    nodes.servers[2].kill();
    let one_less = examined(&url);
    let finding = found(&one_less, Severity::Serious, "2 of 3 nodes answer");
    assert!(finding.consequence.contains("no further node may fail"), "{finding:?}");
    let away = one_less.findings.iter().filter(|finding| finding.evidence.contains("refused"));
    assert_eq!(away.count(), 1, "{one_less:#?}");
    nodes.servers[1].stop();
    let no_majority = examined(&url);
    let finding = found(&no_majority, Severity::Serious, "1 of 3 nodes answer");
    assert!(finding.consequence.contains("no lock can be acquired"), "{finding:?}");
    nodes.servers[1].go_on();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn clocks_of_nodes_that_are_apart_are_found() {
    let mut nodes = Nodes::with_clocks(3);
    let url = nodes.url("");
    let apart = "the clock of ";
    let before = examined(&url);
    assert!(before.findings.iter().all(|finding| !finding.evidence.contains(apart)), "{before:#?}");
    nodes.servers[1].step_clock_back(Duration::from_secs(5));
    let examination = examined(&url);
    let finding = found(&examination, Severity::Warning, apart);
    let port = nodes.servers[1].port();
    assert!(finding.evidence.ends_with(&format!("ahead of that of 127.0.0.1:{port}")), "{finding:?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn one_server_by_two_names_is_found() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    let url = format!("redlock://127.0.0.1:{0},localhost:{0},127.0.0.1:{1}", one.port(), other.port());
    let examination = examined(&url);
    found(&examination, Severity::Serious, "are the same server, run_id ");
    found(&examination, Severity::Serious, "2 of 3 nodes answer");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nodes_that_may_not_say_what_they_are_are_not_taken_for_one() {
    let nodes = Nodes::start(3);
    for server in &nodes.servers {
        server.command(&["ACL", "SETUSER", "default", "-info"]);
    }
    let examination = examined(&nodes.url(""));
    found(&examination, Severity::Serious, "may not run INFO");
    for false_word in ["the same server", "nodes answer"] {
        assert!(examination.findings.iter().all(|finding| !finding.evidence.contains(false_word)));
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn acquisition_and_release_take_as_many_round_trips_as_the_profile_says() {
    let nodes = Nodes::start(3);
    let proxies = nodes.proxies();
    let ports: Vec<u16> = proxies.iter().map(fencepost_testkit::proxy::Proxy::port).collect();
    let lock = locks(&url_of(&ports, AT_ONCE)).lock("a").unwrap().ttl(Duration::from_secs(30));
    let take = || block_on(lock.try_acquire()).unwrap().unwrap();
    // The connections are there, and the scripts are known.
    block_on(take().release()).unwrap();
    let delay = Duration::from_millis(40);
    for proxy in &proxies {
        proxy.set(Mode::Delay(delay));
    }
    let clock = Clock::system();
    let trips = |begun| clock.now().since(begun).as_millis() / (2 * delay.as_millis());
    let once = || {
        let begun = clock.now();
        let lease = take();
        let acquired = trips(begun);
        let begun = clock.now();
        block_on(lease.release()).unwrap();
        (acquired, trips(begun))
    };
    // The fewest: a busy machine makes some of them slower.
    let counts: Vec<_> = (0..4).map(|_| once()).collect();
    let fewest = (
        counts.iter().map(|(acquired, _)| *acquired).min(),
        counts.iter().map(|(_, released)| *released).min(),
    );
    let cost = PROFILE.cost.unwrap();
    assert_eq!(fewest, (Some(cost.acquire_trips.into()), Some(cost.release_trips.into())));
    assert!(proxies.iter().all(|proxy| proxy.connections() == 1));
}
