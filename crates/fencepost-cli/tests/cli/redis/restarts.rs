//! A server that forgets, is restarted, or has its clock set while a lock is held.

use std::time::Duration;

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{RedisServer, RedisSetup};

use super::{Scene, number};
use crate::support::{Home, eventually, now_micros};

/// The holder goes on after `harm`, is renewed, and ends well.
fn goes_on(scene: &mut Scene, harm: impl FnOnce(&mut Scene)) {
    let run = scene.start_holder(&["--ttl", "2s", "--events", "events"]);
    scene.await_renewals();
    harm(scene);
    scene.await_renewals();
    scene.home.write("stop", "");
    run.ends().exits(0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn forgotten_scripts_are_loaded_again() {
    goes_on(&mut Scene::new(), |scene| drop(scene.server.command(&["SCRIPT", "FLUSH"])));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn killed_connection_is_replaced() {
    goes_on(&mut Scene::new(), |scene| {
        for kind in ["normal", "pubsub"] {
            scene.server.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
    });
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_outlives_a_restart_of_a_server_that_kept_its_data() {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    goes_on(&mut Scene::of(server), |scene| scene.server.restart());
}

/// A holder is told of the loss of all data, and until its lease must be over nobody else is let in.
fn nobody_is_let_in_for_the_longest_ttl_after(why: &str, loss: impl FnOnce(&mut Scene)) {
    let mut scene = Scene::new();
    let guarded = format!("{}?max_ttl=2s", scene.server.url());
    scene.home = Home::on(&guarded);
    let run = scene.start_holder(&["--ttl", "2s", "--report", "report"]);
    let first = number(&scene.home.read("held"));
    let script = "date +%s%6N; echo $FENCEPOST_TOKEN";
    let next = scene.home.start(["run", "--ttl", "2s", "demo", "--", "sh", "-c", script]);
    scene.home.await_waiter("demo");
    let lost_at = now_micros();
    loss(&mut scene);
    let refused = scene.home.run(["run", "-n", "--ttl", "2s", "demo", "--", "touch", "ran"]).exits(75);
    assert!(
        refused.stderr.contains("grants nothing for another") && refused.stderr.contains(why),
        "{refused:?}"
    );
    assert!(scene.status("demo")["state"] == "quarantined", "{}", scene.status("demo"));
    run.ends().exits(76);
    assert_eq!(scene.home.json("report")["outcome"], "lost");
    let next = next.ends().exits(0);
    let (began, token) = next.stdout.split_once('\n').unwrap();
    assert!(number(began) > lost_at + 2_000_000);
    assert!(number(token) > first);
    assert!(!scene.home.path("ran").exists());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nobody_is_let_in_for_the_longest_ttl_after_all_data_was_removed() {
    nobody_is_let_in_for_the_longest_ttl_after("its data was removed", |scene| {
        scene.server.command(&["FLUSHALL"]);
    });
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn nobody_is_let_in_for_the_longest_ttl_after_a_restart_without_data() {
    nobody_is_let_in_for_the_longest_ttl_after("it was started and knows of no lock", |scene| {
        scene.server.restart_empty();
    });
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn wait_that_ends_in_quarantine_says_so() {
    let server = RedisServer::start();
    let home = Home::on(&server.url());
    let waited = home.run(["run", "--wait", "1200ms", "demo", "--", "touch", "ran"]).exits(75);
    assert!(waited.stderr.contains("it was started and knows of no lock"), "{}", waited.stderr);
    assert!(!home.path("ran").exists());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn removed_record_is_a_lost_lease() {
    let scene = Scene::new();
    let run = scene.start_holder(&["--ttl", "2s", "--report", "report"]);
    scene.server.command(&["DEL", "fencepost:{demo}:l"]);
    let run = run.ends().exits(76);
    let first = number(&scene.home.read("held"));
    assert!(run.stderr.contains("demo") && run.stderr.contains(&first.to_string()), "{}", run.stderr);
    assert_eq!(scene.home.json("report")["lost_reason"], "expired");
    let next = scene.home.run(["run", "-n", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
    assert!(number(&next.stdout) > first);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn clock_that_is_set_forward_loses_the_lease_at_the_next_renewal() {
    let mut scene = Scene::of(RedisSetup::default().own_clock().start());
    let run = scene.start_holder(&["--ttl", "8s", "--report", "report"]);
    let first = number(&scene.home.read("held"));
    let set_at = now_micros();
    scene.server.step_clock_forward(Duration::from_hours(1));
    let run = run.ends().exits(76);
    assert!(now_micros() - set_at < 6_000_000, "that is at the next renewal, and before its own deadline");
    assert!(run.stderr.contains("clock of the server was set forward"), "{}", run.stderr);
    assert_eq!(scene.home.json("report")["outcome"], "lost");
    let next = scene.home.run(["run", "-n", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
    assert!(number(&next.stdout) > first);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn clock_that_is_set_back_does_no_harm() {
    let mut scene = Scene::of(RedisSetup::default().own_clock().start());
    let args = ["--ttl", "2s", "--report", "report", "--events", "events"];
    let run = scene.start_holder(&args);
    let first = number(&scene.home.read("held"));
    scene.await_renewals();
    scene.server.step_clock_back(Duration::from_hours(1));
    scene.await_renewals();
    let refused = scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    assert!(refused.stderr.contains("held"), "{}", refused.stderr);
    scene.home.write("stop", "");
    let run = run.ends().exits(0);
    assert!(run.stderr.contains("clock of the server was set back"), "{}", run.stderr);
    let next = scene.home.run(["run", "-n", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
    assert!(number(&next.stdout) > first);
    eventually("nothing held", || !scene.has_place("demo"));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiters_keep_their_places_when_their_connections_are_lost() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let through = scene.through();
    let first =
        scene.home.start(["run", "--backend", &through, "demo", "--", "sh", "-c", "echo first >>order"]);
    scene.home.await_waiter("demo");
    let second = scene.home.start(["run", "demo", "--", "sh", "-c", "echo second >>order"]);
    eventually("two waiters", || scene.status("demo")["waiters"].as_array().unwrap().len() == 2);
    scene.proxy.set(Mode::Cut);
    let listening = |count| {
        let list = scene.server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.text().lines().count() == count
    };
    eventually("two that listen", || listening(2));
    scene.proxy.set(Mode::Pass);
    eventually("three that listen", || listening(3));
    scene.home.write("stop", "");
    holder.ends().exits(0);
    first.ends().exits(0);
    second.ends().exits(0);
    assert_eq!(scene.home.read("order"), "first\nsecond\n");
}
