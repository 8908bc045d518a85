//! `acquire`, `renew`, `release` and `revoke`: a lease of a script, on one Redis and on several.

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::RedisServer;
use rustix::process::Signal;
use serde_json::Value;

use super::Scene;
use crate::support::{Home, json, number, sleep};

/// Acquires, and gives what was printed.
fn acquire(home: &Home, args: &[&str]) -> Value {
    json(&home.run(["acquire", "demo"].iter().chain(args)).exits(0))
}

fn lease(acquired: &Value) -> String {
    acquired["lease"].as_str().unwrap().to_owned()
}

fn state(home: &Home) -> Value {
    json(&home.run(["status", "--json", "demo"]))
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_of_a_script_lasts_while_it_renews_and_is_free_when_it_releases() {
    let scene = Scene::new();
    each_step_in_a_process_of_its_own(&scene.home, "redis");
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_of_a_script_is_kept_by_a_quorum() {
    let servers = RedisServer::start_several(3);
    let nodes: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let home = Home::on(&format!("redlock://{}?quarantine=off", nodes.join(",")));
    each_step_in_a_process_of_its_own(&home, "redlock");
}

fn each_step_in_a_process_of_its_own(home: &Home, backend: &str) {
    let acquired = acquire(home, &["--ttl", "2s", "--json"]);
    assert_eq!((&acquired["lock"], &acquired["backend"]), (&"demo".into(), &backend.into()));
    assert_eq!(acquired["ttl_ms"], 2_000);
    let seen = state(home);
    assert_eq!((&seen["state"], &seen["token"]), (&"held".into(), &acquired["token"]));
    assert_eq!(seen["holder"], acquired["holder"]);
    home.run(["acquire", "-n", "demo"]).exits(75);
    for _ in 0..4 {
        sleep(std::time::Duration::from_millis(700));
        let renewed = json(&home.run(["renew", "demo", "--lease", &lease(&acquired)]).exits(0));
        assert_eq!((&renewed["lease"], &renewed["token"]), (&acquired["lease"], &acquired["token"]));
        assert!((1_000..=2_000).contains(&renewed["remaining_ms"].as_u64().unwrap()), "{renewed}");
    }
    assert_eq!(state(home)["token"], acquired["token"], "it was renewed past its ttl");
    // By the environment as well, which not everybody can read.
    let release = |lease: &str| {
        let mut command = home.fencepost(["release", "demo"]);
        crate::support::Outcome::of(command.env("FENCEPOST_LEASE", lease).output().unwrap())
    };
    release(&lease(&acquired)).exits(0);
    home.run(["status", "demo"]).exits(1);
    let late = release(&lease(&acquired)).exits(76);
    assert!(late.stderr.contains("demo"), "{late:?}");
    let next = acquire(home, &["-n"]);
    assert!(next["token"].as_u64() > acquired["token"].as_u64());
    release(&lease(&acquired)).exits(76);
    assert_eq!(state(home)["token"], next["token"], "the lease of another was given back");
    release(&lease(&next)).exits(0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_that_has_ended_is_never_revived() {
    let scene = Scene::new();
    let acquired = acquire(&scene.home, &["--ttl", "300ms"]);
    scene.home.await_free("demo");
    scene.home.run(["renew", "demo", "--lease", &lease(&acquired)]).exits(76);
    scene.home.run(["status", "demo"]).exits(1);
    let next = acquire(&scene.home, &[]);
    scene.home.run(["renew", "demo", "--lease", &lease(&acquired)]).exits(76);
    assert_eq!(state(&scene.home)["token"], next["token"]);
    assert!(next["token"].as_u64() > acquired["token"].as_u64());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_of_another_and_one_that_was_cut_release_nothing() {
    let scene = Scene::new();
    let acquired = acquire(&scene.home, &[]);
    let other = json(&scene.home.run(["acquire", "other"]).exits(0));
    // The id of another lease, a cut one, and one of another lock.
    scene.home.run(["release", "demo", "--lease", &lease(&other)]).exits(76);
    scene.home.run(["release", "other", "--lease", &lease(&acquired)]).exits(76);
    let cut = lease(&acquired);
    let refused = scene.home.run(["release", "demo", "--lease", &cut[..cut.len() - 2]]).exits(64);
    assert!(refused.stderr.contains("fencepost acquire"), "{refused:?}");
    assert_eq!(state(&scene.home)["token"], acquired["token"]);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_for_a_lease_and_leaves_nothing() {
    let scene = Scene::new();
    let holder = acquire(&scene.home, &["--ttl", "30s"]);
    let waiter = scene.home.start(["acquire", "demo"]);
    scene.home.await_waiter("demo");
    waiter.signal(Signal::TERM);
    let ended = waiter.ends();
    assert_eq!((ended.code, &*ended.stdout), (Some(143), ""), "{ended:?}");
    scene.home.run(["release", "demo", "--lease", &lease(&holder)]).exits(0);
    scene.home.run(["status", "demo"]).exits(1);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_comes_with_its_fences_sealed() {
    let scene = Scene::new();
    let fence = format!("file:{}", scene.home.path("fence").display());
    std::fs::create_dir(scene.home.path("fence")).unwrap();
    let acquired = acquire(&scene.home, &["--fence", &fence]);
    let (token, holder) = (acquired["token"].to_string(), acquired["holder"].as_str().unwrap());
    scene.home.run(["fence", "check", &fence, "demo", &token, "--holder", holder]).exits(0);
    scene.home.run(["release", "demo", "--lease", &lease(&acquired)]).exits(0);
    // A fence that is ahead: nothing is held then.
    let ahead = (number(&token) + 1_000_000_000_000).to_string();
    scene.home.run(["fence", "seal", &fence, "demo", &ahead]).exits(0);
    scene.home.run(["acquire", "demo", "--fence", &fence]).exits(79);
    scene.home.run(["status", "demo"]).exits(1);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn silent_server_is_no_renewal() {
    let scene = Scene::new();
    let acquired = acquire(&scene.home, &["--ttl", "30s"]);
    scene.proxy.set(Mode::Blackhole);
    let through = scene.through();
    let refused = scene.home.run(["--backend", &through, "renew", "demo", "--lease", &lease(&acquired)]);
    refused.exits(69);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn lease_that_cannot_be_told_is_given_back() {
    let scene = Scene::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let told = scene.home.fencepost(["acquire", "demo"]).stdout(full).status().unwrap();
    assert_eq!(told.code(), Some(69));
    scene.home.run(["status", "demo"]).exits(1);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn who_is_turned_away_hears_who_has_the_lock() {
    let scene = Scene::new();
    acquire(&scene.home, &[]);
    let refused = scene.home.run(["acquire", "-n", "demo"]).exits(75);
    assert!(refused.stderr.contains("not acquired: demo is held by tester@"), "{refused:?}");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn fence_that_was_down_is_sealed_by_the_next_try() {
    let scene = Scene::new();
    let fence = format!("file:{}", scene.home.path("fence").display());
    std::fs::create_dir(scene.home.path("fence")).unwrap();
    let acquired = acquire(&scene.home, &["--fence", &fence]);
    let (token, holder) = (acquired["token"].to_string(), acquired["holder"].as_str().unwrap());
    let down = "redis://127.0.0.1:1";
    let revoke = |fences: &[&str]| {
        let args = ["revoke", "demo", "--yes", "--token", &token, "--reason", "x"];
        let fences = fences.iter().flat_map(|fence| ["--fence", fence]);
        scene.home.run(args.into_iter().chain(fences))
    };
    // One that is down keeps none of the others open.
    let failed = revoke(&[down, &fence]).exits(69);
    assert!(failed.stderr.contains("may still accept"), "{failed:?}");
    scene.home.run(["fence", "check", &fence, "demo", &token, "--holder", holder]).exits(79);

    let other = format!("file:{}", scene.home.path("other").display());
    std::fs::create_dir(scene.home.path("other")).unwrap();
    scene.home.run(["fence", "seal", &other, "demo", &token, "--holder", holder]).exits(0);
    revoke(&[&other]).exits(1);
    scene.home.run(["fence", "check", &other, "demo", &token, "--holder", holder]).exits(79);
    // Nobody else is shut out.
    scene.home.run(["run", "-n", "demo", "--fence", &other, "--fence", &fence, "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn revoked_command_is_stopped_and_told_why_and_the_fence_refuses_it() {
    let scene = Scene::new();
    let fence = format!("file:{}", scene.home.path("fence").display());
    std::fs::create_dir(scene.home.path("fence")).unwrap();
    let holder = scene.start_holder(&["--fence", &fence, "--report", "report", "--grace", "100ms"]);
    let token = scene.home.read("held").trim().to_owned();

    // Nobody is asked, and so nothing is done.
    let refused = scene.home.run(["revoke", "demo", "--token", &token, "--reason", "it hangs"]).exits(64);
    assert!(refused.stderr.contains("--yes"), "{refused:?}");
    let other = (number(&token) - 1).to_string();
    let not_current =
        scene.home.run(["revoke", "demo", "--yes", "--token", &other, "--reason", "x"]).exits(1);
    assert!(not_current.stderr.contains("no lease was taken away") && not_current.stderr.contains(&token));
    assert_eq!(scene.status("demo")["token"].to_string(), token);

    let args = ["revoke", "demo", "--yes", "--token", &token, "--reason", "it hangs", "--fence", &fence];
    scene.home.run(args).exits(0);
    let ended = holder.ends();
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.stderr.contains("it hangs"), "{ended:?}");
    let report = scene.home.json("report");
    assert_eq!((&report["outcome"], &report["lost_reason"]), (&"lost".into(), &"revoked".into()));
    let holder = report["holder"].as_str().unwrap();
    scene.home.run(["fence", "check", &fence, "demo", &token, "--holder", holder]).exits(79);
    scene.home.run(["fence", "seal", &fence, "demo", &token, "--holder", holder]).exits(79);
    // The next holder passes.
    scene.home.run(["run", "-n", "demo", "--fence", &fence, "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn revoke_raced_by_new_holders_hits_the_one_that_is_meant_or_none() {
    let scene = Scene::new();
    let script = "while [ ! -e stop ]; do fencepost -q run demo -- sh -c 'echo $FENCEPOST_TOKEN >>tokens; sleep 0.02'; echo $? >>codes; done";
    let shells: Vec<_> =
        (0..2).map(|_| crate::support::Running::of(scene.home.command("sh").args(["-c", script]))).collect();
    let (mut done, mut missed) = (0, 0);
    while done < 20 || missed < 5 {
        let seen = scene.home.read("tokens");
        let Some(token) = seen.lines().last() else { continue };
        match scene.home.run(["revoke", "demo", "--yes", "--token", token, "--reason", "raced"]).code {
            Some(0) => done += 1,
            Some(1) => missed += 1,
            other => panic!("revoke ends with {other:?}"),
        }
    }
    scene.home.write("stop", "");
    for shell in shells {
        drop(shell.ends());
    }
    // A run that was hit says so; no other is disturbed. One may have ended before it heard of it.
    let codes = scene.home.read("codes");
    let hit = codes.lines().filter(|code| *code == "76").count();
    assert!(hit > 0, "none of {done} was hit");
    assert!(hit <= done, "{hit} runs were stopped by {done} revocations ({missed} came too late)");
    assert!(codes.lines().all(|code| code == "0" || code == "76"), "{codes}");
    let tokens: Vec<u64> = scene.home.read("tokens").lines().map(number).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}
