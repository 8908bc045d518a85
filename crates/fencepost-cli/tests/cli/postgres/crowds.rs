//! More runs than the server has connections for.

use fencepost_testkit::servers::PostgresServer;

use super::{Scene, number};
use crate::support::{Outcome, now_micros};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn more_runs_than_connections_all_end_and_say_why() {
    // Three of them are kept for superusers.
    let scene = Scene::of(PostgresServer::start_with(&["max_connections=15"]));
    scene.server.execute("create role worker login; grant create on database postgres to worker");
    let url = scene.server.url_of("worker", "postgres");
    let before = now_micros();
    let script = "exec 9>busy; flock -n 9 || echo >>overlaps; echo $FENCEPOST_TOKEN >>tokens; sleep 0.1";
    let run = || scene.home.start(["run", "--backend", &url, "demo", "--", "sh", "-c", script]);
    let runs: Vec<_> = (0..20).map(|_| run()).collect();
    let outcomes: Vec<Outcome> = runs.into_iter().map(crate::support::Running::ends).collect();
    let took = now_micros() - before;
    assert!(took < 20_000_000, "{took} µs");
    let mut ran = 0;
    for outcome in outcomes {
        match outcome.code {
            Some(0) => ran += 1,
            Some(69) => assert!(
                outcome.stderr.contains("remaining connection slots")
                    || outcome.stderr.contains("too many clients"),
                "{outcome:?}"
            ),
            _ => panic!("{outcome:?}"),
        }
    }
    assert!(ran >= 5, "{ran}");
    let tokens = scene.home.read("tokens");
    let tokens: Vec<u64> = tokens.lines().map(number).collect();
    assert_eq!(tokens.len(), ran);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_eq!(scene.home.read("overlaps"), "");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_without_a_free_connection_says_so() {
    let scene =
        Scene::of(PostgresServer::start_with(&["max_connections=5", "superuser_reserved_connections=1"]));
    scene.server.execute("create role worker login; grant create on database postgres to worker");
    let url = scene.server.url_of("worker", "postgres");
    let others: Vec<_> =
        (0..4).map(|_| fencepost_testkit::servers::PostgresClient::connect(&url).unwrap()).collect();
    let run = scene.home.run(["run", "--backend", &url, "-n", "demo", "--", "touch", "ran"]).exits(69);
    assert!(run.stderr.contains("hint:") && run.stderr.contains("max_connections"), "{}", run.stderr);
    assert!(!scene.home.path("ran").exists());
    drop(others);
    scene.home.run(["run", "--backend", &url, "--wait", "10s", "demo", "--", "true"]).exits(0);
}
