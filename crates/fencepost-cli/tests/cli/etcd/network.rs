//! A holder whose way to the server is lost in every manner: all of its command has ended before the next one begins.

use fencepost_testkit::proxy::Mode;

use super::{Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Home, eventually, is_alive};

/// The next holder goes straight to the server and waits for the lock while the first one's way there is lost.
fn first_has_ended_before_the_next_begins(fault: Mode, trap: &str) {
    let scene = Scene::new();
    for _ in 0..2 {
        let home = Home::on(&scene.server.url());
        let through = scene.through();
        let args = ["run", "--backend", &through, "--ttl", "1s", "--grace", "200ms", "--report", "report"];
        let (first, pids) = start_tree(&home, &args, trap);
        let next = home.start(["run", "--report", "next", "demo", "--", "date", "+%s%6N"]);
        home.await_waiter("demo");
        scene.proxy.set(fault);
        let first_act = number(&next.ends().exits(0).stdout);
        assert!(last_act(&home) < first_act, "{} then {first_act}", last_act(&home));
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        scene.proxy.set(Mode::Pass);
        let first = first.ends().exits(76);
        let (report, next) = (home.json("report"), home.json("next"));
        assert_eq!(report["outcome"], "lost");
        assert!(report["token"].as_u64().unwrap() < next["token"].as_u64().unwrap());
        let token = report["token"].to_string();
        let line = first.stderr.lines().find(|line| line.contains("error:")).unwrap();
        assert!(line.contains("demo") && line.contains(&token), "{line}");
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_behind_a_black_hole_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::Blackhole, "trap '' TERM;");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_that_was_cut_off_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::Cut, "");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_whose_requests_are_lost_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::RequestHole, "trap '' TERM;");
}

/// Its keep-alives arrive and no answer does: the server would keep the lock for it for ever, and nobody may be let in.
#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_that_gets_no_replies_has_ended_before_the_next_begins() {
    first_has_ended_before_the_next_begins(Mode::ReplyHole, "trap '' TERM;");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_that_was_cut_off_for_a_moment_goes_on() {
    let scene = Scene::new();
    let through = scene.through();
    let args = ["--backend", &through, "--ttl", "2s", "--events", "events", "--report", "report"];
    let run = scene.start_holder(&args);
    for _ in 0..3 {
        scene.reset_connections();
        scene.await_renewals();
    }
    scene.home.write("stop", "");
    run.ends().exits(0);
    assert_eq!(scene.home.json("report")["token"], number(&scene.home.read("held")));
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn black_hole_that_is_shorter_than_the_lease_is_survived() {
    let scene = Scene::new();
    let through = scene.through();
    let args = ["--backend", &through, "--ttl", "6s", "--events", "events", "--report", "report"];
    let run = scene.start_holder(&args);
    scene.proxy.set(Mode::Blackhole);
    eventually("a second connection", || scene.proxy.connections() > 1);
    scene.proxy.set(Mode::Pass);
    scene.await_renewals();
    scene.home.write("stop", "");
    run.ends().exits(0);
    assert_eq!(scene.home.json("report")["token"], number(&scene.home.read("held")));
    scene.assert_nothing_is_left();
}
