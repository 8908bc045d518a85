//! A Redis as a fence: `run --fence redis://…`, `fence` with such a URL, and a holder that was stopped and writes too late.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Scene, json as parsed};
use crate::support::{child_of, send};

const MARK: &str = "fencepost:{demo}:f";

/// Writes as any client does: `redis-cli` and the function.
fn write(scene: &Scene, value: &str) -> String {
    format!(
        "redis-cli -p {} FCALL fencepost_write 2 '{MARK}' total $FENCEPOST_TOKEN $FENCEPOST_HOLDER SET total {value}",
        scene.server.port()
    )
}

fn prepared() -> (Scene, String) {
    let scene = Scene::new();
    let url = scene.server.url();
    assert!(scene.home.run(["fence", "install", &url]).exits(0).stdout.starts_with("made the functions"));
    (scene, url)
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn command_of_a_run_writes_behind_the_fence_that_the_run_has_sealed() {
    let (scene, url) = prepared();
    let script = format!("fencepost fence check {url} && {}", write(&scene, "7"));
    let run = scene.home.run(["run", "--fence", &url, "demo", "--", "sh", "-c", &script]).exits(0);
    assert_eq!(run.stdout, "OK\n");
    assert_eq!(scene.server.command(&["GET", "total"]).text(), "7");
    let greater = "9223372036854775807";
    scene.home.run(["fence", "seal", &url, "demo", greater]).exits(0);
    let refused = scene.home.run(["run", "-n", "--fence", &url, "demo", "--", "touch", "ran"]).exits(79);
    assert!(refused.stderr.contains(greater), "{refused:?}");
    assert!(!scene.home.path("ran").exists());
}

/// Its lock is a file, so that the server does nothing but check.
#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn stopped_holder_writes_too_late_and_is_refused() {
    let (scene, url) = prepared();
    let locks = |name: &str| format!("file:{}", scene.home.path(name).display());
    let (one, other) = (locks("one"), locks("other"));
    let script = format!(
        "{}; touch ready; while [ ! -e go ]; do sleep 0.02; done; {} >said; echo >done",
        write(&scene, "old"),
        write(&scene, "late")
    );
    let args = ["run", "--backend", &one, "--fence", &url, "demo", "--", "sh", "-c", &script];
    let old = scene.home.start(args);
    scene.home.await_file("ready");
    let command = child_of(child_of(old.pid()));
    send(command, Signal::STOP);
    let next = write(&scene, "new");
    let args = ["run", "--backend", &other, "--fence", &url, "demo", "--", "sh", "-c", &next];
    assert_eq!(scene.home.run(args).exits(0).stdout, "OK\n");
    scene.home.write("go", "");
    send(command, Signal::CONT);
    scene.home.await_line("done");
    assert!(scene.home.read("said").starts_with("FP002"), "{}", scene.home.read("said"));
    assert_eq!(scene.server.command(&["GET", "total"]).text(), "new");
    drop(old.ends());
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn functions_are_shown_installed_and_taken_away() {
    let (scene, url) = prepared();
    let dry = scene.home.run(["fence", "install", "redis://127.0.0.1:1", "--dry-run"]).exits(0);
    assert!(dry.stdout.starts_with("#!lua name=fencepost\n"), "{dry:?}");
    assert!(scene.home.run(["fence", "install", &url]).exits(0).stdout.contains("already"));
    let tables = scene.home.run(["fence", "install", &url, "--table", "t", "--lock", "l"]).exits(64);
    assert!(tables.stderr.contains("no tables"), "{tables:?}");
    let dry = scene.home.run(["fence", "uninstall", &url, "--dry-run"]).exits(0);
    assert_eq!(dry.stdout, "FUNCTION DELETE fencepost\n");
    let done = scene.home.run(["fence", "uninstall", "--json", &url]).exits(0);
    assert_eq!(parsed(&done)["steps"], json!(["removed the functions fencepost_*"]));
    assert_eq!(parsed(&scene.home.run(["fence", "uninstall", "--json", &url]).exits(0))["steps"], json!([]));
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn marks_in_a_redis_are_shown_and_forgotten() {
    let (scene, url) = prepared();
    let greatest = 9_223_372_036_854_775_807_u64;
    scene.home.run(["fence", "show", &url, "demo"]).exits(1);
    scene.home.run(["fence", "seal", &url, "a b/ü", &greatest.to_string(), "--holder", "me"]).exits(0);
    let shown = json!([{"lock": "a b/ü", "token": greatest, "holder": "me", "fence": "redis"}]);
    assert_eq!(parsed(&scene.home.run(["fence", "show", "--json", &url]).exits(0)), shown);
    scene.home.run(["fence", "forget", "--yes", &url, "a b/ü"]).exits(0);
    assert_eq!(parsed(&scene.home.run(["fence", "show", "--json", &url]).exits(0)), Value::Array(vec![]));
    scene.server.command(&["CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"]);
    let warned = scene.home.run(["fence", "seal", &url, "demo", "1"]).exits(0);
    assert!(warned.stderr.contains("allkeys-lru"), "{warned:?}");
}

#[test]
fn quorum_is_refused_as_a_fence_with_a_reason() {
    let home = crate::support::Home::new();
    for args in [
        &["fence", "seal", "redlock://a,b,c", "demo", "1"][..],
        &["fence", "install", "redlock://a,b,c"],
        &["run", "--fence", "redlock://a,b,c", "demo", "--", "true"],
    ] {
        let refused = home.run(args).exits(64);
        assert!(refused.stderr.contains("the one that the data lie in"), "{refused:?}");
    }
}
