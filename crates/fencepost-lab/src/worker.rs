//! A worker, in a process of its own: it takes the lock, reads the total, computes, looks whether it still holds the lock, and
//! writes; again and again, until it is told to end.
//!
//! Each step is a line on its standard output, with the moment. Invariant: a worker does not outlive the lab.

use std::io::{BufRead, BufReader, Write as _};
use std::sync::Arc;
use std::time::Duration;

use fencepost::{
    BackendUrl, Clock, Error, ErrorKind, Event, Lease, Lock, LockName, Observer, Raced, Result, block_on,
    race,
};
use futures_channel::oneshot;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::history::{Record, Step};
use crate::sink::{Sink, Verdict, Write};

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Which worker, from 0.
    pub(crate) worker: usize,
    /// The number of its first hold.
    pub(crate) first_hold: u32,
    /// Where the lock lives; none without a lock.
    pub(crate) backend: Option<String>,
    /// The lock, which is the partition as well.
    pub(crate) lock: String,
    pub(crate) ttl_ms: u64,
    /// The protected system.
    pub(crate) sink: String,
    /// Whether the fence is sealed with each grant.
    pub(crate) seals: bool,
    /// Whether the fence is shown the stamp with each write.
    pub(crate) shows: bool,
    /// Between the read and the look at the lease.
    pub(crate) computing_ms: u64,
    /// Between the look at the lease and the write.
    pub(crate) sending_ms: u64,
}

/// Works as the first line of the standard input says, until that ends.
///
/// # Errors
/// What makes the work impossible, in words.
pub fn work_as_told() -> std::result::Result<(), String> {
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    bound.map_err(|error| format!("cannot be bound to the lab: {error}"))?;
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line).map_err(|error| error.to_string())?;
    let order: Order = serde_json::from_str(&line).map_err(|error| error.to_string())?;
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        // Nothing more is said, so what comes is the end.
        drop(input.read_line(&mut String::new()));
        let _ = stop.send(());
    });
    Worker::new(order).and_then(|worker| worker.run(stopped)).map_err(|error| error.to_string())
}

/// Writes down what happens, from any thread.
#[derive(Debug)]
struct Diary {
    worker: usize,
    clock: Clock,
}

impl Diary {
    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn note(&self, hold: u32, step: Step) {
        self.note_at(self.now(), hold, step);
    }

    fn note_at(&self, at: u64, hold: u32, step: Step) {
        let record = Record { at, worker: self.worker, hold, step };
        // Without a reader there is no lab, and then no worker either.
        drop(std::io::stdout().lock().write_all(record.line().as_bytes()));
    }
}

/// Writes down what happens to the lease of one hold.
#[derive(Debug)]
struct Listener {
    diary: Arc<Diary>,
    hold: u32,
}

impl Observer for Listener {
    fn observe(&self, _: &LockName, event: &Event) {
        match event {
            Event::Renewed { deadline } => {
                let deadline = deadline.moment().map(fencepost::Moment::as_nanos);
                self.diary.note(self.hold, Step::Renewed { deadline });
            }
            Event::Lost { error } => self.diary.note(self.hold, Step::Lost { why: error.to_string() }),
            _ => {}
        }
    }
}

struct Worker {
    order: Order,
    diary: Arc<Diary>,
    lock: Option<Lock>,
    sink: Sink,
    clock: Clock,
}

impl Worker {
    fn new(order: Order) -> Result<Self> {
        let clock = Clock::system();
        let diary = Arc::new(Diary { worker: order.worker, clock: clock.clone() });
        let url: BackendUrl = order.sink.parse()?;
        let sink = Sink::open(&url, &order.lock.parse()?)?;
        let lock = order.backend.as_deref().map(|backend| lock_of(&order, backend, &url)).transpose()?;
        Ok(Self { order, diary, lock, sink, clock })
    }

    fn run(mut self, mut stopped: oneshot::Receiver<()>) -> Result<()> {
        self.diary.note(0, Step::Started);
        self.clock.start()?;
        for hold in self.order.first_hold.. {
            if !matches!(stopped.try_recv(), Ok(None)) || !self.hold(hold, &mut stopped) {
                break;
            }
        }
        // What was dropped is given back before the process ends.
        block_on(race(self.clock.sleep(SETTLING), self.clock.settled()));
        self.diary.note(0, Step::Ended);
        Ok(())
    }

    /// One hold from its beginning to its end; false when the worker is to end.
    fn hold(&mut self, number: u32, stopped: &mut oneshot::Receiver<()>) -> bool {
        self.diary.note(number, Step::Asked);
        let Some(lock) = self.lock.clone() else {
            self.diary.note(number, Step::Claimed { token: None, holder: None, deadline: None });
            self.work(number, None);
            self.diary.note(number, Step::Releasing);
            self.diary.note(number, Step::Released);
            self.pass(RESTING);
            return true;
        };
        let listener = Listener { diary: Arc::clone(&self.diary), hold: number };
        let lock = lock.observer(Arc::new(listener));
        match block_on(race(stopped, lock.acquire())) {
            Raced::First(_) => return false,
            Raced::Second(Ok(lease)) => self.hold_lease(number, lease),
            Raced::Second(Err(error)) => self.fail(number, &error),
        }
        self.pass(RESTING);
        true
    }

    fn hold_lease(&mut self, number: u32, lease: Lease) {
        let deadline = lease.deadline().moment().map(fencepost::Moment::as_nanos);
        let (token, holder) = (Some(lease.token().get()), Some(lease.holder().to_string()));
        self.diary.note(number, Step::Claimed { token, holder, deadline });
        self.work(number, Some(&lease));
        self.diary.note(number, Step::Releasing);
        match block_on(lease.release()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Lost => {}
            Err(error) => self.fail(number, &error),
        }
        self.diary.note(number, Step::Released);
    }

    /// Reads, computes, looks at the lease, and writes.
    fn work(&mut self, number: u32, lease: Option<&Lease>) {
        let base = match self.sink.read() {
            Ok(base) => base,
            Err(error) => return self.fail(number, &error),
        };
        self.diary.note(number, Step::Read { based_on: base.last_write.clone() });
        self.pass(Duration::from_millis(self.order.computing_ms));
        // Read before it looks: it may be stopped in between.
        let looked = self.diary.now();
        let holds = lease.is_none_or(|lease| lease.check().is_ok());
        self.diary.note_at(looked, number, Step::Checked { holds });
        if !holds {
            return;
        }
        self.pass(Duration::from_millis(self.order.sending_ms));
        let name = format!("w{}-{number}", self.order.worker + 1);
        let stamp = lease.filter(|_| self.order.shows).map(Lease::stamp);
        let token = lease.map(|lease| lease.token().get());
        self.diary.note(number, Step::Writing { write: name.clone() });
        let step = match self.sink.write(&Write { name: name.clone(), base, token, stamp }) {
            Verdict::Accepted => Step::Accepted { write: name },
            Verdict::Refused(why) => Step::Refused { write: name, why },
            Verdict::Unknown(why) => Step::Unknown { write: name, why },
        };
        self.diary.note(number, step);
    }

    fn fail(&self, number: u32, error: &Error) {
        self.diary.note(number, Step::Failed { why: error.to_string() });
        self.pass(RETRYING);
    }

    fn pass(&self, time: Duration) {
        block_on(self.clock.sleep(time));
    }
}

fn lock_of(order: &Order, backend: &str, sink: &BackendUrl) -> Result<Lock> {
    let locks = fencepost::connect(backend)?;
    let lock = locks.lock(&order.lock)?.ttl(Duration::from_millis(order.ttl_ms));
    let lock = lock.label(format!("worker {} of fencepost lab", order.worker + 1));
    if order.seals { Ok(lock.fence(fencepost::fence(sink)?)) } else { Ok(lock) }
}

/// Between two holds, so that others get their turn.
const RESTING: Duration = Duration::from_millis(10);
/// Before a server that does not answer is asked again.
const RETRYING: Duration = Duration::from_millis(50);
/// How long a worker that ends gives its lease back.
const SETTLING: Duration = Duration::from_secs(1);
