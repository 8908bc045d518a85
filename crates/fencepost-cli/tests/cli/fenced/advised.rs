//! What `advise` writes for a pipeline on one Postgres: the lock and the fence are that database, and `run` obeys the rule.

use super::{ADD, Scene, assert_says, psql};

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn advised_rule_locks_and_fences_the_database() {
    let scene = Scene::new();
    let (home, url) = (&scene.home, scene.server.url());
    let advise = [
        "advise",
        "--on-overlap",
        "corrupts",
        "--can-pause",
        "yes",
        "--postgres",
        "yes",
        "--databases",
        "one",
        "--sink-checks",
        "yes",
        "--hosts",
        "many",
        "--match",
        "ledger/*",
        "--write",
        "--backend",
        &url,
        "--fence",
        &url,
    ];
    home.run(advise).exits(0);
    home.run(["config", "check"]).exits(0);
    let add = format!("DB={}; {}", scene.url, psql(ADD));
    let run = home.run(["run", "--report", "report", "ledger/1", "--", "sh", "-c", &add]).exits(0);
    assert_eq!(
        (scene.total().as_str(), &home.json("report")["backend"]),
        ("1", &"postgres".into()),
        "{run:?}"
    );
    let late = home.shell(&add);
    assert_ne!(late.code, Some(0));
    assert_says(&late, &["no stamp for lock"]);
    home.run(["run", "ledger/1/2", "--", "true"]).exits(78);
}
