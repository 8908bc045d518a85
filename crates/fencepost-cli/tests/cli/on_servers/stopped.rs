//! A server that is stopped, so that it takes connections and answers nothing: time limits hold all the same.

use std::time::Duration;

use crate::scene::{Scene, Server};
use crate::support::{ends_within, eventually, now_micros};

on_servers!([redis, etcd] {
    wait_for_a_stopped_server_ends_in_time,
    wait_in_the_queue_of_a_stopped_server_ends_in_time,
});

fn wait_for_a_stopped_server_ends_in_time<S: Server>() {
    let scene = Scene::<S>::new();
    scene.server.stop();
    let before = now_micros();
    let run = scene.home.start(["run", "--wait", "1500ms", "demo", "--", "touch", "ran"]);
    ends_within(run, before, Duration::from_secs(4)).exits(69);
    let before = now_micros();
    let run = scene.home.start(["run", "-n", "demo", "--", "touch", "ran"]);
    ends_within(run, before, Duration::from_millis(4_500)).exits(69);
    assert!(!scene.home.path("ran").exists());
    scene.server.go_on();
    eventually("nothing held", || !scene.has_place("demo"));
}

fn wait_in_the_queue_of_a_stopped_server_ends_in_time<S: Server>() {
    let scene = Scene::<S>::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let before = now_micros();
    let waiter = scene.home.start(["run", "--wait", "2s", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    scene.server.stop();
    let waiter = ends_within(waiter, before, Duration::from_millis(4_500));
    assert!([Some(69), Some(75)].contains(&waiter.code), "{waiter:?}");
    scene.server.go_on();
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.home.run(["run", "--wait", "40s", "demo", "--", "true"]).exits(0);
    scene.assert_nothing_is_left();
}
