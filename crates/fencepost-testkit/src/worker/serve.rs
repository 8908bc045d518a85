//! The inside of a worker process: reads commands, carries them out one after the other, answers.
//!
//! It lives no longer than the process that started it, also when that one is killed while the worker is stopped.

use std::future::poll_fn;
use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use fencepost_core::{Clock, Lease, Lock, Locks, until};
use rustix::process::Signal;

use super::ADDRESS;
use super::protocol::{Answer, Command, Held, Patience};
use fencepost_core::block_on;

use crate::harness::Harness;
use crate::history::Hold;

/// Serves the case that started this process; does nothing if none has.
///
/// # Panics
/// When the case says something that it should not.
pub fn work_as_told<H: Harness>() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("KILL is a signal");
    let mut worker = Worker { locks: H::from_address(&address), lease: None };
    // The test harness has begun a line.
    say(&Answer::Ready);
    for line in io::stdin().lines() {
        let line = line.expect("a case speaks UTF-8");
        worker.obey(line.parse().unwrap_or_else(|wrong| panic!("a case said something odd: {wrong}")));
    }
}

/// Past the capturing of output, and at once.
fn say(answer: &Answer) {
    let mut output = io::stdout().lock();
    let said = writeln!(output, "{answer}").and_then(|()| output.flush());
    said.expect("the case reads what its worker says");
}

struct Worker {
    locks: Locks,
    lease: Option<Lease>,
}

impl Worker {
    fn obey(&mut self, command: Command) {
        match command {
            Command::Acquire { name, ttl, patience } => {
                let lock = self.lock(&name, ttl);
                say(&self.acquire(&lock, patience));
            }
            Command::Check => say(&truth(self.lease().check().is_ok())),
            Command::Deadline => say(&Answer::Until(self.lease().deadline().moment())),
            Command::Lost(limit) => say(&truth(self.is_lost_within(limit))),
            Command::Release => say(&self.release()),
            Command::Drop => {
                self.lease = None;
                say(&Answer::Yes);
            }
            Command::Increment { name, ttl, file, times } => {
                let lock = self.lock(&name, ttl);
                for _ in 0..times {
                    say(&Answer::Hold(increment(&lock, &file)));
                }
                say(&Answer::Yes);
            }
        }
    }

    fn lock(&self, name: &str, ttl: Duration) -> Lock {
        let lock = self.locks.lock(name).expect("a case gives valid names");
        lock.ttl(ttl).label(super::label(std::process::id()))
    }

    fn acquire(&mut self, lock: &Lock, patience: Patience) -> Answer {
        let asked = Clock::system().now();
        let outcome = block_on(async {
            match patience {
                Patience::None => lock.try_acquire().await,
                Patience::Until(limit) => lock.clone().wait(limit).acquire().await.map(Some),
                Patience::Forever => wait_aloud(lock).await.map(Some),
            }
        });
        match outcome {
            Ok(Some(lease)) => {
                let held = Held { asked, token: lease.token(), holder: lease.holder() };
                self.lease = Some(lease);
                Answer::Held(held)
            }
            Ok(None) => Answer::No,
            Err(error) => Answer::refused(&error),
        }
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a case asks only those who were given the lock")
    }

    fn is_lost_within(&self, limit: Duration) -> bool {
        let clock = Clock::system();
        block_on(until(&clock, Some(clock.now().after(limit)), self.lease().lost())).is_some()
    }

    fn release(&mut self) -> Answer {
        let lease = self.lease.take().expect("a case asks only those who were given the lock");
        block_on(lease.release()).map_or_else(|error| Answer::refused(&error), |()| Answer::Yes)
    }
}

fn truth(is_so: bool) -> Answer {
    if is_so { Answer::Yes } else { Answer::No }
}

/// Acquires a lock, and says so once it has asked and must wait.
async fn wait_aloud(lock: &Lock) -> fencepost_core::Result<Lease> {
    let mut acquiring = pin!(lock.acquire());
    let mut has_said = false;
    poll_fn(|context| {
        let polled = acquiring.as_mut().poll(context);
        if polled.is_pending() && !has_said {
            has_said = true;
            say(&Answer::Waiting);
        }
        polled
    })
    .await
}

/// Two at once lose an increment, or read the file while it is empty.
fn increment(lock: &Lock, file: &Path) -> Hold {
    let work = async {
        let number: u64 = std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        std::thread::yield_now();
        std::fs::write(file, (number + 1).to_string()).expect("the counter can be written");
    };
    block_on(Hold::during(lock, &Clock::system(), work))
}
