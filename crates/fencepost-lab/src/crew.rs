//! The workers as the lab sees them: processes that are started, stopped, let go on and killed, and what they write down.
//!
//! Invariant: no worker outlives its crew, and nothing is waited for without a limit or through an interruption.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fencepost::{Clock, Moment, block_on};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::history::{Record, Step};
use crate::interrupt;
use crate::watch::Watch;
use crate::worker::Order;

/// How a worker's process is started: a program and the arguments with which it calls [`work_as_told`](crate::work_as_told).
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The workers of one cell.
#[derive(Debug)]
pub(crate) struct Crew {
    program: Program,
    members: Vec<Member>,
    sender: Sender<Record>,
    receiver: Receiver<Record>,
    records: Vec<Record>,
    clock: Clock,
}

/// One worker.
#[derive(Debug)]
struct Member {
    order: Order,
    process: Option<(Child, Option<ChildStdin>)>,
}

impl Crew {
    /// Starts a worker for each order.
    ///
    /// # Errors
    /// Why a process cannot be started.
    pub(crate) fn start(program: &Program, orders: Vec<Order>) -> Result<Self, String> {
        let (sender, receiver) = channel();
        let members = orders.into_iter().map(|order| Member { order, process: None }).collect();
        let (program, clock) = (program.clone(), Clock::system());
        let mut crew = Self { program, members, sender, receiver, records: Vec::new(), clock };
        for worker in 0..crew.members.len() {
            crew.launch(worker)?;
        }
        Ok(crew)
    }

    /// Starts the process of a worker, also again where it was killed.
    pub(crate) fn launch(&mut self, worker: usize) -> Result<(), String> {
        let last =
            self.records.iter().filter(|record| record.worker == worker).map(|record| record.hold).max();
        let member = &mut self.members[worker];
        member.order.first_hold = last.map_or(1, |last| last + 1);
        let mut child = Command::new(&self.program.path)
            .args(&self.program.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a worker cannot be started: {error}"))?;
        let mut input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let order = serde_json::to_string(&member.order).expect("an order is plain data");
        writeln!(input, "{order}").map_err(|error| format!("a worker takes no order: {error}"))?;
        member.process = Some((child, Some(input)));
        let sender = self.sender.clone();
        // It ends with the worker, whose end of the pipe then closes.
        std::thread::spawn(move || pass_on(output, &sender));
        Ok(())
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// The moment so far from now.
    pub(crate) fn after(&self, time: Duration) -> Moment {
        self.clock.now().after(time)
    }

    /// The next record that comes before the limit; none after an interruption either.
    pub(crate) fn next(&mut self, limit: Moment, watch: &mut dyn Watch) -> Option<Record> {
        loop {
            let left = limit.since(self.clock.now()).min(LOOK);
            if let Ok(record) = self.receiver.recv_timeout(left) {
                watch.saw(&record);
                self.records.push(record.clone());
                return Some(record);
            }
            if interrupt::has_come() || self.clock.now() >= limit {
                return None;
            }
        }
    }

    /// The first record that comes before the limit and is wanted.
    pub(crate) fn find(
        &mut self,
        limit: Moment,
        watch: &mut dyn Watch,
        mut is_wanted: impl FnMut(&Record) -> bool,
    ) -> Option<Record> {
        while let Some(record) = self.next(limit, watch) {
            if is_wanted(&record) {
                return Some(record);
            }
        }
        None
    }

    /// What has come until now, and comes at once.
    pub(crate) fn drain(&mut self, watch: &mut dyn Watch) {
        let limit = self.after(AT_ONCE);
        while self.next(limit, watch).is_some() {}
    }

    /// The last thing that a worker has done itself.
    pub(crate) fn last_of(&self, worker: usize) -> Option<&Record> {
        self.records.iter().rev().find(|record| record.worker == worker && is_own(&record.step))
    }

    /// Writes down what was done to a worker.
    pub(crate) fn note(&mut self, worker: usize, hold: u32, step: Step, watch: &mut dyn Watch) {
        let record = Record { at: self.now(), worker, hold, step };
        watch.saw(&record);
        self.records.push(record);
    }

    /// Stops a worker, and waits until it stands still.
    pub(crate) fn stop(&self, worker: usize) {
        let Some(pid) = self.signal(worker, Signal::STOP) else { return };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // Whoever has ended stands still as well.
        let _ = waitid(WaitId::Pid(pid), options);
    }

    pub(crate) fn go_on(&self, worker: usize) {
        self.signal(worker, Signal::CONT);
    }

    /// Kills a worker, and waits until it is gone.
    pub(crate) fn kill(&mut self, worker: usize) {
        if let Some((mut child, _)) = self.members[worker].process.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Tells all to end, waits until they have, and gives everything that they have written down, in the order of time.
    pub(crate) fn finish(mut self, watch: &mut dyn Watch) -> Vec<Record> {
        for worker in 0..self.members.len() {
            self.go_on(worker);
            if let Some((_, input)) = &mut self.members[worker].process {
                input.take();
            }
        }
        let mut ending = self.members.iter().filter(|member| member.process.is_some()).count();
        let limit = self.after(ENDING);
        while ending > 0 {
            let Some(record) = self.next(limit, watch) else { break };
            ending -= usize::from(record.step == Step::Ended);
        }
        (0..self.members.len()).for_each(|worker| self.kill(worker));
        self.drain(watch);
        self.records.sort_by_key(|record| record.at);
        std::mem::take(&mut self.records)
    }

    fn signal(&self, worker: usize, signal: Signal) -> Option<Pid> {
        let (child, _) = self.members[worker].process.as_ref()?;
        let pid = Pid::from_child(child);
        // A child that was not waited for exists.
        kill_process(pid, signal).ok().map(|()| pid)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|worker| self.kill(worker));
    }
}

/// Whether a worker did it, on the thread that does its work.
fn is_own(step: &Step) -> bool {
    use Step::{Killed, Lost, Paused, Renewed, Resumed};
    !matches!(step, Renewed { .. } | Lost { .. } | Paused | Resumed | Killed)
}

fn pass_on(output: ChildStdout, records: &Sender<Record>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        let Some(record) = Record::in_line(&line) else { continue };
        if records.send(record).is_err() {
            return;
        }
    }
}

/// Whether something comes to hold within `limit`.
pub(crate) fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let clock = Clock::system();
    let end = clock.now().after(limit);
    loop {
        if condition() {
            return true;
        }
        if clock.now() >= end || interrupt::has_come() {
            return false;
        }
        block_on(clock.sleep(BETWEEN_LOOKS));
    }
}

/// How often an interruption is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// What a worker has written comes in less.
const AT_ONCE: Duration = Duration::from_millis(4);
const BETWEEN_LOOKS: Duration = Duration::from_millis(3);
/// How long workers may take to give back what they hold.
const ENDING: Duration = Duration::from_secs(4);
