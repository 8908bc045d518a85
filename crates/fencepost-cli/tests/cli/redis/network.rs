//! A holder whose server becomes a replica, and one that is told to run on when its way there is lost.

use fencepost_testkit::proxy::Mode;

use super::{Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::is_alive;

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn holder_on_a_server_that_has_become_a_replica_ends_by_its_deadline() {
    let scene = Scene::new();
    let args = ["run", "--ttl", "1s", "--grace", "200ms", "--report", "report"];
    let (first, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    // There is no primary; the server refuses all writes.
    scene.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = scene.home.run(["run", "-n", "demo", "--", "touch", "ran"]).exits(69);
    assert!(refused.stderr.contains("is a replica"), "{}", refused.stderr);
    first.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    scene.server.promote();
    let next = scene.home.run(["run", "--wait", "10s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(last_act(&scene.home) < number(&next.stdout));
    assert!(!scene.home.path("ran").exists());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn on_lost_warn_lets_the_command_run_on() {
    let scene = Scene::new();
    let (through, script) =
        (scene.through(), "echo >held; while [ ! -e stop ]; do sleep 0.02; done; echo done");
    let args =
        ["run", "--backend", &through, "--ttl", "1s", "--on-lost", "warn", "demo", "--", "sh", "-c", script];
    let run = scene.home.start(args);
    scene.home.await_file("held");
    scene.proxy.set(Mode::Blackhole);
    scene.home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
    scene.proxy.set(Mode::Pass);
    scene.home.write("stop", "");
    let run = run.ends().exits(76);
    assert_eq!(run.stdout, "done\n");
    assert!(run.stderr.contains("demo") && run.stderr.contains("runs on"), "{}", run.stderr);
}
