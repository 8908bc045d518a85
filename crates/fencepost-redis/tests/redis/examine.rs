//! What is wrong with a server is found: each finding on a server that really is set up so, and none on one that is well.

use std::time::Duration;

use fencepost_core::{Backend, Clock, Examination, Fence, Finding, Severity};
use fencepost_redis::{RedisBackend, RedisFence};
use fencepost_testkit::block_on;
use fencepost_testkit::servers::{RedisSentinel, RedisServer, RedisSetup, Reply, wait_until};

use crate::stage::{CARELESS, at, keys, lock, now, old_server, release, take};

/// Settings of a server that nothing is said against.
const WELL: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn well() -> RedisServer {
    RedisServer::start_with(&WELL)
}

fn backend(url: &str) -> RedisBackend {
    let url = url.parse().expect("a test writes a URL");
    RedisBackend::from_url(&url, Clock::system()).expect("the URL names a server")
}

/// A look at a server's locks, which leaves it as it was.
#[track_caller]
fn examined(server: &RedisServer, options: &str) -> Examination {
    let before = keys(server);
    let examination =
        block_on(backend(&format!("{}?{options}", server.url())).examine()).expect("the server answers");
    assert_eq!(keys(server), before, "nothing is left behind");
    examination
}

fn examined_fence(server: &RedisServer) -> Examination {
    let url = server.url().parse().expect("a server has a URL");
    let fence = RedisFence::from_url(&url, Clock::system()).expect("the URL names a server");
    block_on(fence.examine()).expect("the server answers")
}

/// The finding whose evidence contains `evidence`, which says what it means and what to do.
#[track_caller]
fn found<'a>(examination: &'a Examination, severity: Severity, evidence: &str) -> &'a Finding {
    let finding = examination.findings.iter().find(|finding| finding.evidence.contains(evidence));
    let finding = finding.unwrap_or_else(|| panic!("{evidence:?} in {examination:#?}"));
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(!finding.consequence.is_empty() && !finding.remedy.is_empty(), "{finding:?}");
    finding
}

#[track_caller]
fn assert_nothing(examination: &Examination) {
    assert!(examination.findings.is_empty(), "{examination:#?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_is_well_has_no_finding() {
    let server = old_server(RedisSetup::default().arguments(&WELL));
    // Its clock was set so that it looks old.
    let mut examination = examined(&server, "");
    examination.findings.retain(|finding| !finding.evidence.contains("its clock is"));
    assert_nothing(&examination);
    assert!(examination.servers[0].starts_with("Redis ") && examination.servers.len() == 1);
    assert_nothing(&examined_fence(&well()));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn memory_that_drops_locks_is_found() {
    let server = well();
    let set = |name, value| drop(server.command(&["CONFIG", "SET", name, value]));
    set("maxmemory-policy", "volatile-lru");
    found(&examined(&server, ""), Severity::Note, "volatile-lru, and maxmemory is not set");
    set("maxmemory", "100mb");
    let examination = examined(&server, "");
    let finding = found(&examination, Severity::Serious, "maxmemory-policy is volatile-lru");
    assert!(finding.remedy.contains("maxmemory-policy noeviction"), "{finding:?}");
    assert_nothing(&examined_fence(&server));
    set("maxmemory-policy", "allkeys-lru");
    found(&examined_fence(&server), Severity::Serious, "maxmemory-policy is allkeys-lru");
    set("maxmemory-policy", "noeviction");
    set("maxmemory", "1mb");
    found(&examined(&server, ""), Severity::Warning, "of maxmemory 1.00M");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn what_a_crash_would_forget_is_found() {
    let server = RedisServer::start();
    found(&examined(&server, ""), Severity::Warning, "save is empty, and appendonly is no");
    found(&examined_fence(&server), Severity::Serious, "save is empty, and appendonly is no");
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    found(&examined(&server, ""), Severity::Note, "save is \"3600 1\"");
    found(&examined_fence(&server), Severity::Warning, "save is \"3600 1\"");
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    found(&examined(&server, ""), Severity::Note, "appendfsync is everysec");
    found(&examined_fence(&server), Severity::Warning, "appendfsync is everysec");
}

/// As where a provider manages the server.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn fence_whose_persistence_is_not_told_is_warned_of() {
    let (bare, logged) = (RedisServer::start(), well());
    for (server, evidence) in
        [(&bare, "aof_enabled is 0, and save is not told"), (&logged, "appendfsync is not told")]
    {
        server.command(&["ACL", "SETUSER", "default", "-config"]);
        let of_fence = examined_fence(server);
        found(&of_fence, Severity::Warning, evidence);
        found(&of_fence, Severity::Note, "may not run CONFIG GET");
    }
    found(&examined(&bare, ""), Severity::Note, "aof_enabled is 0, and save is not told, rdb_saves is 0");
    assert_eq!(examined(&logged, CARELESS).findings.len(), 2, "quarantine=off, and the settings");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_refuses_writes_is_found() {
    let server = RedisServer::start_with(&["--save", "3600 1"]);
    server.command(&["CONFIG", "SET", "rdbcompression", "no"]);
    // A folder stands where the snapshot is to be.
    let folder = server.command(&["CONFIG", "GET", "dir"]).array()[1].text().to_owned();
    std::fs::create_dir_all(std::path::Path::new(&folder).join("dump.rdb/x")).unwrap();
    server.command(&["SET", "a", "b"]);
    server.command(&["BGSAVE"]);
    wait_until("the snapshot has failed", || {
        server.info("persistence", "rdb_last_bgsave_status").as_deref() == Some("err")
    });
    found(&examined(&server, CARELESS), Severity::Serious, "rdb_last_bgsave_status is err");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn replicas_that_are_missing_or_lag_are_found() {
    let (primary, replica) = (well(), well());
    found(&examined(&primary, "replicas=1"), Severity::Serious, "0 replicas follow it");
    replica.replica_of(&primary);
    wait_until("the replica is online", || {
        primary.info("replication", "slave0").is_some_and(|replica| replica.contains("state=online"))
    });
    found(&examined(&primary, ""), Severity::Warning, "min-replicas-to-write is 0");
    primary.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let examination = examined(&primary, "replicas=1");
    assert!(
        examination.findings.iter().all(|finding| !finding.evidence.contains("replica")),
        "{examination:?}"
    );
    primary.command(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    found(&examined(&primary, ""), Severity::Serious, "min-replicas-to-write is 2, and 1 replicas are well");
    let of_replica = examined(&replica, "");
    let finding = found(&of_replica, Severity::Serious, "it is a replica of 127.0.0.1:");
    assert!(finding.remedy.contains(&primary.url()), "{finding:?}");
    replica.stop();
    primary.command(&["SET", "a", &"b".repeat(1_000)]);
    wait_until("the replica is not heard", || {
        let told = primary.info("replication", "slave0").unwrap_or_default();
        !told.contains("lag=0") && !told.contains("lag=1") && !told.contains("lag=2")
    });
    let lagging = examined(&primary, "replicas=1");
    let finding = found(&lagging, Severity::Warning, "bytes behind");
    assert!(finding.evidence.contains("was last heard"), "{finding:?}");
    found(&lagging, Severity::Serious, "0 replicas follow it");
    replica.go_on();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn clock_that_is_apart_is_found_with_how_exactly_that_is_known() {
    let mut server = RedisSetup::default().own_clock().arguments(&WELL).start();
    let ours = |examination: &Examination| {
        examination.findings.iter().filter(|finding| finding.evidence.contains("its clock is")).count()
    };
    assert_eq!(ours(&examined(&server, "")), 0);
    server.step_clock_forward(Duration::from_secs(90));
    let examination = examined(&server, "");
    let finding = found(&examination, Severity::Warning, "its clock is ");
    let (number, within) = finding.evidence["its clock is ".len()..].split_once(" s (to within ").unwrap();
    let apart: f64 = number.parse().unwrap();
    assert!((apart - 90.0).abs() < 1.0 && within.ends_with(" ms) ahead of this host's"), "{finding:?}");
    let fence = examined_fence(&server);
    assert_eq!(ours(&fence), 0, "no clock is asked by a fence");
    server.step_clock_back(Duration::from_mins(3));
    assert!(found(&examined(&server, ""), Severity::Warning, "its clock is ").evidence.contains("behind"));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn user_who_may_not_do_what_a_lock_needs_is_found() {
    let server = well();
    let user = |rules: &[&str]| {
        let mut command = vec!["ACL", "SETUSER", "ann", "reset", "on", ">pw"];
        command.extend(rules);
        server.command(&command);
        let url = format!("redis://ann:pw@127.0.0.1:{}", server.port());
        block_on(backend(&url).examine()).unwrap()
    };
    let needed = ["+@scripting", "+@read", "+@write", "+@pubsub", "+@connection", "+info", "+time", "+scan"];
    let all = [&needed[..], &["~fencepost:*", "&fencepost:*"]].concat();
    let without_config = user(&all);
    found(&without_config, Severity::Note, "may not run CONFIG GET");
    assert!(without_config.findings.iter().all(|finding| !finding.evidence.contains("may not run EVAL")));
    assert_eq!(without_config.findings[0].severity, Severity::Note, "{without_config:#?}");
    let no_writing = user(&[&all[..], &["-zadd", "-publish"]].concat());
    let finding = found(&no_writing, Severity::Serious, "the user ann may not run ZADD, PUBLISH");
    assert!(finding.remedy.starts_with("ACL SETUSER ann ") && !format!("{no_writing:?}").contains("pw"));
    let no_scripts = user(&["+@connection", "+info", "+time", "~fencepost:*"]);
    found(&no_scripts, Severity::Serious, "may not run EVALSHA");
    user(&[&all[..], &["-wait"]].concat());
    let waiting = format!("redis://ann:pw@127.0.0.1:{}?replicas=1", server.port());
    found(&block_on(backend(&waiting).examine()).unwrap(), Severity::Serious, "may not run WAIT");
    let other_keys = user(&[&needed[..], &["~other:*", "&other:*"]].concat());
    found(&other_keys, Severity::Serious, "may not run GET, SET");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn refusal_is_never_taken_for_an_answer() {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "10"]);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| server.command(&["EVAL", "while true do end", "0"]));
        wait_until("it is busy", || matches!(server.command(&["PING"]), Reply::Error(_)));
        let examined = block_on(backend(&server.url()).examine());
        server.command(&["SCRIPT", "KILL"]);
        examined.unwrap_err()
    });
    assert!(error.to_string().contains("BUSY"), "{error}");
    let replica = RedisServer::start_with(&["--replica-serve-stale-data", "no"]);
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let examination = block_on(backend(&replica.url()).examine()).unwrap();
    found(&examination, Severity::Serious, "MASTERDOWN");
    found(&examination, Severity::Serious, "it is a replica of 127.0.0.1:1");
    assert!(examination.findings.iter().all(|finding| !finding.evidence.contains("no lock")));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_may_not_say_what_it_is_has_no_version_and_no_quarantine() {
    let server = well();
    release(take(&lock(&at(server.port(), CARELESS), "a")));
    let mut rules = vec!["ACL", "SETUSER", "ann", "on", ">pw", "+@all", "-info", "~*", "&*"];
    server.command(&rules);
    let url = format!("redis://ann:pw@127.0.0.1:{}", server.port());
    let examination = block_on(backend(&url).examine()).unwrap();
    assert_eq!(examination.servers, [format!("Redis at 127.0.0.1:{}", server.port())]);
    found(&examination, Severity::Serious, "may not run INFO");
    assert_eq!(examination.findings.len(), 1, "{examination:#?}");
    rules[6] = "-get";
    rules[5] = "+info";
    server.command(&rules);
    let examination = block_on(backend(&url).examine()).unwrap();
    found(&examination, Severity::Serious, "may not run GET");
    assert!(examination.findings.iter().all(|finding| !finding.evidence.contains("knows of no lock")));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn quarantine_that_is_under_way_or_to_come_is_found() {
    let mut server = old_server(RedisSetup::default().arguments(&WELL));
    let none = examined(&server, "");
    assert!(none.findings.iter().all(|finding| !finding.evidence.contains("no lock")), "{none:#?}");
    release(take(&lock(&at(server.port(), ""), "a")));
    server.restart();
    found(&examined(&server, ""), Severity::Warning, "another server than the one that granted");
    let begun = at(server.port(), "");
    drop(block_on(begun.lock("a").unwrap().try_acquire()));
    let under_way = examined(&server, "");
    let finding = found(&under_way, Severity::Warning, "it is in quarantine for ");
    assert!(finding.evidence.contains("restarted"), "{finding:?}");
    found(&examined(&server, "max_ttl=10s"), Severity::Note, "has used max_ttl=60s");
    found(&examined(&server, CARELESS), Severity::Warning, "quarantine=off");
    let young = RedisServer::start_with(&WELL);
    found(&examined(&young, ""), Severity::Note, "and knows of no lock");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lock_that_would_never_end_is_found() {
    let server = well();
    let held = take(&lock(&at(server.port(), CARELESS), "a"));
    let before = examined(&server, CARELESS);
    assert!(before.findings.iter().all(|finding| !finding.evidence.contains("expiry")), "{before:#?}");
    server.command(&["PERSIST", "fencepost:{a}:l"]);
    found(&examined(&server, CARELESS), Severity::Serious, "the key fencepost:{a}:l has no expiry");
    drop(held);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn part_of_a_cluster_is_found() {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    found(&examined(&server, ""), Severity::Serious, "cluster_enabled is 1");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn silent_server_is_given_up_soon() {
    let server = well();
    server.stop();
    let begun = now();
    let error = block_on(backend(&server.url()).examine()).unwrap_err();
    assert_eq!(error.kind(), fencepost_core::ErrorKind::Unavailable, "{error}");
    assert!(now().since(begun) < Duration::from_secs(6));
    server.go_on();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn sentinels_that_could_not_fail_over_are_found() {
    let (primary, replica) = (well(), well());
    replica.replica_of(&primary);
    let sentinels = RedisSentinel::start_several(3, &primary);
    for sentinel in &sentinels {
        sentinel.wait_for_replicas(1);
    }
    let hosts: Vec<String> = sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
    let look = || {
        let url = format!("redis+sentinel://{}/{}", hosts.join(","), RedisSentinel::PRIMARY);
        block_on(backend(&url).examine()).unwrap()
    };
    let all = look();
    assert!(all.servers[0].contains(&primary.port().to_string()), "{all:#?}");
    assert!(all.findings.iter().all(|finding| !finding.about.contains("sentinel")), "{all:#?}");
    sentinels[0].stop();
    sentinels[1].stop();
    wait_until("the third knows that the others are gone", || {
        matches!(sentinels[2].command(&["SENTINEL", "CKQUORUM", RedisSentinel::PRIMARY]), Reply::Error(_))
    });
    let alone = look();
    found(&alone, Severity::Warning, "NOQUORUM");
    let gone = alone.findings.iter().filter(|finding| finding.about.starts_with("the sentinel 127"));
    assert_eq!(gone.count(), 2, "{alone:#?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn sentinels_that_are_few_or_disagree_are_found() {
    let primaries = [well(), well()];
    let sentinels = primaries.each_ref().map(RedisSentinel::start);
    let look = |hosts: &str| {
        let url = format!("redis+sentinel://{hosts}/{}", RedisSentinel::PRIMARY);
        block_on(backend(&url).examine()).unwrap()
    };
    let [one, other] = sentinels.each_ref().map(|sentinel| sentinel.address().to_string());
    let few = look(&one);
    let finding = found(&few, Severity::Warning, "1 of them watch");
    assert_eq!(finding.about, "the sentinels");
    found(&look(&format!("{one},{other}")), Severity::Serious, "says that the primary is");
}
