//! Waiters that are killed, and a holder whose lease is taken away.

use super::{Scene, all_end};
use crate::faults::start_tree;
use crate::support::{Running, eventually, is_alive};

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn killed_waiters_do_not_keep_others_from_the_lock() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiters: Vec<Running> =
        (0..4).map(|_| scene.home.start(["run", "--ttl", "2s", "demo", "--", "true"])).collect();
    eventually("all wait", || scene.queue("demo").len() == 5);
    let mut waiters = waiters.into_iter();
    let (first, second) = (waiters.next().unwrap(), waiters.next().unwrap());
    second.kill();
    scene.home.write("stop", "");
    first.kill();
    holder.ends().exits(0);
    all_end(waiters.collect(), 0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn holder_whose_lease_was_revoked_ends_its_command_and_is_told_why() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &["run", "--report", "report"], "");
    let state = scene.status("demo");
    let locks = fencepost::connect(&scene.server.url()).unwrap();
    let token = fencepost::FencingToken::try_from(state["token"].as_u64().unwrap()).unwrap();
    fencepost::block_on(locks.revoke("demo", token, "the night shift needs it")).unwrap();
    let run = run.ends().exits(76);
    assert!(run.stderr.contains("the night shift needs it"), "{}", run.stderr);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(scene.home.json("report")["lost_reason"], "revoked");
}
