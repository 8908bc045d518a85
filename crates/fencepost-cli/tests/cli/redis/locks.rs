//! Locks on a Redis when nothing goes wrong: what is shown of them, several of them, their names and options.

use fencepost_testkit::servers::RedisSetup;

use super::{Scene, all_end, json, keys, number};
use crate::support::{Home, Running, assert_has_every_key, eventually};

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn status_says_who_holds_and_who_waits_in_order() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s", "--report", "report"]);
    let waiters: Vec<Running> = (1..=3)
        .map(|count| {
            let waiter = scene.home.start(["run", "demo", "--", "true"]);
            eventually("one more waiter", || {
                scene.status("demo")["waiters"].as_array().unwrap().len() == count
            });
            waiter
        })
        .collect();
    let status = scene.status("demo");
    assert_has_every_key(&status);
    assert_eq!(
        (&status["lock"], &status["state"], &status["backend"]),
        (&"demo".into(), &"held".into(), &"redis".into())
    );
    assert_eq!(status["token"], number(&scene.home.read("held")));
    assert!((10_000..=20_000).contains(&status["remaining_ms"].as_u64().unwrap()), "{status}");
    let label = status["label"].as_str().unwrap();
    assert!(label.starts_with("tester@") && label.ends_with(&format!("sh (fencepost pid {})", holder.pid())));
    for (shown, waiter) in status["waiters"].as_array().unwrap().iter().zip(&waiters) {
        let label = shown["label"].as_str().unwrap();
        assert!(label.ends_with(&format!("true (fencepost pid {})", waiter.pid())), "{label}");
        assert_eq!(shown["holder"].as_str().unwrap().len(), 32);
        assert!(shown["since"].as_str().unwrap().ends_with('Z'));
    }
    let text = scene.home.run(["status", "demo"]).exits(0).stdout;
    assert_eq!(text.matches("waits: tester@").count(), 3, "{text}");
    assert_eq!(json(&scene.home.run(["list", "--json"]).exits(0)).as_array().unwrap().len(), 1);
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert_eq!(scene.home.json("report")["holder"], status["holder"]);
    all_end(waiters, 0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn waiters_come_in_the_order_of_their_arrival() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiters: Vec<Running> = (1..=5)
        .map(|count| {
            let script = format!("echo {count} $FENCEPOST_TOKEN >>order");
            let waiter = scene.home.start(["run", "demo", "--", "sh", "-c", &script]);
            eventually("one more waiter", || {
                scene.status("demo")["waiters"].as_array().unwrap().len() == count
            });
            waiter
        })
        .collect();
    scene.home.write("stop", "");
    holder.ends().exits(0);
    all_end(waiters, 0);
    let order = scene.home.read("order");
    let order: Vec<_> = order.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert!(order.is_sorted() && order.len() == 5, "{order:?}");
    assert!(order.is_sorted_by_key(|(_, token)| number(token)), "{order:?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn odd_names_are_different_locks_and_shown_as_they_are() {
    let scene = Scene::new();
    let long = "x".repeat(1000);
    let names = ["a//b", "a/b", "{a}b", "}", "%7Ba%7Db", "a b", "*", "a|b", "🔒", &long];
    let holders = scene.hold_each_of(&names);
    assert_eq!(json(&scene.home.run(["list", "--json", "a/"]).exits(0)).as_array().unwrap().len(), 2);
    scene.home.run(["status", "a"]).exits(1);
    drop(holders);
    for name in names {
        scene.home.run(["run", "--wait", "20s", name, "--", "true"]).exits(0);
    }
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn run_itself_is_silent_when_all_goes_well() {
    let scene = Scene::new();
    assert_eq!(scene.home.run(["run", "demo", "--", "true"]).exits(0).stderr, "");
    assert!(keys(&scene.server).iter().all(|key| key.starts_with("fencepost:")), "{:?}", keys(&scene.server));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn locks_of_different_databases_are_different() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let other = format!("redis://127.0.0.1:{}/1?quarantine=off", scene.server.port());
    scene.home.run(["run", "-n", "--backend", &other, "demo", "--", "true"]).exits(0);
    let held =
        scene.home.start(["run", "--backend", &other, "demo", "--", "sh", "-c", "echo >other; sleep 60"]);
    scene.home.await_file("other");
    let waiter = scene.home.start(["run", "--backend", &other, "demo", "--", "true"]);
    eventually("a waiter", || {
        let status = json(&scene.home.run(["status", "--json", "--backend", &other, "demo"]));
        status["waiters"].as_array().unwrap().len() == 1
    });
    held.kill();
    waiter.ends().exits(0);
    scene.home.write("stop", "");
    holder.ends().exits(0);
    let missing = format!("redis://127.0.0.1:{}/99", scene.server.port());
    let refused = scene.home.run(["run", "-n", "--backend", &missing, "demo", "--", "touch", "ran"]);
    assert!(refused.code != Some(0) && !scene.home.path("ran").exists(), "{refused:?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn locks_over_tls_need_a_certificate_that_is_trusted() {
    let server = RedisSetup::default().tls().start();
    let home = Home::on(&format!("{}?quarantine=off", server.tls_url()));
    let refused = home.run(["run", "-n", "demo", "--", "touch", "ran"]).exits(69);
    assert!(refused.stderr.contains("certificate") && !home.path("ran").exists(), "{refused:?}");
    let trusting = |args: &[&str]| {
        let mut command = home.fencepost(args);
        command.env("SSL_CERT_FILE", server.certificates().authority());
        Running::of(&mut command)
    };
    let holder = trusting(&["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    trusting(&["run", "-n", "demo", "--", "true"]).ends().exits(75);
    holder.kill();
    trusting(&["run", "--wait", "20s", "demo", "--", "true"]).ends().exits(0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn ttl_that_is_too_short_is_refused_before_anything_is_asked() {
    let scene = Scene::new();
    for ttl in ["0", "1us", "999us", "1ms", "99ms"] {
        let refused = scene.home.run(["run", "--ttl", ttl, "demo", "--", "touch", "ran"]).exits(64);
        assert!(refused.stderr.contains("error:"), "{ttl}: {}", refused.stderr);
    }
    assert!(!scene.home.path("ran").exists() && keys(&scene.server).is_empty(), "{:?}", keys(&scene.server));
}
