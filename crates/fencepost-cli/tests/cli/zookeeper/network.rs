//! A waiter whose connections are cut.

use super::Scene;

#[test]
#[cfg_attr(not(zookeeper_server), ignore = "its server is not installed")]
fn waiter_lives_through_cuts_and_is_granted_once() {
    let scene = Scene::new();
    let holder = scene.start_holder(&[]);
    let through = scene.through();
    let script = "echo $FENCEPOST_TOKEN >>ran";
    let waiter = scene.home.start(["run", "--backend", &through, "demo", "--", "sh", "-c", script]);
    scene.home.await_waiter("demo");
    for _ in 0..3 {
        scene.reset_connections();
        assert_eq!(scene.queue("demo").len(), 2, "it keeps its place");
    }
    scene.end(holder);
    waiter.ends().exits(0);
    assert_eq!(scene.home.read("ran").lines().count(), 1);
    scene.assert_nothing_is_left();
}
