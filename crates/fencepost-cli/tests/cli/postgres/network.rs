//! A holder whose way to the server is lost: all of its command has ended before the next one begins, or as soon as it can be told.

use fencepost_testkit::proxy::Mode;

use super::{Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Home, eventually, is_alive, now_micros};

const ROUNDS: usize = 5;

/// The holder loses its way to the server in `fault`; another one waits there, with a way of its own.
fn first_has_ended_before_the_next_begins(fault: Mode, options: &str, trap: &str) {
    let scene = Scene::new();
    for _ in 0..ROUNDS {
        let home = Home::on(&format!("{}?{options}", scene.server.url()));
        let through = format!("{}?{options}", scene.through());
        let args = ["run", "--backend", &through, "--ttl", "1s", "--grace", "200ms", "--report", "report"];
        let (first, pids) = start_tree(&home, &args, trap);
        let next = home.start(["run", "--report", "next", "demo", "--", "date", "+%s%6N"]);
        home.await_waiter("demo");
        let cut_at = now_micros();
        scene.proxy.set(fault);
        let first = first.ends().exits(76);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        assert!(last_act(&home) < cut_at + 1_000_000, "before its deadline");
        // Where nothing expires, the server hears of its end only now.
        scene.proxy.set(Mode::Pass);
        let first_act = number(&next.ends().exits(0).stdout);
        assert!(last_act(&home) < first_act, "{} then {first_act}", last_act(&home));
        let (report, next) = (home.json("report"), home.json("next"));
        assert_eq!(report["outcome"], "lost");
        assert!(report["token"].as_u64().unwrap() < next["token"].as_u64().unwrap());
        let token = report["token"].to_string();
        let line = first.stderr.lines().find(|line| line.contains("error:")).unwrap();
        assert!(line.contains("demo") && line.contains(&token), "{line}");
        home.run(["status", "demo"]).exits(1);
    }
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_behind_a_black_hole_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::Blackhole, "on_pause=hold", "");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_behind_a_black_hole_that_ignores_sigterm_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::Blackhole, "on_pause=hold", "trap '' TERM;");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_that_gets_no_replies_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::ReplyHole, "on_pause=hold", "trap '' TERM;");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_whose_requests_are_lost_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::RequestHole, "on_pause=hold", "trap '' TERM;");
}

/// The lock expires at the server, and the next one begins while the first one's way there is still lost.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn expired_holder_behind_a_black_hole_has_ended_before_the_next_begins() {
    let scene = Scene::with("on_pause=expire");
    for trap in ["", "trap '' TERM;", "", "trap '' TERM;", "trap '' TERM;"] {
        let home = Home::on(&format!("{}?on_pause=expire", scene.server.url()));
        let through = format!("{}?on_pause=expire", scene.through());
        let args = ["run", "--backend", &through, "--ttl", "1s", "--grace", "200ms"];
        let (first, pids) = start_tree(&home, &args, trap);
        let next = home.start(["run", "demo", "--", "date", "+%s%6N"]);
        home.await_waiter("demo");
        scene.proxy.set(Mode::Blackhole);
        let first_act = number(&next.ends().exits(0).stdout);
        assert!(last_act(&home) < first_act, "{} then {first_act}", last_act(&home));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        scene.proxy.set(Mode::Pass);
        first.ends().exits(76);
    }
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_whose_connection_was_cut_is_told_at_once() {
    let scene = Scene::new();
    let through = scene.through();
    let args = ["run", "--backend", &through, "--grace", "200ms", "--report", "report"];
    let (first, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    let cut_at = now_micros();
    scene.proxy.set(Mode::Cut);
    first.ends().exits(76);
    assert!(last_act(&scene.home) < cut_at + 1_500_000);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(scene.home.json("report")["lost_reason"], "session_ended");
    scene.home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn black_hole_that_is_shorter_than_the_lease_is_survived() {
    let scene = Scene::new();
    let through = scene.through();
    let args = ["--backend", &through, "--ttl", "8s", "--events", "events", "--report", "report"];
    let run = scene.start_holder(&args);
    scene.proxy.set(Mode::Blackhole);
    eventually("a renewal on its way", || scene.proxy.held_requests() > 0);
    crate::support::sleep(std::time::Duration::from_secs(1));
    scene.proxy.set(Mode::Pass);
    let before = scene.home.read("events").matches("\"renewed\"").count();
    eventually("a renewal", || scene.home.read("events").matches("\"renewed\"").count() > before);
    scene.end(run);
    assert_eq!(scene.home.json("report")["token"], number(&scene.home.read("held")));
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn killed_holder_behind_a_black_hole_is_free_when_that_is_over() {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s"]);
    scene.proxy.set(Mode::Blackhole);
    run.kill();
    crate::support::sleep(std::time::Duration::from_millis(300));
    assert!(scene.holding("demo").is_some(), "the server cannot know");
    scene.proxy.set(Mode::Pass);
    scene.home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn waiter_lives_through_a_cut_and_is_granted_once() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let through = scene.through();
    let script = "echo $FENCEPOST_TOKEN >>ran";
    let waiter = scene.home.start(["run", "--backend", &through, "demo", "--", "sh", "-c", script]);
    scene.home.await_waiter("demo");
    for _ in 0..3 {
        scene.proxy.set(Mode::Cut);
        scene.proxy.set(Mode::Pass);
        scene.home.await_waiter("demo");
    }
    scene.end(holder);
    waiter.ends().exits(0);
    assert_eq!(scene.home.read("ran").lines().count(), 1);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn grant_whose_reply_was_lost_starts_no_command_and_is_not_left_behind() {
    let scene = Scene::new();
    scene.home.run(["run", "demo", "--", "true"]).exits(0);
    let holder = scene.start_holder(&[]);
    let through = scene.through();
    let waiter = scene.home.start([
        "run",
        "--backend",
        &through,
        "-w",
        "4s",
        "demo",
        "--",
        "sh",
        "-c",
        "date +%s%6N >>ran",
    ]);
    scene.home.await_waiter("demo");
    scene.proxy.set(Mode::ReplyHole);
    scene.end(holder);
    eventually("the grant", || scene.holding("demo").is_some());
    let waiter = waiter.ends().exits(69);
    assert!(!scene.home.path("ran").exists(), "{waiter:?}");
    scene.proxy.set(Mode::Pass);
    scene.home.run(["run", "--wait", "5s", "demo", "--", "true"]).exits(0);
    scene.assert_nothing_is_left();
}
