//! Servers that cannot grant anything: no command is started, and one line says why.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::RedisServer;

use super::{Scene, url};
use crate::support::{Home, Outcome, eventually, now_micros};

/// A try that must not start its command, and says one line about it.
#[track_caller]
fn refuses(url: &str, code: i32, outcome: &str, why: &str) -> Outcome {
    let home = Home::on(url);
    let before = now_micros();
    let run = home.run(["run", "-n", "--report", "report", "demo", "--", "touch", "ran"]).exits(code);
    assert!(!home.path("ran").exists(), "{run:?}");
    assert_eq!(home.json("report")["outcome"], outcome);
    assert_eq!(run.stderr.matches("error:").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("error: demo: ") && run.stderr.contains(why), "{}", run.stderr);
    assert!(now_micros() - before < 8_000_000, "it did not wait for anything");
    run
}

/// Something that listens and always answers the same.
fn always_saying(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer));
        }
    });
    url
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_is_down_starts_no_command() {
    let mut server = RedisServer::start();
    server.kill();
    refuses(&url(&server), 69, "unavailable", "Connection refused");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_behind_a_black_hole_starts_no_command() {
    let scene = Scene::new();
    scene.proxy.set(Mode::Blackhole);
    refuses(&scene.through(), 69, "unavailable", "has not answered");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn silent_server_is_given_up_after_five_seconds_and_the_try_under_way() {
    let scene = Scene::new();
    scene.proxy.set(Mode::Blackhole);
    let began = now_micros();
    scene.home.run(["run", "--backend", &scene.through(), "demo", "--", "true"]).exits(69);
    // A try lasts two seconds; the first counts as well.
    let took = now_micros() - began;
    assert!((5_000_000..8_000_000).contains(&took), "{took} microseconds");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_cuts_every_connection_starts_no_command() {
    let scene = Scene::new();
    scene.proxy.set(Mode::Cut);
    refuses(&scene.through(), 69, "unavailable", "refused");
}

#[test]
fn host_that_has_no_address_starts_no_command() {
    refuses("redis://nosuchhost.invalid", 69, "unavailable", "nosuchhost.invalid");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn missing_or_wrong_password_is_denied_and_not_shown() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]);
    let address = format!("127.0.0.1:{}", server.port());
    refuses(&format!("redis://{address}"), 77, "denied", "NOAUTH");
    let wrong = refuses(&format!("redis://:gue55ed@{address}"), 77, "denied", "WRONGPASS");
    assert!(!format!("{wrong:?}").contains("gue55ed"), "{wrong:?}");
    let unknown = refuses(&format!("redis://nobody:gue55ed@{address}"), 77, "denied", "WRONGPASS");
    assert!(!format!("{unknown:?}").contains("gue55ed"), "{unknown:?}");
    let home = Home::on(&format!("redis://:s3cret@{address}?quarantine=off"));
    let run = home.run(["-v", "run", "demo", "--", "env"]).exits(0);
    assert!(!run.stderr.contains("s3cret"), "{}", run.stderr);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn user_without_a_permission_is_denied() {
    let server = RedisServer::start();
    // What the README of the backend asks for, and then one thing less of it each time.
    let all = ["+@scripting", "+@read", "+@write", "+@pubsub", "+@connection", "+info", "+time", "+scan"];
    let (keys, channels) = ("~fencepost:*", "&fencepost:*");
    let user = |rules: &[&str]| {
        let rules = ["ACL", "SETUSER", "u", "reset", "on", ">p"].into_iter().chain(rules.iter().copied());
        assert_eq!(server.command(&rules.collect::<Vec<_>>()).text(), "OK");
    };
    let url = format!("redis://u:p@127.0.0.1:{}?quarantine=off", server.port());
    let but = |left_out: &str| -> Vec<&str> {
        let rules = all.iter().copied().filter(|rule| *rule != left_out);
        rules.chain([keys, channels]).collect()
    };
    user(&but(""));
    let home = Home::on(&url);
    home.run(["run", "-n", "demo", "--", "true"]).exits(0);
    assert!(home.run(["list"]).exits(0).stderr.contains("no lock is held"));
    for left_out in ["+@scripting", "+@pubsub", "+info"] {
        user(&but(left_out));
        refuses(&url, 77, "denied", "Redis says");
    }
    let other_keys: Vec<_> = all.into_iter().chain(["~other:*", channels]).collect();
    user(&other_keys);
    refuses(&url, 77, "denied", "Redis says");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn replica_starts_no_command() {
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    replica.replica_of(&primary);
    let refused = refuses(&url(&replica), 69, "unavailable", "is a replica");
    assert!(refused.stderr.contains("hint: name the primary"), "{}", refused.stderr);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn full_server_starts_no_command_and_keeps_its_holder() {
    let scene = Scene::new();
    let args = ["--ttl", "2s", "--events", "events"];
    let holder = scene.start_holder(&args);
    let full = scene.server.command(&["CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction"]);
    assert_eq!(full.text(), "OK");
    let other = Home::on(&url(&scene.server));
    let run = other.run(["run", "-n", "other", "--", "touch", "ran"]).exits(69);
    assert!(run.stderr.contains("other: ") && run.stderr.contains("OOM"), "{}", run.stderr);
    assert!(!other.path("ran").exists());
    scene.await_renewals();
    scene.home.write("stop", "");
    holder.ends().exits(0);
    scene.assert_nothing_is_left();
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_loads_its_data_is_waited_for() {
    let server = RedisServer::start_with(&["--enable-debug-command", "yes"]);
    server.command(&["DEBUG", "POPULATE", "2000", "ballast", "100"]);
    let slow = ["CONFIG", "SET", "key-load-delay", "1000", "loading-process-events-interval-bytes", "1024"];
    assert_eq!(server.command(&slow).text(), "OK");
    let mut client = server.client().unwrap();
    client.send(&["DEBUG", "RELOAD"]).unwrap();
    let ping = || format!("{:?}", server.client().unwrap().command(&["PING"]));
    eventually("the loading", || ping().contains("LOADING"));
    refuses(&url(&server), 69, "unavailable", "LOADING");
    let home = Home::on(&url(&server));
    let waiter = home.start(["run", "demo", "--", "true"]);
    let waiter = waiter.ends().exits(0);
    assert!(waiter.stderr.contains("LOADING") && waiter.stderr.contains("trying again"), "{waiter:?}");
    client.receive().unwrap();
}

#[test]
fn what_speaks_another_protocol_starts_no_command() {
    let http = always_saying(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    refuses(&http, 69, "unavailable", "does not speak the protocol of Redis");
}

#[test]
fn server_that_is_too_old_is_refused() {
    let old = always_saying(b"-ERR unknown command 'HELLO'\r\n");
    refuses(&old, 64, "unavailable", "Redis 7.0 or newer");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn node_of_a_cluster_is_refused() {
    let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let server = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    refuses(&server.url(), 64, "unavailable", "Redis Cluster");
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn server_that_comes_back_is_found_by_whoever_waits() {
    let mut scene = Scene::new();
    scene.server.kill();
    let waiter = scene.home.start(["run", "demo", "--", "true"]);
    crate::support::sleep(Duration::from_millis(200));
    scene.server.restart();
    waiter.ends().exits(0);
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn status_of_a_server_that_cannot_be_reached_is_not_free() {
    let mut scene = Scene::new();
    scene.server.kill();
    for args in [&["status", "demo"][..], &["list"]] {
        let look = scene.home.run(args).exits(69);
        assert!(look.stdout.is_empty() && look.stderr.contains("error:"), "{look:?}");
    }
}
