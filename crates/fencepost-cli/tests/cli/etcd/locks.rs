//! Locks in etcd when nothing goes wrong: what is shown of them, several of them, their names and options.

use super::{Scene, all_end, json, number};
use crate::support::{Running, eventually};

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn status_says_who_holds_and_who_waits_and_they_come_in_order() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s", "--report", "report"]);
    let waiters: Vec<Running> = (1..=3)
        .map(|count| {
            let script = format!("echo {count} $FENCEPOST_TOKEN >>order");
            let waiter = scene.home.start(["run", "demo", "--", "sh", "-c", &script]);
            eventually("one more waiter", || {
                scene.status("demo")["waiters"].as_array().unwrap().len() == count
            });
            waiter
        })
        .collect();
    let status = scene.status("demo");
    assert_eq!((&status["state"], &status["backend"]), (&"held".into(), &"etcd".into()));
    assert_eq!(status["token"], number(&scene.home.read("held")));
    assert!((10_000..=20_000).contains(&status["remaining_ms"].as_u64().unwrap()), "{status}");
    let label = status["label"].as_str().unwrap();
    assert!(label.starts_with("tester@") && label.ends_with(&format!("sh (fencepost pid {})", holder.pid())));
    for (shown, waiter) in status["waiters"].as_array().unwrap().iter().zip(&waiters) {
        let label = shown["label"].as_str().unwrap();
        assert!(label.ends_with(&format!("sh (fencepost pid {})", waiter.pid())), "{label}");
        assert_eq!(shown["holder"].as_str().unwrap().len(), 32);
    }
    assert_eq!(json(&scene.home.run(["list", "--json"]).exits(0)).as_array().unwrap().len(), 1);
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert_eq!(scene.home.json("report")["holder"], status["holder"]);
    all_end(waiters, 0);
    let order = scene.home.read("order");
    let order: Vec<_> = order.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert!(order.is_sorted() && order.len() == 3, "{order:?}");
    assert!(order.is_sorted_by_key(|(_, token)| number(token)), "{order:?}");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn names_that_begin_alike_are_different_locks_and_shown_as_they_are() {
    let scene = Scene::new();
    let long = "x".repeat(1000);
    let names = ["a", "a/", "a/b", "ab", "a//b", "a/q/x", "a b", "*", ".offset", "🔒", &long];
    // Keys of others are no locks and hold up nobody.
    scene.server.control(&["put", "/fencepost/a/zzz", "x"]);
    scene.server.control(&["put", "/fencepost/free/q/zzz", "x"]);
    let holders = scene.hold_each_of(&names);
    scene.home.run(["run", "-n", "free", "--", "true"]).exits(0);
    assert_eq!(json(&scene.home.run(["list", "--json", "a/"]).exits(0)).as_array().unwrap().len(), 4);
    drop(holders);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn ttl_that_the_server_gives_is_said() {
    let scene = Scene::new();
    let run = scene.home.run(["run", "--ttl", "500ms", "demo", "--", "true"]).exits(0);
    assert!(run.stderr.ends_with("demo: a ttl of 1s was granted, not 500ms\n"), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    let quiet = scene.home.run(["run", "--ttl", "2s", "demo", "--", "true"]).exits(0);
    assert_eq!(quiet.stderr, "");
}
