//! Locks on a ZooKeeper when nothing goes wrong: several of them, their names, order and options.

use serde_json::Value;

use super::{Scene, all_end, json, number};
use crate::support::{Home, Running, eventually, now_micros};

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn run_itself_is_silent_when_all_goes_well_and_leaves_nothing() {
    let scene = Scene::new();
    assert_eq!(scene.home.run(["run", "demo", "--", "true"]).exits(0).stderr, "");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiters_come_in_the_order_of_their_arrival() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiters: Vec<Running> = (1..=5)
        .map(|count| {
            let script = format!("echo {count} $FENCEPOST_TOKEN >>order");
            let waiter = scene.home.start(["run", "demo", "--", "sh", "-c", &script]);
            eventually("one more waiter", || scene.queue("demo").len() == count + 1);
            waiter
        })
        .collect();
    scene.end(holder);
    all_end(waiters, 0);
    let order = scene.home.read("order");
    let order: Vec<_> = order.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert!(order.is_sorted() && order.len() == 5, "{order:?}");
    assert!(order.is_sorted_by_key(|(_, token)| number(token)), "{order:?}");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn odd_names_are_different_locks_and_shown_as_they_are() {
    let scene = Scene::new();
    let long = "x".repeat(1000);
    let names = ["a//b", "a/b", "..", "zookeeper", "a/../b", "a b", ".", "%2F", "🔒", &long];
    let holders: Vec<_> =
        names.iter().map(|name| scene.home.start(["run", name, "--", "sleep", "60"])).collect();
    let list = || json(&scene.home.run(["list", "--json"]).exits(0));
    eventually("all holders", || list().as_array().unwrap().len() == names.len());
    let list = list();
    let listed: Vec<_> =
        list.as_array().unwrap().iter().map(|state| state["lock"].as_str().unwrap()).collect();
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(listed, sorted);
    for name in names {
        assert_eq!(scene.status(name)["lock"], name);
        scene.home.run(["run", "-n", name, "--", "true"]).exits(75);
    }
    let mut client = scene.server.client();
    assert_eq!(client.children("/").unwrap().len(), 2, "nothing is made outside of /fencepost");
    assert_eq!(client.children("/zookeeper").unwrap().len(), 2);
    client.close().unwrap();
    drop(holders);
    // Their guardians give back what they held; the sessions of the killed end by themselves.
    eventually("no node of a session", || scene.server.counted("zk_ephemerals_count") == 0);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn several_locks_are_taken_all_or_none() {
    let scene = Scene::new();
    let script =
        "echo $FENCEPOST_LOCK $FENCEPOST_BACKEND_KIND; echo $FENCEPOST_TOKENS; fencepost list --json";
    let run = scene.home.run(["run", "b", "a", "--", "sh", "-c", script]).exits(0);
    let mut lines = run.stdout.lines();
    assert_eq!(lines.next(), Some("b zookeeper"));
    let tokens: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&tokens[0]["lock"], &tokens[1]["lock"]), (&"b".into(), &"a".into()));
    let list: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&list[0]["token"], &list[1]["token"]), (&tokens[1]["token"], &tokens[0]["token"]));
    let holder = scene.start_holder(&["--ttl", "20s"]);
    scene.home.run(["run", "-n", "a", "demo", "z", "--", "touch", "ran"]).exits(75);
    for free in ["a", "z"] {
        scene.home.run(["status", free]).exits(1);
    }
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn lock_stays_taken_at_least_so_long() {
    let scene = Scene::new();
    let before = now_micros();
    scene.home.run(["run", "--at-least", "1500ms", "demo", "--", "true"]).exits(0);
    let waiter = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
    let status = scene.status("demo");
    assert_eq!((&status["state"], &status["holder"]), (&"resting".into(), &Value::Null));
    let refused = scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    assert!(refused.stderr.contains("demo is resting"), "{}", refused.stderr);
    let began = number(&waiter.ends().exits(0).stdout);
    assert!(began > before + 1_500_000, "{}", began - before);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn runs_of_several_shells_count_every_addition() {
    let scene = Scene::new();
    scene.home.write("counter", "0\n");
    scene.home.write("add", "read n <counter; echo $((n + 1)) >counter; echo $FENCEPOST_TOKEN >>tokens\n");
    let each = "seq 25 | xargs -P 1 -I{} fencepost -q run counter -- sh add";
    scene.home.shell(&format!("for i in 1 2 3 4; do {each} & done; wait")).exits(0);
    assert_eq!(scene.home.read("counter"), "100\n");
    let tokens = scene.home.read("tokens");
    let tokens: Vec<u64> = tokens.lines().map(number).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn locks_below_different_chroots_are_different() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let other = format!("{}/jobs/nightly", scene.server.url());
    let home = Home::on(&other);
    home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    assert_eq!(scene.server.client().children("/jobs/nightly/fencepost").unwrap(), ["demo"]);
    scene.end(holder);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn ttl_that_the_server_does_not_grant_is_said_and_obeyed() {
    let settings = ["tickTime=1000", "minSessionTimeout=2000", "maxSessionTimeout=3000"];
    let server = fencepost_testkit::servers::ZooKeeperSetup::default().settings(&settings).start();
    let home = Home::on(&server.url());
    let run = home.run(["run", "--ttl", "30s", "demo", "--", "true"]).exits(0);
    assert!(run.stderr.contains("a ttl of 3s was granted, not 30s"), "{}", run.stderr);
    // Half of what is certain after a renewal, which is half of what was granted.
    let run = home.run(["run", "--ttl", "3s", "--grace", "700ms", "demo", "--", "true"]).exits(0);
    assert_eq!(run.stderr, "");
    let run = home.run(["run", "--ttl", "3s", "--grace", "800ms", "demo", "--", "touch", "ran"]).exits(64);
    assert!(run.stderr.contains("certain") && !home.path("ran").exists(), "{}", run.stderr);
    home.run(["status", "demo"]).exits(1);
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn ttl_above_the_longest_is_refused_with_a_hint() {
    let scene = Scene::new();
    let refused = scene.home.run(["run", "--ttl", "61s", "demo", "--", "touch", "ran"]).exits(64);
    assert!(refused.stderr.contains("hint:") && refused.stderr.contains("max_ttl"), "{}", refused.stderr);
    assert!(!scene.home.path("ran").exists());
}
