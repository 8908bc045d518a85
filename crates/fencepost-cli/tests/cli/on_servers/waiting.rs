//! Waiters that give up, are told to, or live through a moment without the server.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Scene, Server};
use crate::support::{all_end, number, sleep};

on_servers!([redis, postgres, etcd, zookeeper] {
    signal_ends_the_wait_for_the_last_of_several_locks_and_frees_the_first,
    waiters_that_give_up_leave_the_holder_alone,
    server_that_stops_for_a_moment_costs_nothing,
});

fn signal_ends_the_wait_for_the_last_of_several_locks_and_frees_the_first<S: Server>() {
    let scene = Scene::<S>::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiter = scene.home.start(["run", "--ttl", "60s", "a", "demo", "z", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    scene.home.run(["run", "-n", "a", "--", "true"]).exits(75);
    waiter.signal(Signal::TERM);
    waiter.ends().exits(143);
    scene.home.run(["run", "-n", "a", "z", "--", "true"]).exits(0);
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

fn waiters_that_give_up_leave_the_holder_alone<S: Server>() {
    let scene = Scene::<S>::new();
    let holder = scene.start_holder(&["--ttl", "2s"]);
    let waiter = |_| scene.home.start(["run", "--wait", "200ms", "demo", "--", "touch", "ran"]);
    all_end((0..10).map(waiter).collect(), 75);
    assert_eq!(scene.status("demo")["token"], number(&scene.home.read("held")));
    assert_eq!(scene.status("demo")["waiters"], Value::Array(Vec::new()));
    scene.end(holder);
    assert!(!scene.home.path("ran").exists());
    scene.assert_nothing_is_left();
}

fn server_that_stops_for_a_moment_costs_nothing<S: Server>() {
    let scene = Scene::<S>::new();
    let holder = scene.start_holder(&["--ttl", "10s"]);
    let waiter = scene.home.start(["run", "demo", "--", "cat", "held"]);
    scene.home.await_waiter("demo");
    scene.server.stop();
    scene.home.write("stop", "");
    sleep(Duration::from_millis(300));
    scene.server.go_on();
    holder.ends().exits(0);
    waiter.ends().exits(0);
    scene.assert_nothing_is_left();
}
