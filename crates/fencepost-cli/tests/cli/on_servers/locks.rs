//! Locks when nothing goes wrong: several of them, from several shells, on other backends besides, and their times.

use serde_json::Value;

use crate::scene::{Scene, Server};
use crate::support::{Home, all_end, now_micros, number};

on_servers!([redis, postgres, etcd, zookeeper] {
    several_locks_are_taken_all_or_none,
    several_locks_in_any_order_do_not_deadlock,
    locks_of_a_file_and_of_a_server_are_held_together,
    lock_stays_taken_at_least_so_long,
    ttl_above_the_longest_is_refused_with_a_hint,
    runs_of_several_shells_count_every_addition,
});

fn several_locks_are_taken_all_or_none<S: Server>() {
    let scene = Scene::<S>::new();
    let script =
        "echo $FENCEPOST_LOCK $FENCEPOST_BACKEND_KIND; echo $FENCEPOST_TOKENS; fencepost list --json";
    let run = scene.home.run(["run", "b", "a", "--", "sh", "-c", script]).exits(0);
    let mut lines = run.stdout.lines();
    assert_eq!(lines.next(), Some(format!("b {}", S::KIND).as_str()));
    let tokens: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&tokens[0]["lock"], &tokens[1]["lock"]), (&"b".into(), &"a".into()));
    let list: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&list[0]["token"], &list[1]["token"]), (&tokens[1]["token"], &tokens[0]["token"]));
    let holder = scene.start_holder(&["--ttl", "20s"]);
    scene.home.run(["run", "-n", "a", "demo", "z", "--", "touch", "ran"]).exits(75);
    scene.home.run(["run", "--wait", "1s", "a", "demo", "z", "--", "touch", "ran"]).exits(75);
    for free in ["a", "z"] {
        scene.home.run(["status", free]).exits(1);
    }
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

fn several_locks_in_any_order_do_not_deadlock<S: Server>() {
    let scene = Scene::<S>::new();
    let runs: Vec<_> = (0..6)
        .map(|index| {
            let order = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]][index % 3];
            scene.home.start(["run"].into_iter().chain(order).chain(["--", "sleep", "0.02"]))
        })
        .collect();
    all_end(runs, 0);
    scene.assert_nothing_is_left();
}

fn locks_of_a_file_and_of_a_server_are_held_together<S: Server>() {
    let (scene, home) = (Scene::<S>::new(), Home::new());
    home.write(
        "fencepost.toml",
        &format!(
            "[backends.far]\nurl = {:?}\n[backends.near]\nurl = 'file:{}'\n\
             [[locks]]\nmatch = 'far/**'\nbackend = 'far'\n[[locks]]\nmatch = '**'\nbackend = 'near'\n",
            scene.url(),
            home.path("locks").display()
        ),
    );
    let script = "fencepost list --json; echo $FENCEPOST_BACKEND_KIND";
    let run = home.run(["run", "near", "far/1", "--report", "report", "--", "sh", "-c", script]).exits(0);
    let (list, kind) = run.stdout.split_once('\n').unwrap();
    let list: Value = serde_json::from_str(list).unwrap();
    let shown: Vec<_> = list.as_array().unwrap().iter().map(|one| (&one["lock"], &one["backend"])).collect();
    assert_eq!(shown, [(&"far/1".into(), &S::KIND.into()), (&"near".into(), &"file".into())]);
    assert_eq!(kind.trim(), "file", "that of the first");
    assert_eq!(home.json("report")["locks"][1]["backend"], S::KIND);
    let holder = home.start(["run", "near", "far/1", "--", "sh", "-c", "echo >held; sleep 60"]);
    home.await_file("held");
    holder.kill();
    home.run(["run", "--wait", "20s", "far/1", "near", "--", "true"]).exits(0);
}

fn lock_stays_taken_at_least_so_long<S: Server>() {
    let scene = Scene::<S>::new();
    let before = now_micros();
    scene.home.run(["run", "--at-least", "2s", "demo", "--", "true"]).exits(0);
    let waiter = scene.home.start(["run", "demo", "--", "date", "+%s%6N"]);
    let status = scene.status("demo");
    assert_eq!((&status["state"], &status["holder"]), (&"resting".into(), &Value::Null));
    let refused = scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    assert!(refused.stderr.contains("demo is resting"), "{}", refused.stderr);
    let began = number(&waiter.ends().exits(0).stdout);
    assert!(began > before + 2_000_000, "{}", began - before);
    scene.assert_nothing_is_left();
}

fn ttl_above_the_longest_is_refused_with_a_hint<S: Server>() {
    let scene = Scene::<S>::new();
    let refused = scene.home.run(["run", "--ttl", "61s", "demo", "--", "touch", "ran"]).exits(64);
    assert!(refused.stderr.contains("hint:") && refused.stderr.contains("max_ttl"), "{}", refused.stderr);
    assert!(!scene.home.path("ran").exists());
    let longer = scene.url_with("max_ttl=2m");
    scene.home.run(["run", "--backend", &longer, "--ttl", "61s", "demo", "--", "true"]).exits(0);
}

fn runs_of_several_shells_count_every_addition<S: Server>() {
    let scene = Scene::<S>::new();
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
