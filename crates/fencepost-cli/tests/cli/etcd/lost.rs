//! A lease that is taken away under its holder: the command is ended at once, and the reason is said.

use super::{Scene, number};
use crate::faults::{last_act, start_tree};
use crate::support::{is_alive, now_micros};

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn revoked_holder_ends_its_command_and_says_why() {
    for trap in ["", "trap '' TERM;"] {
        let scene = Scene::new();
        let args = ["run", "--grace", "200ms", "--report", "report", "--events", "events"];
        let (run, pids) = start_tree(&scene.home, &args, trap);
        let token = scene.status("demo")["token"].to_string();
        let locks = fencepost::connect(&scene.server.url()).unwrap();
        let revoke = |token: u64| {
            let token = fencepost::FencingToken::try_from(token).unwrap();
            fencepost::block_on(locks.revoke("demo", token, "night shift")).unwrap()
        };
        assert_eq!(revoke(number(&token) + 1), fencepost::Revoked::NotCurrent);
        let revoked_at = now_micros();
        assert_eq!(revoke(number(&token)), fencepost::Revoked::Done);
        let run = run.ends().exits(76);
        assert!(last_act(&scene.home) < revoked_at + 1_500_000, "{} µs", last_act(&scene.home) - revoked_at);
        assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
        let report = scene.home.json("report");
        assert_eq!((&report["outcome"], &report["lost_reason"]), (&"lost".into(), &"revoked".into()));
        let line = run.stderr.lines().find(|line| line.contains("error:")).unwrap();
        assert!(line.contains("demo") && line.contains(&token) && line.contains("night shift"), "{line}");
        let next = scene.home.run(["run", "-n", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0);
        assert!(number(&next.stdout) > number(&token));
        scene.assert_nothing_is_left();
    }
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_whose_etcd_lease_is_revoked_ends_its_command() {
    let scene = Scene::new();
    let (run, pids) = start_tree(&scene.home, &["run", "--grace", "200ms", "--report", "report"], "");
    let leases = scene.server.control(&["lease", "list"]);
    scene.server.control(&["lease", "revoke", leases.lines().nth(1).unwrap()]);
    run.ends().exits(76);
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert_eq!(scene.home.json("report")["lost_reason"], "expired");
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn holder_of_several_locks_that_loses_one_ends_its_command() {
    let scene = Scene::new();
    let script = "echo >held; sleep 60";
    let run = scene.home.start(["run", "--report", "report", "demo", "other", "--", "sh", "-c", script]);
    scene.home.await_file("held");
    scene.server.control(&["del", "--prefix", "/fencepost/other/q/"]);
    run.ends().exits(76);
    scene.home.run(["run", "-n", "demo", "other", "--", "true"]).exits(0);
}
