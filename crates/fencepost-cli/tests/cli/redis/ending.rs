//! Requests whose reply is lost: a grant is never taken twice nor left behind, and a release is repeated until it is known.

use std::time::Duration;

use fencepost_testkit::proxy::Mode;
use rustix::process::Signal;

use super::{Scene, number};
use crate::support::{Running, eventually, now_micros};

/// A run through the proxy, whose grant was given and whose reply to that is held back.
fn start_unheard(scene: &Scene, hole: Mode, args: &[&str]) -> Running {
    scene.warm_up();
    // Long enough to see the grant on the server before its reply has arrived.
    scene.proxy.set(Mode::Delay(Duration::from_millis(150)));
    let (through, script) = (scene.through(), "date +%s%6N >>ran");
    let args = ["run", "--backend", &through].into_iter().chain(args.iter().copied());
    let run = scene.home.start(args.chain(["--ttl", "60s", "demo", "--", "sh", "-c", script]));
    let mut client = scene.server.client().unwrap();
    eventually("the grant", || client.command(&["EXISTS", "fencepost:{demo}:l"]).unwrap().integer() == 1);
    scene.proxy.set(hole);
    assert!(scene.proxy.held_replies() > 0, "the runner has not heard of it");
    run
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_whose_reply_was_lost_is_found_again() {
    let scene = Scene::new();
    let run = start_unheard(&scene, Mode::ReplyHole, &["--wait", "20s", "--report", "report"]);
    let healed_at = now_micros();
    scene.reset_connections();
    run.ends().exits(0);
    let ran = number(&scene.home.read("ran"));
    assert!(ran < healed_at + 10_000_000, "long before the ttl, and once");
    scene.assert_nothing_is_left();
    assert!(scene.home.json("report")["token"].is_u64());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_whose_reply_is_late_is_found_again_on_the_next_connection() {
    let scene = Scene::new();
    let run = start_unheard(&scene, Mode::ReplyHole, &["--wait", "30s"]);
    // The first connection is given up after two seconds, and what comes after it is held back as well.
    eventually("a second connection", || scene.proxy.connections() > 1);
    let healed_at = now_micros();
    scene.proxy.set(Mode::Pass);
    run.ends().exits(0);
    assert!(number(&scene.home.read("ran")) < healed_at + 10_000_000);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_that_was_never_heard_of_is_cancelled() {
    let scene = Scene::new();
    let run = start_unheard(&scene, Mode::ReplyHole, &["--wait", "2s", "--report", "report"]);
    let run = run.ends().exits(69);
    assert!(run.stderr.contains("may have granted"), "{}", run.stderr);
    assert!(!scene.home.path("ran").exists());
    assert_eq!(scene.home.json("report")["outcome"], "unavailable");
    eventually("the cancellation", || !scene.has_place("demo"));
    super::assert_all_expire(&scene.server);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_behind_a_black_hole_is_cancelled_when_that_is_over() {
    let scene = Scene::new();
    let run = start_unheard(&scene, Mode::Blackhole, &["--wait", "2s"]);
    let run = run.ends().exits(69);
    assert!(run.stderr.contains("ttl"), "{}", run.stderr);
    assert!(!scene.home.path("ran").exists());
    assert!(scene.has_place("demo"), "nothing could be done about it");
    scene.proxy.set(Mode::Pass);
    eventually("the cancellation", || !scene.has_place("demo"));
}

/// Loses the first try of a release in `hole` and then lets everything pass.
fn release_outlives(hole: Mode, is_lost: impl Fn(&Scene) -> bool) {
    let scene = Scene::new();
    scene.warm_up();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s"]);
    scene.proxy.set(hole);
    scene.home.write("stop", "");
    eventually("a lost release", || is_lost(&scene));
    scene.reset_connections();
    let run = run.ends().exits(0);
    assert_eq!(run.stderr, "");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn release_whose_reply_was_lost_was_one() {
    release_outlives(Mode::ReplyHole, |scene| !scene.has_place("demo") && scene.proxy.held_replies() > 0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn release_that_was_lost_on_its_way_is_sent_again() {
    release_outlives(Mode::RequestHole, |scene| scene.proxy.held_requests() > 0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn release_behind_a_black_hole_is_sent_again_when_that_is_over() {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s"]);
    scene.proxy.set(Mode::Blackhole);
    scene.home.write("stop", "");
    eventually("a second connection", || scene.proxy.connections() > 1);
    assert!(scene.has_place("demo"));
    scene.proxy.set(Mode::Pass);
    run.ends().exits(0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn release_that_could_not_be_sent_is_said_and_bounded_by_the_ttl() {
    let scene = Scene::new();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "1500ms"]);
    scene.proxy.set(Mode::Cut);
    scene.home.write("stop", "");
    let run = run.ends().exits(0);
    assert!(run.stderr.contains("demo: cannot release the lock"), "{}", run.stderr);
    scene.home.run(["run", "--wait", "10s", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn grant_that_is_over_when_its_reply_comes_starts_no_command() {
    let scene = Scene::new();
    scene.warm_up();
    scene.proxy.set(Mode::Delay(Duration::from_millis(600)));
    let through = scene.through();
    let args =
        ["run", "--backend", &through, "--ttl", "1s", "--report", "report", "demo", "--", "touch", "ran"];
    scene.home.run(args).exits(76);
    assert!(!scene.home.path("ran").exists(), "the deadline is counted from before the request");
    assert_eq!(scene.home.json("report")["outcome"], "lost");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_for_a_release_that_nobody_answers() {
    let scene = Scene::new();
    scene.warm_up();
    let through = scene.through();
    let run = scene.start_holder(&["--backend", &through, "--ttl", "60s", "--report", "report"]);
    scene.proxy.set(Mode::Blackhole);
    scene.home.write("stop", "");
    eventually("a lost release", || scene.proxy.held_requests() > 0);
    let sent_at = now_micros();
    run.signal(Signal::TERM);
    let run = run.ends().exits(0);
    assert!(now_micros() - sent_at < 1_800_000, "at once, and not at the end of the ttl");
    assert!(run.stderr.contains("demo: cannot release the lock") && run.stderr.contains("ttl"), "{run:?}");
    assert_eq!(scene.home.json("report")["outcome"], "ran");
    scene.proxy.set(Mode::Pass);
    eventually("the release that was held up", || !scene.has_place("demo"));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn silent_server_does_not_hold_up_the_release_on_another() {
    let (silent, other) = (Scene::new(), Scene::new());
    other.home.write(
        "fencepost.toml",
        &format!(
            "[backends.silent]\nurl = {:?}\n[backends.other]\nurl = {:?}\n\
             [[locks]]\nmatch = 'z'\nbackend = 'silent'\n[[locks]]\nmatch = '*'\nbackend = 'other'\n",
            silent.through(),
            other.url()
        ),
    );
    let script = "echo >held; while [ ! -e stop ]; do sleep 0.02; done";
    let _run = other.home.start(["run", "--ttl", "60s", "demo", "z", "--", "sh", "-c", script]);
    other.home.await_file("held");
    assert!(silent.has_place("z") && other.has_place("demo"));
    silent.proxy.set(Mode::Blackhole);
    other.home.write("stop", "");
    eventually("the release on the other", || !other.has_place("demo"));
    assert!(silent.has_place("z"));
}
