//! A lock that is to rest although its holder was killed, and waiters that are killed or give up.

use serde_json::Value;

use super::{Scene, all_end, number};
use crate::faults::start_tree;
use crate::support::{eventually, now_micros};

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn killed_runner_keeps_the_lock_taken_as_long_as_it_was_to_rest() {
    let scene = Scene::new();
    let before = now_micros();
    let (run, _) =
        start_tree(&scene.home, &["run", "--ttl", "60s", "--grace", "100ms", "--at-least", "2s"], "");
    run.kill();
    let next = scene.home.run(["run", "--wait", "30s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(number(&next.stdout) > before + 2_000_000);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn waiters_that_are_killed_or_give_up_leave_the_others_alone() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "2s"]);
    let waiter = |_| scene.home.start(["run", "--wait", "300ms", "demo", "--", "touch", "ran"]);
    all_end((0..6).map(waiter).collect(), 75);
    assert_eq!(scene.status("demo")["waiters"], Value::Array(Vec::new()));
    let killed = scene.home.start(["run", "--ttl", "2s", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    let next = scene.home.start(["run", "demo", "--", "true"]);
    eventually("two waiters", || scene.status("demo")["waiters"].as_array().unwrap().len() == 2);
    killed.kill();
    assert_eq!(scene.status("demo")["token"], number(&scene.home.read("held")));
    scene.home.write("stop", "");
    holder.ends().exits(0);
    next.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}
