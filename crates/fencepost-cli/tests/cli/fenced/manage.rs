//! `fence install`, `uninstall`, `seal`, `check`, `show` and `forget` on a database.

use serde_json::json;

use super::{ADD, LOCK, Scene, assert_says, json, psql};
use crate::support::Home;

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn marks_are_sealed_checked_shown_and_forgotten() {
    let scene = Scene::unguarded(Home::new());
    let (home, url) = (&scene.home, scene.server.url());
    assert_eq!(home.run(["fence", "show", &url, LOCK]).exits(1).stdout, "ledger/1 has no mark\n");
    assert_says(&home.run(["fence", "check", &url, LOCK, "8"]).exits(79), &["no mark", "seal first"]);
    home.run(["fence", "forget", &url, LOCK, "--yes"]).exits(1);
    assert_eq!(scene.server.query("select count(*) from pg_namespace where nspname = 'fencepost'"), "0");
    home.run(["fence", "seal", &url, LOCK, "8"]).exits(0);
    home.run(["fence", "check", &url, LOCK, "8"]).exits(0);
    assert_says(&home.run(["fence", "seal", &url, LOCK, "7"]).exits(79), &["token 7", "mark is 8", "lift"]);
    assert_says(
        &home.run(["fence", "check", &url, LOCK, "8", "--holder", "x"]).exits(79),
        &["another holder"],
    );
    home.run(["fence", "seal", &url, "a b/ü", "9223372036854775807", "--holder", "me"]).exits(0);
    let shown = json(&home.run(["fence", "show", "--json", &url]).exits(0));
    let first = json!({"lock": "a b/ü", "token": i64::MAX, "holder": "me", "fence": "postgres"});
    assert_eq!(shown, json!([first, {"lock": LOCK, "token": 8, "holder": "", "fence": "postgres"}]));
    let forgotten = home.run(["fence", "forget", &url, LOCK, "--yes"]).exits(0);
    assert_eq!(forgotten.stdout, "forgotten: ledger/1 is sealed with token 8\n");
    home.run(["fence", "seal", &url, LOCK, "7"]).exits(0);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn check_tells_what_weakens_the_fence() {
    let scene = Scene::new();
    let check = |expected: usize| {
        scene.home.run(["fence", "seal", &scene.url, LOCK, "8"]).exits(0);
        let plain = scene.home.run(["fence", "check", &scene.url, LOCK, "8"]).exits(0);
        let answer = json(&scene.home.run(["fence", "check", "--json", &scene.url, LOCK, "8"]).exits(0));
        assert_eq!(answer["findings"].as_array().unwrap().len(), expected, "{answer}");
        plain.stderr
    };
    assert_eq!(check(0), "");
    scene.server.execute("alter table account disable trigger all");
    assert!(check(1).contains("the guard of account is disabled"));
    scene.server.execute("alter table account enable trigger all");
    assert!(check(1).contains("does not fire always"));
    scene.home.run(["fence", "install", &scene.server.url(), "--table", "account", "--lock", LOCK]).exits(0);
    assert_eq!(check(0), "");
    scene.server.execute("create table later () inherits (account)");
    assert!(check(1).contains("later has no guard"));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn table_is_guarded_until_it_is_freed() {
    let scene = Scene::unguarded(Home::new());
    let (home, url) = (&scene.home, scene.server.url());
    let install = ["fence", "install", &url, "--table", "account", "--lock", LOCK];
    let first = home.run(install).exits(0).stdout;
    assert_eq!(first, "made the schema fencepost\nwrites to account need the token of lock ledger/1\n");
    let again = home.run(install).exits(0).stdout;
    assert_eq!(again, first.replace("made the schema fencepost", "the schema fencepost is there already"));
    let done = json(&home.run(install.iter().chain(&["--json"])).exits(0));
    assert_eq!((&done["fence"], &done["dry_run"]), (&json!("postgres"), &json!(false)));
    assert_eq!((&done["table"], &done["lock"]), (&json!("account"), &json!(LOCK)));
    assert_eq!(done["steps"].as_array().unwrap().len(), 2);
    scene.without(&psql(ADD)).exits(1);
    let free = ["fence", "uninstall", &url, "--table", "account"];
    let dry = home.run(free.iter().chain(&["--dry-run"])).exits(0).stdout;
    scene.without(&psql(ADD)).exits(1);
    assert_eq!(home.run(free).exits(0).stdout, "writes to account need no token of lock ledger/1 any more\n");
    assert_eq!(home.run(free).exits(0).stdout, "");
    scene.without(&psql(ADD)).exits(0);
    home.run(install).exits(0);
    home.write("free.sql", &dry);
    home.shell(&format!("psql -X -v ON_ERROR_STOP=1 -f free.sql {url}")).exits(0);
    scene.without(&psql(ADD)).exits(0);
    home.run(install).exits(0);
    home.run(["fence", "uninstall", &url]).exits(0);
    scene.without(&psql(ADD)).exits(0);
}

/// What is printed is for whoever may; the rights are for the role of the URL.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn printed_installation_can_be_run_by_an_owner_for_another_role() {
    let scene = Scene::unguarded(Home::new());
    let home = &scene.home;
    scene.server.execute("create role keeper login; grant create on database postgres to keeper");
    scene.server.execute("alter table account owner to keeper");
    assert_says(&home.run(["fence", "install", &scene.url]).exits(77), &["--dry-run"]);
    scene.run("true").exits(77);
    let install = ["fence", "install", "--dry-run", &scene.url, "--table", "account", "--lock", LOCK];
    home.write("install.sql", &home.run(install).exits(0).stdout);
    let steps = json(&home.run(install.iter().chain(&["--json"])).exits(0))["steps"].clone();
    assert_eq!(steps.as_array().unwrap().len(), 1);
    let keeper = scene.server.url_of("keeper", "postgres");
    for _ in 0..2 {
        home.shell(&format!("psql -X -q -v ON_ERROR_STOP=1 -f install.sql {keeper} >printed")).exits(0);
        scene.without(&psql(ADD)).exits(1);
        scene.run(&psql(ADD)).exits(0);
    }
    // It is enough for the lock as well.
    let lock = ["run", "--backend", &scene.url, "--fence", &scene.url, "other", LOCK, "--", "true"];
    home.run(lock).exits(0);
    assert_eq!(scene.total(), "2");
}
