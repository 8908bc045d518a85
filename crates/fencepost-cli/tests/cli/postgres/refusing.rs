//! Servers that cannot grant anything: no command is started, and one line says why.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::{PostgresServer, PostgresSetup};

use super::Scene;
use crate::support::{Home, Outcome, now_micros, sleep};

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
    let url = format!("postgres://u@{}/d?sslmode=disable", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer));
        }
    });
    url
}

#[test]
fn bad_options_are_usage_errors_that_name_them() {
    for (option, named) in [
        ("on_pause=stop", "on_pause"),
        ("max_ttl=60", "max_ttl"),
        ("max_ttl=0s", "max_ttl"),
        ("quarantine=maybe", "quarantine"),
        ("pooler=transaction", "pooler"),
        ("replicas=1", "replicas"),
        ("nonsense=1", "nonsense"),
        ("sslmode=perhaps", "sslmode"),
        ("target_session_attrs=standby", "target_session_attrs"),
    ] {
        let home = Home::on(&format!("postgres://u@127.0.0.1:1/d?{option}"));
        let run = home.run(["run", "-n", "demo", "--", "touch", "ran"]).exits(64);
        assert!(run.stderr.contains(named), "{option}: {}", run.stderr);
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_that_is_down_starts_no_command() {
    let mut server = PostgresServer::start();
    server.kill();
    let before = now_micros();
    refuses(&server.url(), 69, "unavailable", "refused");
    assert!(now_micros() - before < 2_000_000, "at once");
    let home = Home::on(&server.url());
    let before = now_micros();
    let run = home.run(["run", "demo", "--", "touch", "ran"]).exits(69);
    let took = now_micros() - before;
    assert!((4_500_000..8_000_000).contains(&took), "after five seconds of tries: {took} µs");
    assert!(run.stderr.contains("trying again"), "{}", run.stderr);
    let before = now_micros();
    home.run(["run", "--wait", "1s", "demo", "--", "touch", "ran"]).exits(69);
    assert!(now_micros() - before < 3_500_000);
    assert!(!home.path("ran").exists());
    for args in [&["status", "demo"][..], &["list"]] {
        let look = home.run(args).exits(69);
        assert!(look.stdout.is_empty() && look.stderr.contains("error:"), "{look:?}");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_that_comes_back_is_found_by_whoever_waits() {
    let mut scene = Scene::new();
    scene.home.run(["run", "demo", "--", "true"]).exits(0);
    scene.server.kill();
    let url = format!("{}?max_ttl=100ms", scene.server.url());
    let waiter = scene.home.start(["run", "--backend", &url, "--ttl", "100ms", "demo", "--", "true"]);
    sleep(Duration::from_millis(200));
    scene.server.restart();
    drop(waiter);
    let url = format!("{}?quarantine=off", scene.server.url());
    scene.home.run(["run", "--backend", &url, "demo", "--", "true"]).exits(0);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn server_behind_a_black_hole_starts_no_command() {
    let scene = Scene::new();
    scene.proxy.set(Mode::Blackhole);
    refuses(&scene.through(), 69, "unavailable", "has not answered");
    scene.proxy.set(Mode::Cut);
    refuses(&scene.through(), 69, "unavailable", "refused");
}

#[test]
fn host_that_has_no_address_starts_no_command() {
    refuses("postgres://u@nosuchhost.invalid/d", 69, "unavailable", "nosuchhost.invalid");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn missing_or_wrong_password_is_denied() {
    let server = PostgresSetup::default().password("right").start();
    let missing = refuses(&server.url(), 77, "denied", "asks for a password");
    assert!(missing.stderr.contains("hint:") && missing.stderr.contains("PGPASSWORD"), "{}", missing.stderr);
    refuses(&server.url_of("postgres:gue55ed", "postgres"), 77, "denied", "password authentication failed");
    refuses(&server.url_of("nobody:gue55ed", "postgres"), 77, "denied", "password authentication failed");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn role_without_rights_is_denied_with_a_hint() {
    let server = PostgresServer::start();
    server.execute("create role worker login");
    let url = server.url_of("worker", "postgres");
    let refused = refuses(&url, 77, "denied", "permission denied");
    assert!(refused.stderr.contains("hint:"), "{}", refused.stderr);
    Home::on(&server.url()).run(["run", "demo", "--", "true"]).exits(0);
    let refused = refuses(&url, 77, "denied", "permission denied");
    assert!(refused.stderr.contains("hint:"), "{}", refused.stderr);
    for args in [&["status", "demo"][..], &["list"]] {
        Home::on(&url).run(args).exits(77);
    }
    server.execute("revoke connect on database postgres from public");
    refuses(&url, 77, "denied", "permission denied");
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn database_that_is_not_there_is_a_usage_error() {
    let server = PostgresServer::start();
    let refused = refuses(&server.url_of("postgres", "none"), 64, "unavailable", "\"none\" does not exist");
    assert!(refused.stderr.contains("hint: name a database"), "{}", refused.stderr);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn standby_starts_no_command() {
    let server = PostgresServer::start();
    let standby = server.standby();
    let refused = refuses(&standby.url(), 69, "unavailable", "is a standby");
    assert!(refused.stderr.contains("hint: name the primary"), "{}", refused.stderr);
    let both =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), server.port());
    Home::on(&both).run(["run", "-n", "demo", "--", "true"]).exits(0);
}

#[test]
fn what_speaks_another_protocol_starts_no_command() {
    for answer in
        [&b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..], b"-ERR unknown command\r\n", b""]
    {
        refuses(&always_saying(answer), 69, "unavailable", "");
    }
}
