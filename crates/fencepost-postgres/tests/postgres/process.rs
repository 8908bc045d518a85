//! A client that is a process of its own, so that it can be stopped and killed.
//!
//! Invariant: none outlives its value here.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fencepost_testkit::block_on;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::stage::{lock, locks};

/// The variables in which the process finds its URL and the length of its lease.
const URL: &str = "FENCEPOST_CLIENT_URL";
const TTL_MS: &str = "FENCEPOST_CLIENT_TTL";

/// Is set where it shares the lock.
const SHARES: &str = "FENCEPOST_CLIENT_SHARES";

const ASKS: &str = "@asks";
const HOLDS: &str = "@holds";

/// A process that asks for the lock `a`, and holds it until its input ends.
pub(crate) struct Client {
    process: Child,
    lines: Receiver<String>,
}

impl Client {
    pub(crate) fn start(url: &str, ttl: Duration) -> Self {
        Self::of(Command::new(own_program()), url, ttl)
    }

    /// One that shares the lock.
    pub(crate) fn start_reader(url: &str, ttl: Duration) -> Self {
        let mut command = Command::new(own_program());
        command.env(SHARES, "yes");
        Self::of(command, url, ttl)
    }

    fn of(mut command: Command, url: &str, ttl: Duration) -> Self {
        let mut process = command
            .args(["--ignored", "--exact", "process::client", "--nocapture", "--test-threads=1"])
            .env(URL, url)
            .env(TTL_MS, ttl.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test can start itself");
        let output = process.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.filter(|line| line.contains('@')).try_for_each(|line| sender.send(line))
        });
        let client = Self { process, lines };
        client.await_line(ASKS);
        client
    }

    pub(crate) fn await_hold(&self) {
        self.await_line(HOLDS);
    }

    /// Whether it has said meanwhile that it holds the lock.
    pub(crate) fn says_that_it_holds(&self) -> bool {
        self.lines.try_iter().any(|line| line.contains(HOLDS))
    }

    /// Stops the process, and waits until it stands still.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.process)), options).expect("it is our child");
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("it is our child");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it was not waited for");
    }

    fn await_line(&self, wanted: &str) {
        let line = self.lines.recv_timeout(Duration::from_secs(20)).expect("it says something");
        assert!(line.contains(wanted), "{line}");
    }
}

fn own_program() -> std::path::PathBuf {
    std::env::current_exe().expect("a program knows its own path")
}

impl Drop for Client {
    fn drop(&mut self) {
        // One that was killed is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "the client process of other tests"]
fn client() {
    let (Ok(url), Ok(ttl)) = (std::env::var(URL), std::env::var(TTL_MS)) else { return };
    let ttl = Duration::from_millis(ttl.parse().unwrap());
    println!("{ASKS}");
    let exclusive = lock(&locks(&url), "a").ttl(ttl);
    let lock = if std::env::var_os(SHARES).is_some() { exclusive.shared() } else { exclusive };
    match block_on(lock.acquire()) {
        Ok(lease) => {
            println!("{HOLDS}");
            let _ = std::io::stdin().read(&mut [0]);
            block_on(lease.release()).unwrap();
        }
        Err(error) => println!("@{error:?}"),
    }
}
