//! A holder whose way to the server is lost in every manner: all of its command has ended before the next one begins.

use fencepost_testkit::proxy::Mode;

use crate::faults::{last_act, start_tree};
use crate::scene::{Scene, Server};
use crate::support::{eventually, is_alive, number};

on_servers!([redis, etcd, zookeeper] {
    holder_behind_a_black_hole_has_ended_before_the_next_begins,
    holder_behind_a_black_hole_that_ignores_sigterm_has_ended_before_the_next_begins,
    holder_that_was_cut_off_has_ended_before_the_next_begins,
    holder_that_gets_no_replies_has_ended_before_the_next_begins,
    holder_whose_requests_are_lost_has_ended_before_the_next_begins,
    holder_of_a_stopped_server_has_ended_before_it_goes_on,
    holder_that_was_cut_off_for_a_moment_goes_on,
    black_hole_that_is_shorter_than_the_lease_is_survived,
    lease_is_kept_while_the_command_takes_all_processors,
});

const ROUNDS: usize = 3;

/// So many of the shortest leases.
fn ttl<S: Server>(count: u64) -> String {
    format!("{}s", S::TTL * count)
}

/// The next holder goes straight to the server and waits for the lock while the first one's way there is lost.
fn first_has_ended_before_the_next_begins<S: Server>(fault: Mode, trap: &str) {
    let scene = Scene::<S>::new();
    for _ in 0..ROUNDS {
        let home = scene.another_home();
        let (through, ttl) = (scene.through(), ttl::<S>(1));
        let args = ["run", "--backend", &through, "--ttl", &ttl, "--grace", "200ms", "--report", "report"];
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
        home.run(["status", "demo"]).exits(1);
        scene.assert_nothing_is_left();
    }
}

fn holder_behind_a_black_hole_has_ended_before_the_next_begins<S: Server>() {
    first_has_ended_before_the_next_begins::<S>(Mode::Blackhole, "");
}

fn holder_behind_a_black_hole_that_ignores_sigterm_has_ended_before_the_next_begins<S: Server>() {
    first_has_ended_before_the_next_begins::<S>(Mode::Blackhole, "trap '' TERM;");
}

fn holder_that_was_cut_off_has_ended_before_the_next_begins<S: Server>() {
    first_has_ended_before_the_next_begins::<S>(Mode::Cut, "trap '' TERM;");
}

/// Its requests arrive and no answer does: a server could keep the lock for it for ever, and nobody might be let in.
fn holder_that_gets_no_replies_has_ended_before_the_next_begins<S: Server>() {
    first_has_ended_before_the_next_begins::<S>(Mode::ReplyHole, "trap '' TERM;");
}

fn holder_whose_requests_are_lost_has_ended_before_the_next_begins<S: Server>() {
    first_has_ended_before_the_next_begins::<S>(Mode::RequestHole, "trap '' TERM;");
}

fn holder_of_a_stopped_server_has_ended_before_it_goes_on<S: Server>() {
    let scene = Scene::<S>::new();
    let args = ["run", "--ttl", "1s", "--grace", "200ms"];
    let (first, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    scene.server.stop();
    let first = first.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert!(first.stderr.contains("demo"), "{}", first.stderr);
    scene.server.go_on();
    let next = scene.home.run(["run", "--wait", "10s", "demo", "--", "date", "+%s%6N"]).exits(0);
    assert!(last_act(&scene.home) < number(&next.stdout));
}

fn holder_that_was_cut_off_for_a_moment_goes_on<S: Server>() {
    let scene = Scene::<S>::new();
    let (through, ttl) = (scene.through(), ttl::<S>(2));
    let run = scene.start_holder(&[
        "--backend",
        &through,
        "--ttl",
        &ttl,
        "--events",
        "events",
        "--report",
        "report",
    ]);
    for _ in 0..3 {
        scene.reset_connections();
        scene.await_renewals();
    }
    scene.end(run);
    assert_eq!(scene.home.json("report")["token"], number(&scene.home.read("held")));
    scene.assert_nothing_is_left();
}

fn black_hole_that_is_shorter_than_the_lease_is_survived<S: Server>() {
    let scene = Scene::<S>::new();
    let (through, ttl) = (scene.through(), ttl::<S>(10));
    let args =
        ["--backend", &through, "--ttl", &ttl, "--grace", "1s", "--events", "events", "--report", "report"];
    let run = scene.start_holder(&args);
    scene.proxy.set(Mode::Blackhole);
    // The silent connection is given up long before the lease ends.
    eventually("a second connection", || scene.proxy.connections() > 1);
    scene.proxy.set(Mode::Pass);
    scene.await_renewals();
    scene.end(run);
    assert_eq!(scene.home.json("report")["token"], number(&scene.home.read("held")));
    scene.assert_nothing_is_left();
}

fn lease_is_kept_while_the_command_takes_all_processors<S: Server>() {
    let (scene, ttl) = (Scene::<S>::new(), ttl::<S>(2));
    let script = "for i in $(seq 12); do timeout 2 sh -c 'while :; do :; done' & done; wait";
    let args = ["run", "--ttl", &ttl, "--events", "events", "demo", "--", "sh", "-c", script];
    scene.home.run(args).exits(0);
    assert!(scene.home.read("events").matches("\"renewed\"").count() >= 2);
}
