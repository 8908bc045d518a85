//! The spans of `run` on their way to a collector, and a collector that is not there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use crate::support::{Home, Outcome, Running};

/// Takes one request, and says its first line and its body.
fn take(listener: &TcpListener) -> (String, Vec<u8>) {
    let (stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        lines.read_line(&mut head).unwrap();
        if let Some(value) = head[from..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).unwrap();
    lines
        .into_inner()
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    (head, body)
}

#[test]
fn spans_of_a_run_arrive_at_the_collector_that_the_environment_names() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let collector = std::thread::spawn(move || take(&listener));
    let home = Home::new();
    let mut run = home.fencepost(["run", "ledger/1", "--", "sh", "-c", "exit 3"]);
    run.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_SERVICE_NAME", "nightly jobs");
    Outcome::of(run.output().unwrap()).exits(3);
    let (head, body) = collector.join().unwrap();
    assert!(head.starts_with("POST /v1/traces "), "{head}");
    for word in ["nightly jobs", "acquire", "lease", "ledger/1", "released"] {
        assert!(body.windows(word.len()).any(|window| window == word.as_bytes()), "{word}");
    }
}

#[test]
fn collector_that_hangs_keeps_no_lock_and_no_exit_code() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let home = Home::new();
    let mut run = home.fencepost(["run", "demo", "--", "sh", "-c", "exit 3"]);
    let running = Running::of(run.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
    // It takes the connection, and never answers.
    let connection = listener.accept().unwrap();
    home.run(["status", "demo"]).exits(1);
    let outcome = running.ends().exits(3);
    drop(connection);
    assert!(outcome.stderr.contains("collector"), "{outcome:?}");

    let mut run = home.fencepost(["run", "demo", "--", "sh", "-c", "exit 3"]);
    run.env("OTEL_EXPORTER_OTLP_ENDPOINT", "no URL");
    let outcome = Outcome::of(run.output().unwrap()).exits(3);
    assert!(outcome.stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{outcome:?}");
}
