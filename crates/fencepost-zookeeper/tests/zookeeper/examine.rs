//! What a look at the servers finds, and that it changes nothing.

use fencepost_core::{Backend, Examination, Severity, block_on};
use fencepost_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer, ZooKeeperSetup, ZooKeeperStay};

use crate::stage::{backend, eventually};

fn examined(url: &str) -> Examination {
    block_on(backend(url).examine()).unwrap()
}

fn found(examination: &Examination, words: &str) -> Option<Severity> {
    let finding = examination.findings.iter().find(|finding| finding.evidence.contains(words))?;
    Some(finding.severity)
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn single_server_is_named_and_nothing_is_made() {
    let server = ZooKeeperServer::start();
    let examination = examined(&server.url());
    assert_eq!(examination.servers, [format!("ZooKeeper 3.8.0 at {} (standalone)", server.address())]);
    assert_eq!(found(&examination, "standalone"), Some(Severity::Warning));
    assert_eq!(found(&examination, "shorter than 400ms"), Some(Severity::Note));
    assert_eq!(found(&examination, "longer"), None);
    assert!(examination.findings.iter().all(|finding| finding.severity < Severity::Serious));
    assert_eq!(server.client().children("/").unwrap(), ["zookeeper"]);
    eventually("one session", || server.counted("zk_global_sessions") == 1);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn limits_that_break_the_deadline_are_serious() {
    let settings = ["tickTime=2000", "minSessionTimeout=500", "maxSessionTimeout=8000"];
    let server = ZooKeeperSetup::default().settings(&settings).start();
    let examination = examined(&server.url());
    assert_eq!(found(&examination, "less than two ticks of 2000 ms"), Some(Severity::Serious));
    assert_eq!(examination.findings[0].severity, Severity::Serious, "the worst comes first");
    assert_eq!(found(&examination, "longer than 8s"), Some(Severity::Note));
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn words_that_are_not_answered_are_a_finding() {
    let server = ZooKeeperSetup::default().settings(&["4lw.commands.whitelist=*"]).start();
    assert_eq!(found(&examined(&server.url()), "conf"), None);
    let deaf = fencepost_testkit::proxy::Proxy::start(server.address());
    let nobody = deaf.address();
    drop(deaf);
    let examination = examined(&format!("{},{nobody}", server.url()));
    assert_eq!(found(&examination, "cannot be reached"), Some(Severity::Warning));
    assert_eq!(found(&examination, "names 2 members"), Some(Severity::Note));
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn members_of_an_ensemble_are_named_with_what_they_do() {
    let ensemble = ZooKeeperEnsemble::start();
    let examination = examined(&ensemble.url());
    let all = examination.servers.join(" ");
    assert_eq!((all.matches("(leader)").count(), all.matches("(follower)").count()), (1, 2), "{all}");
    assert_eq!(found(&examination, "standalone"), None);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn open_nodes_behind_a_login_are_a_finding() {
    let server = ZooKeeperServer::start();
    let url = format!("zookeeper://ann:s3cret@{}", server.address());
    assert_eq!(found(&examined(&url), "world:anyone"), None);
    server.client().create("/fencepost", b"", ZooKeeperStay::Persistent).unwrap();
    assert_eq!(found(&examined(&url), "world:anyone"), Some(Severity::Warning));
    assert_eq!(found(&examined(&server.url()), "world:anyone"), None, "on this host, without a login");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn nobody_there_is_an_error() {
    let mut server = ZooKeeperServer::start();
    server.kill();
    block_on(backend(&server.url()).examine()).unwrap_err();
}
