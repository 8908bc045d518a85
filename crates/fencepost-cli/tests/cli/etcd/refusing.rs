//! Servers that cannot grant anything: no command is started, and one line says why.

use std::io::{Read, Write};
use std::net::TcpListener;

use fencepost_testkit::proxy::Mode;
use fencepost_testkit::servers::EtcdServer;

use super::Scene;
use crate::support::{Home, Outcome, now_micros};

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

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn server_that_is_down_or_cut_off_starts_no_command() {
    let mut scene = Scene::new();
    scene.proxy.set(Mode::Blackhole);
    refuses(&scene.through(), 69, "unavailable", "has not answered");
    scene.proxy.set(Mode::Cut);
    refuses(&scene.through(), 69, "unavailable", "refused");
    scene.server.kill();
    refuses(&scene.server.url(), 69, "unavailable", "Connection refused");
    for args in [&["status", "demo"][..], &["list"]] {
        let look = scene.home.run(args).exits(69);
        assert!(look.stdout.is_empty() && look.stderr.contains("error:"), "{look:?}");
    }
    let waiter = scene.home.start(["run", "demo", "--", "true"]);
    crate::support::sleep(std::time::Duration::from_millis(200));
    scene.server.restart();
    waiter.ends().exits(0);
}

#[test]
fn host_that_has_no_address_starts_no_command() {
    refuses("etcd://nosuchhost.invalid", 69, "unavailable", "nosuchhost.invalid");
}

#[test]
#[cfg_attr(not(etcd_server), ignore = "its server is not installed")]
fn missing_or_wrong_password_is_denied_and_not_shown() {
    let mut server = EtcdServer::start();
    server.require_login("s3cret");
    let address = server.address();
    refuses(&server.url(), 77, "denied", "asks for a login");
    let wrong = refuses(&format!("etcd://root:gue55ed@{address}"), 77, "denied", "authentication failed");
    assert!(!format!("{wrong:?}").contains("gue55ed"), "{wrong:?}");
    let home = Home::on(&format!("etcd://root:s3cret@{address}"));
    let run = home.run(["-v", "run", "demo", "--", "env"]).exits(0);
    assert!(!run.stderr.contains("s3cret"), "{}", run.stderr);
}

#[test]
fn what_speaks_another_protocol_starts_no_command() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("etcd://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(answer));
        }
    });
    refuses(&url, 69, "unavailable", "127.0.0.1");
}
