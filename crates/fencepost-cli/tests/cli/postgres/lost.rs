//! A session that ends under its holder: the command is ended at once, and a server that has lost its locks grants nothing for
//! as long as a lease that it has forgotten may last.

use fencepost_testkit::servers::PostgresServer;

use super::{Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::{Home, eventually, is_alive, now_micros};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_whose_session_was_ended_ends_its_command_within_a_second() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let args = ["run", "--grace", "200ms", "--report", "report", "--events", "events"];
        let (run, pids) = start_tree(&scene.home, &args, trap);
        let ended_at = now_micros();
        scene.server.terminate(scene.holding("demo").unwrap());
        let run = run.ends().exits(76);
        assert!(last_act(&scene.home) < ended_at + 1_500_000, "{} µs", last_act(&scene.home) - ended_at);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        let report = scene.home.json("report");
        assert_eq!((&report["outcome"], &report["lost_reason"]), (&"lost".into(), &"session_ended".into()));
        let token = report["token"].to_string();
        let line = run.stderr.lines().find(|line| line.contains("error:")).unwrap();
        assert!(line.contains("demo") && line.contains(&token), "{line}");
        assert!(line.contains("terminating connection"), "{line}");
        assert!(scene.home.read("events").contains("\"lost\""));
        let next = scene.home.run(["run", "-n", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
        assert!(number(&next.stdout) > report["token"].as_u64().unwrap());
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lost_lock_is_lost_whatever_the_command_returns() {
    let scene = Scene::new();
    let script = "trap 'exit 0' TERM; echo >held; while :; do sleep 0.02; done";
    let run = scene.home.start(["run", "demo", "--", "sh", "-c", script]);
    scene.home.await_file("held");
    scene.server.terminate(scene.holding("demo").unwrap());
    run.ends().exits(76);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn on_lost_warn_lets_the_command_run_on() {
    let scene = Scene::new();
    let script = "echo >held; while [ ! -e stop ]; do sleep 0.02; done; echo done";
    let args = ["run", "--on-lost", "warn", "--events", "events", "demo", "--", "sh", "-c", script];
    let run = scene.home.start(args);
    scene.home.await_file("held");
    scene.server.terminate(scene.holding("demo").unwrap());
    scene.home.run(["run", "--wait", "20s", "demo", "--", "true"]).exits(0);
    // Whoever is next may be done before the news has reached the first one.
    eventually("the loss", || scene.home.read("events").contains("\"lost\""));
    scene.home.write("stop", "");
    let run = run.ends().exits(76);
    assert_eq!(run.stdout, "done\n");
    assert!(run.stderr.contains("demo") && run.stderr.contains("runs on"), "{}", run.stderr);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn loss_of_one_session_is_the_loss_of_all_its_locks() {
    let scene = Scene::new();
    let script = "echo >held; sleep 60";
    let run = scene.home.start(["run", "--report", "report", "demo", "other", "--", "sh", "-c", script]);
    scene.home.await_file("held");
    scene.server.terminate(scene.holding("other").unwrap());
    run.ends().exits(76);
    assert_eq!(scene.home.json("report")["lost_reason"], "session_ended");
    scene.home.run(["run", "-n", "demo", "other", "--", "true"]).exits(0);
}

/// Everybody loses their session, and until the lease must be over nobody else is let in. A waiter lives through it.
fn nobody_is_let_in_for_the_longest_ttl_after(loss: impl FnOnce(&mut PostgresServer)) {
    let mut scene = Scene::with("max_ttl=3s");
    let args = ["run", "--ttl", "3s", "--grace", "200ms", "--report", "report"];
    let (first, pids) = start_tree(&scene.home, &args, "trap '' TERM;");
    let script = "date +%s%6N; echo $FENCEPOST_TOKEN";
    let next = scene.home.start(["run", "--ttl", "3s", "demo", "--", "sh", "-c", script]);
    scene.home.await_waiter("demo");
    let lost_at = now_micros();
    loss(&mut scene.server);
    let refused = scene.home.run(["run", "-n", "--ttl", "3s", "demo", "--", "touch", "ran"]).exits(75);
    assert!(refused.stderr.contains("grants nothing for another"), "{}", refused.stderr);
    assert!(refused.stderr.contains("it has lost its locks"), "{}", refused.stderr);
    assert_eq!(scene.status("demo")["state"], "quarantined");
    let short = scene.home.run(["run", "--ttl", "3s", "-w", "200ms", "demo", "--", "touch", "ran"]).exits(75);
    assert!(short.stderr.contains("grants nothing for another"), "{}", short.stderr);
    first.ends().exits(76);
    assert!(last_act(&scene.home) < lost_at + 1_500_000);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    let next = next.ends().exits(0);
    assert!(next.stderr.contains("grants nothing for another"), "it says why it waits: {}", next.stderr);
    let (began, token) = next.stdout.split_once('\n').unwrap();
    assert!(number(began) > lost_at + 3_000_000);
    assert!(number(token) > scene.home.json("report")["token"].as_u64().unwrap());
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn nobody_is_let_in_for_the_longest_ttl_after_a_crash() {
    nobody_is_let_in_for_the_longest_ttl_after(PostgresServer::restart);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn nobody_is_let_in_for_the_longest_ttl_after_an_immediate_restart() {
    nobody_is_let_in_for_the_longest_ttl_after(|server| {
        server.shut_down_immediately();
        server.restart();
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn nobody_is_let_in_for_the_longest_ttl_after_a_restart() {
    nobody_is_let_in_for_the_longest_ttl_after(PostgresServer::restart_cleanly);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn nobody_is_let_in_for_the_longest_ttl_after_the_crash_of_one_session() {
    nobody_is_let_in_for_the_longest_ttl_after(|server| {
        let other =
            server.query("select pid from pg_stat_activity where application_name = 'fencepost' limit 1");
        server.kill_session(other.parse().unwrap());
    });
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn quarantine_can_be_left_out_and_tokens_grow_all_the_same() {
    let mut server = PostgresServer::start();
    let home = Home::on(&format!("{}?quarantine=off", server.url()));
    let token =
        || number(&home.run(["run", "-n", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0).stdout);
    let mut last = token();
    for _ in 0..3 {
        server.restart();
        let next = token();
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}
