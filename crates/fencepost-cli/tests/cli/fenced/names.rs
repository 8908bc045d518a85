//! Names that need quoting, of tables, schemas, roles and locks, in what is run and in what is printed.

use super::{Scene, assert_says, json, psql};
use crate::support::Home;

const NAMES: [(&str, &str); 4] = [
    ("\"Side Books\".\"Konto ü\"", "a b"),
    ("\"Side Books\".\"it''s\"", "it's \"50%\" {ü}"),
    ("\"Side Books\".\"a\"\"b\"", r"back\slash/$$"),
    ("\"Side Books\".\"select; --\"", "ünïcödé/日本"),
];

fn scene() -> Scene {
    let scene = Scene::unguarded(Home::new());
    scene.server.execute("create schema \"Side Books\"; grant usage on schema \"Side Books\" to app");
    for (table, _) in NAMES {
        let table = table.replace("''", "'");
        scene.server.execute(&format!("create table {table} (n int); grant all on {table} to app"));
    }
    scene
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn every_name_can_be_guarded_and_written_to() {
    for is_printed in [false, true] {
        let scene = scene();
        let (home, owner) = (&scene.home, scene.server.url());
        for (table, lock) in NAMES {
            let table = table.replace("''", "'");
            if is_printed {
                let args = ["fence", "install", "--dry-run", &scene.url, "--table", &table, "--lock", lock];
                home.write("install.sql", &home.run(args).exits(0).stdout);
                home.shell(&format!("psql -X -q -v ON_ERROR_STOP=1 -f install.sql {owner}")).exits(0);
            } else {
                home.run(["fence", "install", &owner, "--table", &table, "--lock", lock]).exits(0);
                scene.server.execute("grant usage on schema fencepost to app");
            }
            home.write("add.sql", &format!("insert into {table} values (1)"));
            let add = psql("''").replace("-c ''", "-f add.sql");
            assert_says(&scene.without(&add).exits(3), &["FP001"]);
            scene.run_with(&["--fence", &scene.url, lock], &add).exits(0);
            let mark = json(&home.run(["fence", "show", "--json", &scene.url, lock]).exits(0));
            assert_eq!(mark["lock"], lock);
            home.run(["fence", "uninstall", &owner, "--table", &table]).exits(0);
            scene.without(&add).exits(0);
        }
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_that_needs_quoting_is_granted_what_it_needs() {
    let scene = Scene::unguarded(Home::new());
    scene.server.execute("create role \"O'Neil \"\"x\"\"\" login");
    let url = scene.server.url_of("O%27Neil%20%22x%22", "postgres");
    let printed = scene.home.run(["fence", "install", "--dry-run", &url]).exits(0).stdout;
    scene.home.write("install.sql", &printed);
    let owner = scene.server.url();
    scene.home.shell(&format!("psql -X -q -v ON_ERROR_STOP=1 -f install.sql {owner}")).exits(0);
    scene.home.run(["fence", "seal", &url, "demo", "8"]).exits(0);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn what_is_no_table_cannot_be_guarded() {
    let scene = Scene::unguarded(Home::new());
    scene.server.execute(
        "create view shown as select * from account; create materialized view kept as select * from account; \
         create sequence numbers",
    );
    let (home, url) = (&scene.home, scene.server.url());
    for table in
        ["missing", "nowhere.account", "shown", "kept", "numbers", "", "a b", "account; drop table account"]
    {
        let outcome = home.run(["fence", "install", &url, "--table", table, "--lock", "demo"]);
        assert_says(&outcome.exits(64), &["guard the table"]);
    }
    for table in ["missing", "nowhere.account", "a b"] {
        home.run(["fence", "uninstall", &url, "--table", table]).exits(64);
    }
    assert_eq!(scene.server.query("select count(*) from pg_trigger where tgname like 'fencepost%'"), "0");
    // Not the owner of the table.
    scene
        .server
        .execute("grant usage on schema fencepost to app; grant select on fencepost.installation to app");
    let denied = home.run(["fence", "install", &scene.url, "--table", "account", "--lock", "demo"]).exits(77);
    assert_says(&denied, &["must be owner", "only the owner"]);
}
