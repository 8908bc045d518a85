//! What is shown of locks on a ZooKeeper: who holds, who waits, and ten thousand of them.

use std::time::Duration;

use fencepost_testkit::servers::ZooKeeperStay;
use serde_json::Value;

use super::{Scene, all_end, json, number};
use crate::support::{Running, eventually, now_micros};

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn status_says_who_holds_and_who_waits_in_order() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s", "--report", "report"]);
    let waiters: Vec<Running> = (1..=3)
        .map(|count| {
            let waiter = scene.home.start(["run", "demo", "--", "true"]);
            eventually("one more waiter", || scene.queue("demo").len() == count + 1);
            waiter
        })
        .collect();
    let status = scene.status("demo");
    assert_eq!(
        (&status["lock"], &status["state"], &status["backend"]),
        (&"demo".into(), &"held".into(), &"zookeeper".into())
    );
    assert_eq!(status["token"], number(&scene.home.read("held")));
    assert_eq!(status["remaining_ms"], 20_000);
    let label = status["label"].as_str().unwrap();
    assert!(label.starts_with("tester@") && label.ends_with(&format!("sh (fencepost pid {})", holder.pid())));
    for (shown, waiter) in status["waiters"].as_array().unwrap().iter().zip(&waiters) {
        let label = shown["label"].as_str().unwrap();
        assert!(label.ends_with(&format!("true (fencepost pid {})", waiter.pid())), "{label}");
        assert_eq!(shown["holder"].as_str().unwrap().len(), 32);
        assert!(shown["since"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(json(&scene.home.run(["list", "--json"]).exits(0)).as_array().unwrap().len(), 1);
    scene.end(holder);
    assert_eq!(scene.home.json("report")["holder"], status["holder"]);
    all_end(waiters, 0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn list_of_ten_thousand_locks_takes_seconds() {
    let scene = Scene::new();
    scene.warm_up();
    let mut client = scene.server.client();
    for index in 0..10_000 {
        let lock = format!("/fencepost/orders%2F{index}");
        client.create(&lock, br#"{"offset":1}"#, ZooKeeperStay::Persistent).unwrap();
        let stem = format!("{lock}/{index:032x}-x-");
        client.create(&stem, br#"{"label":"somebody"}"#, ZooKeeperStay::SessionInOrder).unwrap();
    }
    let before = now_micros();
    let list = json(&scene.home.run(["list", "--json", "orders/"]).exits(0));
    let took = Duration::from_micros(now_micros() - before);
    println!("{took:?}");
    assert_eq!(list.as_array().unwrap().len(), 10_000);
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn explain_says_what_a_session_on_an_ensemble_promises() {
    let scene = Scene::new();
    let explained = json(&scene.home.run(["explain", "--json", "demo"]).exits(0));
    let text = explained.to_string();
    assert!(text.contains("zookeeper") && text.contains("everybody who uses this cluster"), "{text}");
    let promises = explained["promises"].as_array().unwrap();
    let clock = promises.iter().find(|promise| promise["fault"] == "clock jump").unwrap();
    assert_eq!(clock["two_may_overlap"], Value::from("no"));
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn look_at_what_nobody_has_asked_for_makes_nothing() {
    let scene = Scene::new();
    scene.home.run(["status", "demo"]).exits(1);
    assert_eq!(json(&scene.home.run(["list", "--json"]).exits(0)), Value::Array(Vec::new()));
    let mut client = scene.server.client();
    assert_eq!(client.children("/").unwrap(), ["zookeeper"]);
    client.close().unwrap();
    scene.assert_nothing_is_left();
}
