//! moto, the mock of AWS in Python, as a server that speaks S3 and is not of this project.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use tempfile::TempDir;

use super::{LONGEST_WAIT, holds_within, installed, log_to};
use crate::port::Port;
use crate::process::Process;

/// A running server with one bucket, `bucket`.
#[derive(Debug)]
pub struct MotoServer {
    // Dropped first: the directory is removed when nobody writes in it any more.
    process: Process,
    port: Port,
    directory: TempDir,
}

impl MotoServer {
    /// A server in which nothing but the bucket is.
    ///
    /// # Panics
    /// When it is not installed, or ends instead of answering; the message then holds what it said.
    pub fn start() -> Self {
        let (port, directory) =
            (Port::reserve(), tempfile::tempdir().expect("a temporary directory can be made"));
        let log = directory.path().join("log");
        let mut command = Process::bound(&installed("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &port.number().to_string()]);
        command.stdout(log_to(&log)).stderr(log_to(&log));
        let process = Process::start_bound(command);
        let mut server = Self { process, port, directory };
        let is_ready = holds_within(LONGEST_WAIT, || server.process.has_ended() || server.makes_the_bucket());
        let is_running = is_ready && !server.process.has_ended();
        assert!(is_running, "moto does not start; it said:\n{}", server.log());
        server
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Whether it answers that the bucket is made.
    fn makes_the_bucket(&self) -> bool {
        ask(self.address(), "PUT /bucket HTTP/1.1").is_ok_and(|answer| answer.contains(" 200 "))
    }
}

/// Sends a request without a body; the first line of the answer.
fn ask(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(format!("{request}\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}
