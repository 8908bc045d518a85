//! Locks in a Postgres database when nothing goes wrong: several of them, their names, their options, and times.

use super::{Scene, all_end, json, number};
use crate::support::{Home, eventually, now_micros};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn command_is_told_its_lock_and_the_report_agrees() {
    let scene = Scene::new();
    let script = "echo $FENCEPOST_LOCK $FENCEPOST_BACKEND_KIND $FENCEPOST_TOKEN $FENCEPOST_HOLDER";
    let args = ["run", "--report", "report", "--events", "events", "demo", "--", "sh", "-c", script];
    let run = scene.home.run(args).exits(0);
    assert_eq!(run.stderr, "", "run itself is silent when all goes well");
    let report = scene.home.json("report");
    let (token, holder) = (&report["token"], report["holder"].as_str().unwrap());
    assert_eq!(run.stdout, format!("demo postgres {token} {holder}\n"));
    assert_eq!((&report["backend"], &report["outcome"]), (&"postgres".into(), &"ran".into()));
    for event in ["waiting", "acquired", "released"] {
        assert!(scene.home.read("events").contains(&format!("\"{event}\"")), "{event}");
    }
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn several_locks_of_one_run_hold_one_connection() {
    let scene = Scene::new();
    let script = "echo $FENCEPOST_TOKENS >tokens; echo >held; while [ ! -e stop ]; do sleep 0.02; done";
    let holder = scene.home.start(["run", "b", "a", "c", "--", "sh", "-c", script]);
    scene.home.await_line("held");
    assert_eq!(scene.sessions(), 1);
    let sessions = ["a", "b", "c"].map(|lock| scene.holding(lock).expect("it is held"));
    assert!(sessions.iter().all(|session| *session == sessions[0]), "{sessions:?}");
    let tokens = scene.home.json("tokens");
    assert_eq!((&tokens[0]["lock"], &tokens[1]["lock"]), (&"b".into(), &"a".into()));
    let list = json(&scene.home.run(["list", "--json"]).exits(0));
    assert_eq!((&list[0]["token"], &list[1]["token"]), (&tokens[1]["token"], &tokens[0]["token"]));
    scene.end(holder);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn odd_names_are_different_locks_and_shown_as_they_are() {
    let scene = Scene::new();
    let long = "x".repeat(1000);
    let names = [
        "a//b",
        "a/b",
        "a%b",
        "a_b",
        "a b",
        "A/b",
        "'; drop table fencepost.lock; --",
        "\"a\"",
        "$1",
        "a\\b",
        "*",
        "NULL",
        "ä",
        "a\u{308}",
        "🔒",
        "plumless",
        "buckeroo",
        &long,
    ];
    let holders = scene.hold_each_of(&names);
    for (prefix, count) in [("a/", 2), ("a_", 1), ("a%", 1), ("a", 7)] {
        let list = json(&scene.home.run(["list", "--json", prefix]).exits(0));
        assert_eq!(list.as_array().unwrap().len(), count, "{prefix}: {list}");
    }
    scene.home.run(["status", "a"]).exits(1);
    drop(holders);
    for name in names {
        scene.home.run(["run", "--wait", "20s", name, "--", "true"]).exits(0);
    }
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn same_name_in_two_databases_is_two_locks() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    scene.server.create_database("other");
    let other = Home::on(&scene.server.url_of("postgres", "other"));
    other.run(["status", "demo"]).exits(1);
    other.run(["run", "-n", "demo", "--", "true"]).exits(0);
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(75);
    scene.end(holder);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn lock_that_was_waited_for_stays_taken_at_least_so_long_too() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let waiter = scene.home.start(["run", "--at-least", "3s", "demo", "--", "date", "+%s%6N"]);
    scene.home.await_waiter("demo");
    scene.end(holder);
    let began = number(&waiter.ends().exits(0).stdout);
    let next = scene.home.run(["run", "--wait", "20s", "demo", "--", "date", "+%s%6N"]).exits(0);
    // It is counted from the grant, which was a moment before the command.
    assert!(number(&next.stdout) > began + 2_500_000);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn wait_ends_when_it_was_told_to() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    for (args, least, most) in [
        (&["-n"][..], 0, 2_000_000),
        (&["--wait", "1200ms"], 1_200_000, 4_000_000),
        (&["-w", "10ms"], 0, 2_500_000),
    ] {
        let before = now_micros();
        let args = ["run", "--report", "report"].into_iter().chain(args.iter().copied());
        let run = scene.home.run(args.chain(["demo", "--", "touch", "ran"])).exits(75);
        let took = now_micros() - before;
        assert!((least..most).contains(&took), "{took} µs: {run:?}");
        assert!(run.stderr.contains("demo is held by tester@"), "{}", run.stderr);
        assert_eq!(scene.home.json("report")["outcome"], "not_acquired");
    }
    scene.home.run(["run", "-n", "-E", "9", "demo", "--", "touch", "ran"]).exits(9);
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn command_is_stopped_after_its_longest_time_and_then_the_lock_is_free() {
    let scene = Scene::new();
    let run = scene.home.run(["run", "--max-runtime", "300ms", "demo", "--", "sleep", "60"]).exits(124);
    assert!(run.stderr.contains("300ms"), "{}", run.stderr);
    scene.home.run(["run", "-n", "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn holder_builds_an_index_concurrently_while_others_wait() {
    let scene = Scene::new();
    scene.server.execute("create table t (x int); insert into t select generate_series(1, 1000)");
    let script = "echo >held; while [ ! -e go ]; do sleep 0.02; done; psql -X -c 'create index concurrently i on t (x)'";
    let args = ["run", "--report", "report", "demo", "--", "sh", "-c", script];
    let mut holder = scene.home.fencepost(args);
    holder
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", scene.server.port().to_string())
        .env("PGUSER", "postgres");
    let holder = crate::support::Running::of(&mut holder);
    scene.home.await_file("held");
    let waiters: Vec<_> = (0..3).map(|_| scene.home.start(["run", "demo", "--", "true"])).collect();
    eventually("three waiters", || scene.waiters("demo") == 3);
    let before = now_micros();
    scene.home.write("go", "");
    let holder = holder.ends().exits(0);
    assert!(now_micros() - before < 10_000_000, "{holder:?}");
    all_end(waiters, 0);
    assert_eq!(scene.server.query("select indisvalid from pg_index where indexrelid = 'i'::regclass"), "t");
    assert!(!scene.server.log().contains("deadlock"), "{}", scene.server.log());
}
