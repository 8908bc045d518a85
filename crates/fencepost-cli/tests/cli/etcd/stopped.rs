//! A server that is stopped, so that it takes connections and answers nothing: signals hold all the same.

use std::time::Duration;

use rustix::process::Signal;

use super::Scene;
use crate::support::{ends_within, eventually, now_micros};

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn signal_ends_the_wait_for_a_stopped_server_at_once() {
    let scene = Scene::new();
    let holder = scene.start_holder(&["--ttl", "20s"]);
    let waiter = scene.home.start(["run", "demo", "--", "touch", "ran"]);
    scene.home.await_waiter("demo");
    scene.server.stop();
    let through = scene.through();
    let asking = scene.home.start(["run", "--backend", &through, "other", "--", "touch", "ran"]);
    eventually("a connection", || scene.proxy.connections() > 0 && scene.proxy.passed_requests() > 0);
    for (run, signal, code) in [(waiter, Signal::TERM, 143), (asking, Signal::INT, 130)] {
        let sent_at = now_micros();
        run.signal(signal);
        ends_within(run, sent_at, Duration::from_millis(1_500)).exits(code);
    }
    scene.server.go_on();
    scene.home.write("stop", "");
    holder.ends().exits(0);
    assert!(!scene.home.path("ran").exists());
}
