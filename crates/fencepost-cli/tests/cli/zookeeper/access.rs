//! Logins: what one has made belongs to it, and no password is ever shown.

use super::{Scene, number};
use crate::support::{Home, eventually};

fn url(scene: &Scene, login: &str, options: &str) -> String {
    format!("zookeeper://{login}@{}{options}", scene.server.address())
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn what_a_login_has_made_belongs_to_it() {
    let scene = Scene::new();
    let ann = Home::on(&url(&scene, "ann:s3cret", "/ann"));
    ann.run(["run", "demo", "--", "true"]).exits(0);
    let holder = ann.start(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]);
    ann.await_file("held");
    for login in ["bob:s3cret", "ann:other"] {
        let other = Home::on(&url(&scene, login, "/ann"));
        for args in [&["run", "-n", "demo", "--", "touch", "ran"][..], &["status", "demo"], &["list"]] {
            let refused = other.run(args).exits(77);
            assert!(refused.stderr.contains("NoAuth"), "{}", refused.stderr);
            assert!(
                !refused.stderr.contains("s3cret") && !refused.stderr.contains("other@"),
                "{}",
                refused.stderr
            );
        }
        assert!(!other.path("ran").exists());
    }
    let nobody = Home::on(&format!("{}/ann", scene.server.url()));
    nobody.run(["run", "-n", "demo", "--", "touch", "ran"]).exits(77);
    ann.run(["status", "demo"]).exits(0);
    holder.kill();
    eventually("the lease given back by the login", || ann.run(["status", "demo"]).code == Some(1));
}

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn open_nodes_are_shared_with_everybody() {
    let scene = Scene::new();
    let (ann, bob) = (
        Home::on(&url(&scene, "ann:s3cret", "?acl=open")),
        Home::on(&url(&scene, "bob:s3cret", "?acl=open")),
    );
    let first = number(&ann.run(["run", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0).stdout);
    let second = number(&bob.run(["run", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0).stdout);
    let third = number(&scene.home.run(["run", "demo", "--", "printenv", "FENCEPOST_TOKEN"]).exits(0).stdout);
    assert!(first < second && second < third);
}
