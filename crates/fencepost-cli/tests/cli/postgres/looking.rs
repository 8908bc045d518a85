//! What is shown of locks in a Postgres database: who holds, who waits, and what `explain` says of them.

use serde_json::Value;

use super::{Scene, json, number};
use crate::support::{Home, Running, assert_has_every_key, eventually, now_micros};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn status_says_who_holds_and_who_waits() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--report", "report"]);
    let waiters: Vec<Running> = (1..=3)
        .map(|count| {
            let waiter = scene.home.start(["run", "demo", "--", "true"]);
            eventually("one more waiter", || scene.waiters("demo") == count);
            waiter
        })
        .collect();
    let are_named = || {
        let status = scene.status("demo");
        let named = status["waiters"].as_array().unwrap().iter().all(|waiter| waiter["label"].is_string());
        named && scene.waiters("demo") == 3
    };
    let before = now_micros();
    eventually("their names", are_named);
    assert!(now_micros() - before < 4_000_000, "after a second");
    let status = scene.status("demo");
    assert_has_every_key(&status);
    assert_eq!(
        (&status["lock"], &status["state"], &status["backend"]),
        (&"demo".into(), &"held".into(), &"postgres".into())
    );
    assert_eq!(
        (&status["token"], &status["remaining_ms"]),
        (&number(&scene.home.read("held")).into(), &Value::Null)
    );
    assert!(status["since"].as_str().unwrap().ends_with('Z'));
    let label = status["label"].as_str().unwrap();
    assert!(label.starts_with("tester@") && label.ends_with(&format!("sh (fencepost pid {})", holder.pid())));
    for waiter in &waiters {
        let end = format!("true (fencepost pid {})", waiter.pid());
        let shown = status["waiters"].as_array().unwrap();
        let shown = shown.iter().find(|shown| shown["label"].as_str().unwrap().ends_with(&end));
        let shown = shown.unwrap_or_else(|| panic!("{end} in {status}"));
        assert_eq!(shown["holder"].as_str().unwrap().len(), 32);
        assert!(shown["since"].as_str().unwrap().ends_with('Z'));
    }
    let text = scene.home.run(["status", "demo"]).exits(0).stdout;
    assert_eq!(text.matches("waits: ").count(), 3, "{text}");
    let list = json(&scene.home.run(["list", "--json"]).exits(0));
    assert_eq!((list.as_array().unwrap().len(), &list[0]["holder"]), (1, &status["holder"]));
    scene.end(holder);
    assert_eq!(scene.home.json("report")["holder"], status["holder"]);
    super::all_end(waiters, 0);
    scene.assert_nothing_is_left();
    assert_eq!(scene.home.run(["status", "demo"]).exits(1).stdout, "demo is free\n");
    assert!(scene.home.run(["list"]).exits(0).stderr.contains("no lock is held"));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiter_says_after_a_second_who_has_the_lock() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let waiter = scene.home.run(["run", "--wait", "2s", "demo", "--", "true"]).exits(75);
    let label = format!("sh (fencepost pid {})", holder.pid());
    assert!(waiter.stderr.contains("waiting: demo is held by tester@"), "{}", waiter.stderr);
    assert!(waiter.stderr.contains(&label), "{}", waiter.stderr);
    scene.end(holder);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn status_says_what_is_left_where_a_lease_expires() {
    let scene = Scene::with("on_pause=expire");
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let left = scene.status("demo")["remaining_ms"].as_u64().unwrap();
    assert!((10_000..=20_000).contains(&left), "{left}");
    scene.end(holder);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn onlookers_never_make_a_try_fail() {
    let scene = Scene::new();
    scene.home.run(["run", "demo", "--", "true"]).exits(0);
    let looker = Running::of(
        scene.home.command("sh").args(["-c", "while :; do fencepost status demo; fencepost list; done"]),
    );
    for _ in 0..50 {
        scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    }
    looker.kill();
}

#[test]
fn explain_says_what_a_session_lock_promises() {
    let explained = |options: &str| {
        let home = Home::on(&format!("postgres://u@127.0.0.1:1/orders{options}"));
        (
            home.run(["explain", "demo"]).exits(0).stdout,
            json(&home.run(["explain", "--json", "demo"]).exits(0)),
        )
    };
    let overlap = |explained: &Value, fault: &str| {
        let promises = explained["promises"].as_array().unwrap();
        let promise = promises.iter().find(|promise| promise["fault"] == fault);
        promise.map(|promise| promise["two_may_overlap"].as_str().unwrap().to_owned())
    };
    let (text, hold) = explained("");
    for part in ["nearly first come first served", "this database", "a stopped process keeps the lock"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(overlap(&hold, "pause").as_deref(), Some("yes"), "a frozen host loses it");
    assert_eq!(overlap(&hold, "lost session").as_deref(), Some("yes"));
    assert_eq!(overlap(&hold, "restart").as_deref(), Some("no"));
    assert_eq!(overlap(&hold, "lost host").as_deref(), Some("yes"));
    let (_, expire) = explained("?on_pause=expire");
    assert_eq!(overlap(&expire, "pause").as_deref(), Some("yes"));
    assert_eq!(overlap(&expire, "lost session").as_deref(), Some("yes"));
    let (_, off) = explained("?quarantine=off");
    assert_eq!(overlap(&off, "restart").as_deref(), Some("yes"));
}
