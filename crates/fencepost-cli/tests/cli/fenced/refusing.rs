//! A fence that cannot be used, or that has seen a greater token: the command is not started, and the reason is told.

use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresSetup};

use super::{ADD, LOCK, Scene, assert_says, psql};
use crate::support::{Home, Outcome};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn mark_ahead_of_the_lock_starts_nothing_and_names_the_way() {
    let scene = Scene::new();
    scene.home.run(["fence", "seal", &scene.url, LOCK, "9000000000000000000"]).exits(0);
    let args = ["run", "--report", "report", "--fence", &scene.url, LOCK, "--", "touch", "ran"];
    let stale = scene.home.run(args).exits(79);
    assert_says(&stale, &["the mark is 9000000000000000000", "fencepost lift", LOCK]);
    assert_eq!(scene.home.json("report")["outcome"], "stale");
    assert!(!scene.home.path("ran").exists());
    scene.home.run(["status", LOCK]).exits(1);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn fence_that_is_away_starts_nothing() {
    let mut scene = Scene::new();
    scene.server.kill();
    for args in [&["-n"][..], &["--wait", "1s"]] {
        let all =
            ["run", "--report", "report", "--fence", &scene.url].into_iter().chain(args.iter().copied());
        let outcome = scene.home.run(all.chain([LOCK, "--", "touch", "ran"])).exits(69);
        assert_says(&outcome, &["refused"]);
        assert_eq!(scene.home.json("report")["outcome"], "unavailable");
        assert!(!scene.home.path("ran").exists());
        scene.home.run(["status", LOCK]).exits(1);
    }
    for verb in ["seal", "check"] {
        scene.home.run(["fence", verb, &scene.url, LOCK, "8"]).exits(69);
    }
    scene.home.run(["fence", "show", &scene.url]).exits(69);
    scene.home.run(["fence", "install", &scene.url]).exits(69);
    scene.server.restart();
    scene.run("true").exits(0);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn standby_is_no_fence() {
    let scene = Scene::new();
    let standby = scene.server.standby();
    let url = standby.url();
    for args in
        [&["seal", &url, LOCK, "8"][..], &["check", &url, LOCK, "8"], &["show", &url], &["install", &url]]
    {
        let outcome = scene.home.run(["fence"].iter().chain(args)).exits(69);
        assert_says(&outcome, &["standby"]);
    }
    scene.home.run(["run", "-n", "--fence", &url, LOCK, "--", "touch", "ran"]).exits(69);
    assert!(!scene.home.path("ran").exists());
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn wrong_password_is_denied_and_none_is_shown() {
    let server = PostgresSetup::default().password("s3cret").start();
    let home = Home::new();
    for (password, code) in [("s3cret", 0), ("wr0ng", 77)] {
        let url = server.url_of(&format!("postgres:{password}"), "postgres");
        for args in [
            &["fence", "seal", &url, LOCK, "8"][..],
            &["fence", "check", &url, LOCK, "8"],
            &["fence", "show", &url],
            &["fence", "install", &url],
            &["fence", "uninstall", &url],
            &["fence", "install", "--dry-run", &url],
            &[
                "-v", "run", "--report", "report", "--events", "events", "--fence", &url, "other", "--",
                "true",
            ],
            &["fence", "forget", "--yes", &url, LOCK],
        ] {
            let outcome = home.run(args);
            let expected = if args.contains(&"--dry-run") { 0 } else { code };
            assert_eq!(outcome.code, Some(expected), "{args:?}: {outcome:?}");
            assert_says(&outcome, &["can read the password"]);
            let all = format!("{outcome:?}{}{}", home.read("report"), home.read("events"));
            assert!(!all.contains(password), "{all}");
        }
    }
    let none = home.run(["fence", "show", &server.url_of("postgres", "postgres")]).exits(77);
    assert_says(&none, &["password"]);
    let mut command = home.fencepost(["fence", "show", &server.url_of("postgres", "postgres")]);
    Outcome::of(command.env("PGPASSWORD", "s3cret").output().unwrap()).exits(0);
}

/// The pooler takes no options of a client, and so not the stamp either.
#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn pooler_that_drops_the_stamp_has_the_write_refused() {
    let scene = Scene::new();
    let ignoring = ["ignore_startup_parameters=options"];
    let pooler = PgBouncer::start(&scene.server, PoolMode::Transaction, &ignoring);
    let through = |script: &str| script.replace("\"$DB\"", &pooler.url());
    assert_says(&scene.run(&through(&psql(ADD))).exits(1), &["FP001", "no stamp"]);
    let check = "\"begin; select fencepost.check('$FENCEPOST_LOCK', $FENCEPOST_TOKEN, '$FENCEPOST_HOLDER'); \
                 update account set total = total + 1; commit\"";
    scene.run(&through(&psql(check))).exits(0);
    assert_eq!(scene.total(), "1");
}

/// The fence itself needs no stamp, and so is asked without the one that the run has put into the environment.
#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn fence_behind_a_pooler_can_be_asked_inside_a_run() {
    let scene = Scene::new();
    let pooler = PgBouncer::start(&scene.server, PoolMode::Transaction, &[]);
    let script = format!("fencepost fence check {}", pooler.url());
    scene.run_with(&["--fence", &pooler.url(), LOCK], &script).exits(0);
    let script = format!("fencepost run --fence {0} other -- fencepost fence check {0}", pooler.url());
    scene.run_with(&["--fence", &pooler.url(), LOCK], &script).exits(0);
}
