//! Programs on libpq under `run`: they are fenced without a change to them, and refused without `run`.

use super::{ADD, LOCK, Scene, assert_says, psql};
use crate::support::{PYTHON, python_has};

/// Whether a script is refused without `run`, accepted under it, and refused again with the token of an earlier run.
#[track_caller]
fn assert_is_fenced(scene: &Scene, script: &str) {
    assert_says(&not_zero(scene.without(script)), &["no stamp for lock"]);
    assert_eq!(scene.total(), "0", "{script}");
    scene.run(script).exits(0);
    assert_eq!(scene.total(), "1", "{script}");
    // The options of this run are still there when the next one has sealed the fence.
    scene.run("printf %s \"$PGOPTIONS\" >options").exits(0);
    scene.run("true").exits(0);
    let late = format!("PGOPTIONS=$(cat options); export PGOPTIONS; {script}");
    assert_says(&not_zero(scene.without(&late)), &["stale stamp for lock"]);
    assert_eq!(scene.total(), "1", "{script}");
}

#[track_caller]
fn not_zero(outcome: crate::support::Outcome) -> crate::support::Outcome {
    assert_ne!(outcome.code, Some(0), "{outcome:?}");
    outcome
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn psql_is_fenced() {
    let scene = Scene::new();
    assert_is_fenced(&scene, &psql(ADD));
    let late = scene.without(&psql(ADD)).exits(1);
    assert_says(&late, &["FP001", "ledger/1", "fencepost run --fence"]);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn copy_is_fenced() {
    let scene = Scene::new();
    scene.home.write("rows", "2\t1\n");
    assert_is_fenced(&scene, &psql("'\\copy account from rows'"));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn restore_of_data_is_fenced() {
    let scene = Scene::new();
    let repair =
        |sql: &str| scene.server.execute(&format!("set fencepost.bypass = 'the test prepares'; {sql}"));
    repair("insert into account values (2, 1)");
    scene.without("pg_dump --data-only --table account --format custom --file dump \"$DB\"").exits(0);
    repair("delete from account; insert into account values (3, 0)");
    assert_is_fenced(&scene, "pg_restore --data-only --exit-on-error --dbname \"$DB\" dump");
}

const PROGRAM: &str = "
import os, psycopg
with psycopg.connect(os.environ['DB']) as connection:
    connection.execute('update account set total = total + 1 where id = 1')
";

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn psycopg_is_fenced() {
    if !python_has("psycopg") {
        return;
    }
    let scene = Scene::new();
    scene.home.write("program.py", PROGRAM);
    assert_is_fenced(&scene, &format!("{PYTHON} program.py"));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn options_of_others_are_kept() {
    let scene = Scene::new();
    let mut command = scene.home.fencepost(["run", "--fence", &scene.url, LOCK, "--", "sh", "-c"]);
    let script = psql("\"show work_mem\" -c \"show datestyle\" -c \"update account set total = 1\"");
    let outcome =
        command.arg(script).env("DB", &scene.url).env("PGOPTIONS", r"-c work_mem=3MB -c datestyle=ISO,\ DMY");
    let outcome = crate::support::Outcome::of(outcome.output().unwrap()).exits(0);
    assert_eq!(outcome.stdout, "3MB\nISO, DMY\n");
    assert_eq!(scene.total(), "1");
}

/// Such a program drops what the environment says, and the stamp with it.
#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn program_with_options_of_its_own_is_refused() {
    let scene = Scene::new();
    let script = psql(ADD).replace("\"$DB\"", "\"$DB?options=-cwork_mem%3D3MB\"");
    assert_says(&scene.run(&script).exits(1), &["FP001"]);
    let script = psql(
        "\"select fencepost.check('$FENCEPOST_LOCK', $FENCEPOST_TOKEN, '$FENCEPOST_HOLDER'); \
                       update account set total = 1\"",
    )
    .replace("\"$DB\"", "\"$DB?options=-cwork_mem%3D3MB\"");
    scene.run(&script).exits(0);
    assert_eq!(scene.total(), "1");
}
