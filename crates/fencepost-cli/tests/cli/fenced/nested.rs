//! Several locks and runs inside of runs: each write finds the stamp of its own lock.

use super::{ADD, LOCK, Scene, assert_says, psql};

/// A scene with a second table, guarded by the lock `audit`.
fn audited() -> Scene {
    let scene = Scene::new();
    scene.server.execute("create table entry (n int); grant all on entry to app");
    scene.home.run(["fence", "install", &scene.server.url(), "--table", "entry", "--lock", "audit"]).exits(0);
    scene
}

const NOTE: &str = "'insert into entry values (1)'";

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn run_of_several_locks_writes_under_each() {
    let scene = audited();
    let both = format!("{} && {}", psql(ADD), psql(NOTE));
    scene.run_with(&["--fence", &scene.url, "audit", LOCK], &both).exits(0);
    assert_says(&scene.run_with(&["--fence", &scene.url, "audit"], &both).exits(1), &["FP001", LOCK]);
    assert_says(&scene.run_with(&["--fence", &scene.url, LOCK], &both).exits(1), &["FP001", "audit"]);
    assert_eq!(
        (scene.total().as_str(), scene.server.query("select count(*) from entry").as_str()),
        ("2", "1")
    );
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn run_inside_a_run_writes_under_both() {
    let scene = audited();
    scene.home.write("both", &format!("{} && {}", psql(ADD), psql(NOTE)));
    let script = format!("fencepost run --fence \"$DB\" audit -- sh both && {} && ! sh both", psql(ADD));
    let outcome = scene.run(&script).exits(0);
    assert_says(&outcome, &["FP001", "audit"]);
    assert_eq!(scene.total(), "3", "twice before the refusal, and once in front of it");
    assert_eq!(scene.server.query("select count(*) from entry"), "1");
}

/// The stamp of the lock's own run counts, and not one of a run around it that has the same name somewhere else.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn later_run_of_a_lock_fences_the_earlier_one_around_it() {
    let scene = Scene::new();
    let elsewhere = format!("file:{}", scene.home.path("elsewhere").display());
    let script = format!(
        "fencepost run --backend {elsewhere} --fence \"$DB\" {LOCK} -- sh -c '{}' && {}",
        psql(ADD).replace('\'', "'\\''"),
        psql(ADD)
    );
    let outcome = scene.run(&script).exits(1);
    assert_says(&outcome, &["FP002", "stale stamp"]);
    assert_eq!(scene.total(), "1");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn command_of_a_run_asks_and_seals_with_what_the_run_gave_it() {
    let scene = Scene::new();
    let script = "fencepost fence check \"$DB\" && fencepost fence seal \"$DB\" && fencepost --json fence check \"$DB\"";
    let answer = super::json(&scene.run(script).exits(0));
    assert_eq!((&answer["lock"], &answer["fence"]), (&LOCK.into(), &"postgres".into()));
    assert_eq!(answer["token"], answer["mark"]["token"]);
}
