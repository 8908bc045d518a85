//! A client process that acquires and releases until its input ends, and tells what it has held.
//!
//! It is the test's own program, which runs the ignored test `client`. Invariant: no client outlives its value here.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fencepost_core::{Clock, Lock, Moment, Raced, race};
use fencepost_testkit::block_on;
use fencepost_testkit::history::Hold;
use rustix::process::{Pid, Signal, kill_process};

use super::nodes::{locks, ms};

/// The variable in which a client finds the nodes' URL.
const URL: &str = "FENCEPOST_NODES";

/// What begins every line that is meant for the test.
const MARK: &str = "@held ";

/// The locks that clients want.
pub(crate) const NAMES: [&str; 2] = ["one", "two"];

/// How long their leases are.
const TTL: Duration = Duration::from_millis(700);

/// A running client.
pub(crate) struct Client {
    process: Child,
    reader: Option<JoinHandle<Vec<(String, Hold)>>>,
}

impl Client {
    pub(crate) fn start(url: &str) -> Self {
        let program = std::env::current_exe().expect("a program knows its own path");
        let mut process = Command::new(program)
            .args(["--ignored", "--exact", "client::client", "--nocapture", "--test-threads=1"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a test can start itself");
        let output = process.stdout.take().expect("it is piped");
        let read =
            move || BufReader::new(output).lines().map_while(Result::ok).filter_map(|line| held(&line));
        Self { process, reader: Some(std::thread::spawn(move || read().collect())) }
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the client; what it has held until then.
    pub(crate) fn kill(mut self) -> Vec<(String, Hold)> {
        drop(self.process.kill());
        self.holds()
    }

    /// Lets the client end by itself; what it has held.
    pub(crate) fn end(mut self) -> Vec<(String, Hold)> {
        drop(self.process.stdin.take());
        self.holds()
    }

    fn holds(&mut self) -> Vec<(String, Hold)> {
        let reader = self.reader.take().expect("it is asked once");
        let holds = reader.join().expect("a reader only reads");
        drop(self.process.wait());
        holds
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("a child that was not waited for exists");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// What a line says was held. A killed client may leave half a line.
fn held(line: &str) -> Option<(String, Hold)> {
    // The test harness of the client may have begun the line.
    let (_, rest) = line.split_once(MARK)?;
    let (name, hold) = rest.split_once(' ')?;
    Some((name.to_owned(), hold.parse().ok()?))
}

#[test]
#[ignore = "a client process of the other tests"]
fn client() {
    let Ok(url) = std::env::var(URL) else { return };
    let (is_over, locks) = (AtomicBool::new(false), locks(&url));
    std::thread::scope(|scope| {
        for name in NAMES {
            let (is_over, lock) = (&is_over, locks.lock(name).unwrap().ttl(TTL).wait(ms(3_000)));
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    hold(&lock);
                }
            });
        }
        // Its end is the sign to end.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        is_over.store(true, Ordering::Relaxed);
    });
    // What was given up is cancelled before the process ends.
    block_on(Clock::system().settled());
}

/// Holds the lock once, for less or for more than its ttl, and says so. Said at the grant already: who is killed says nothing
/// later.
fn hold(lock: &Lock) {
    let clock = Clock::system();
    let asked = clock.now();
    let Ok(lease) = block_on(lock.acquire()) else { return block_on(clock.sleep(ms(20))) };
    let granted = clock.now();
    let say = |ended: Moment| {
        let ended = ended.max(granted);
        let hold = Hold { asked, granted, ended, token: lease.token(), holder: lease.holder() };
        println!("{MARK}{} {hold}", lock.name());
    };
    say(granted);
    let work = if clock.random().is_multiple_of(16) { TTL * 2 } else { clock.jitter(ms(60)) };
    // Who is stopped meanwhile believes in the lease until its deadline, or until it is told.
    let is_lost = matches!(block_on(race(lease.lost(), clock.sleep(work))), Raced::First(_));
    let until = lease.deadline().moment().expect("it runs out");
    if is_lost || lease.check().is_err() {
        return say(clock.now().min(until));
    }
    say(clock.now().min(until));
    drop(block_on(lease.release()));
}
