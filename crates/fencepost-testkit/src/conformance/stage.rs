//! What every case stands on: clients, locks with the harness's ttl, time, and a limit to everything that is awaited.
//!
//! Invariant: no case waits without a limit, so a backend that never answers fails its case instead of hanging it.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Clock, Expiry, Fence, HolderId, Lease, Lock, LockState, Locks, Mode, Moment, Profile,
    VirtualTime, Wait, until,
};
use futures_util::future::{BoxFuture, join_all};

use crate::harness::Harness;
use crate::worker::{Command, Worker};

/// The longest that any future of a case may take.
const LIMIT: Duration = Duration::from_secs(40);

/// How long a store keeps a lock for a waiter that it has told of it, and that says nothing.
const RESERVATION: Duration = Duration::from_secs(3);

/// How often a case looks whether something has come about.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What holders and waiters of a case are called.
pub(super) const LABEL: &str = "a case of the suite";

/// The variable that repeats a run with the random numbers of an earlier one.
const SEED: &str = "FENCEPOST_SEED";

/// The surroundings of one running case.
pub(super) struct Stage<'a> {
    harness: &'a dyn Harness,
    locks: Locks,
    worker: &'a str,
    dice: OnceLock<Clock>,
}

impl<'a> Stage<'a> {
    /// The case's stage; `worker` is the path of the ignored test that is a worker.
    pub(super) fn new(harness: &'a dyn Harness, worker: &'a str) -> Self {
        Self { harness, locks: harness.locks(), worker, dice: OnceLock::new() }
    }

    /// The case's own client.
    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// A client of its own.
    pub(super) fn client(&self) -> Locks {
        self.harness.locks()
    }

    pub(super) fn profile(&self) -> &Profile {
        self.locks.profile()
    }

    pub(super) fn clock(&self) -> &Clock {
        self.locks.backend().clock()
    }

    pub(super) fn now(&self) -> Moment {
        self.clock().now()
    }

    pub(super) fn ttl(&self) -> Duration {
        self.harness.ttl()
    }

    pub(super) fn slack(&self) -> Duration {
        self.harness.slack()
    }

    /// A ttl that does not run out while the case runs, so that nothing is repaired by its running out.
    pub(super) fn long_ttl(&self) -> Duration {
        self.profile().longest_ttl.unwrap_or(LIMIT).min(LIMIT)
    }

    /// How late a store that counts in milliseconds may be early.
    pub(super) fn tolerance(&self) -> Duration {
        self.ttl() / 500 + Duration::from_millis(2)
    }

    /// By when a lock is free whose holder's process is gone.
    pub(super) fn recovery(&self) -> Duration {
        match self.profile().expiry {
            Expiry::WithProcess => self.slack(),
            _ => self.ttl() + self.slack(),
        }
    }

    /// By when the next waiter is served although the one before it is gone or stopped: a store may first keep the lock
    /// for that one.
    pub(super) fn hand_on(&self) -> Duration {
        match self.profile().expiry {
            Expiry::WithProcess => self.ttl() + self.slack(),
            _ => self.ttl() + self.slack() + RESERVATION,
        }
    }

    pub(super) fn fence(&self) -> Arc<dyn Fence> {
        self.harness.fence()
    }

    pub(super) fn virtual_time(&self) -> Option<&VirtualTime> {
        self.harness.virtual_time()
    }

    /// A lock of the case's own client.
    pub(super) fn lock(&self, name: &str) -> Lock {
        self.lock_of(&self.locks, name)
    }

    /// A lock of another client.
    pub(super) fn other(&self, name: &str) -> Lock {
        self.lock_of(&self.client(), name)
    }

    fn lock_of(&self, locks: &Locks, name: &str) -> Lock {
        locks.lock(name).expect("the suite's names are valid").ttl(self.ttl()).label(LABEL)
    }

    /// A request below the level of leases, where nothing renews.
    pub(super) fn request(&self, name: &str, wait: Wait) -> AcquireRequest {
        AcquireRequest {
            name: name.parse().expect("the suite's names are valid"),
            holder: HolderId::draw(self.clock()),
            label: LABEL.to_owned(),
            ttl: self.ttl(),
            at_least: None,
            mode: Mode::Exclusive,
            beside: Vec::new(),
            wait,
            observer: None,
        }
    }

    /// A random number below `below`; the seed of all of them is printed with a failure.
    pub(super) fn random(&self, below: u64) -> u64 {
        let dice = self.dice.get_or_init(|| {
            let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
            let seed = given.unwrap_or_else(|| Clock::system().random());
            super::say(&format!("{SEED}={seed} repeats the random numbers of this run"));
            VirtualTime::new(seed).clock()
        });
        dice.random() % below.max(1)
    }

    /// Random instants below a limit.
    pub(super) fn random_duration(&self, below: Duration) -> Duration {
        let micros = u64::try_from(below.as_micros()).expect("a case takes seconds");
        Duration::from_micros(self.random(micros))
    }

    /// Lets time pass in which the case's own thread does nothing, as an application that blocks its executor.
    pub(super) fn pass(&self, duration: Duration) {
        let sleep = self.clock().sleep(duration);
        self.harness.block_on(Box::pin(sleep));
    }

    /// Lets time pass inside a future.
    pub(super) async fn sleep(&self, duration: Duration) {
        self.clock().sleep(duration).await;
    }

    /// Drives a future to its end.
    pub(super) fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let mut output = None;
        let run = async { output = Some(self.within(LIMIT, "the case", future).await) };
        self.harness.block_on(Box::pin(run));
        output.expect("the harness drives the future to its end")
    }

    /// Drives several futures to their ends at the same time: each on a thread of its own, or in virtual time.
    pub(super) fn run_all<T: Send>(&self, futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
        let outputs = Mutex::new(Vec::new());
        let run = |future| async {
            let output = self.within(LIMIT, "a task of the case", future).await;
            outputs.lock().unwrap_or_else(PoisonError::into_inner).push(output);
        };
        if self.harness.virtual_time().is_some() {
            let all = async { drop(join_all(futures.into_iter().map(run)).await) };
            self.harness.block_on(Box::pin(all));
        } else {
            on_threads(futures, |future| self.harness.block_on(Box::pin(run(future))));
        }
        outputs.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Awaits something that must not take longer.
    pub(super) async fn within<T>(&self, limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
        let output = until(self.clock(), Some(self.now().after(limit)), future).await;
        output.unwrap_or_else(|| panic!("{what} took more than {limit:?}"))
    }

    /// Takes a lock that must be free.
    pub(super) async fn take(&self, name: &str) -> Lease {
        take(&self.lock(name)).await
    }

    pub(super) async fn state(&self, name: &str) -> LockState {
        self.locks.inspect(name).await.expect("a lock can be looked at")
    }

    /// Looks at a lock until it is as it must soon be.
    pub(super) async fn until_state(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&LockState) -> bool + Send + Sync,
    ) -> LockState {
        let give_up_at = self.now().after(self.slack());
        loop {
            let state = self.state(name).await;
            if is_so(&state) {
                return state;
            }
            assert!(self.now() < give_up_at, "{what}: not so after {:?}, but {state:?}", self.slack());
            self.sleep(LOOK_EVERY).await;
        }
    }

    /// Looks at the locks of a prefix until none is held; those that still are after a while.
    pub(super) async fn until_free(&self, prefix: &str) -> Vec<LockState> {
        let give_up_at = self.now().after(self.slack());
        loop {
            let listed = self.locks.list(prefix).await.expect("locks can be listed");
            if listed.is_empty() || self.now() >= give_up_at {
                return listed;
            }
            self.sleep(LOOK_EVERY).await;
        }
    }

    /// Starts a worker process of the same surroundings.
    pub(super) fn worker(&self) -> Worker {
        let address = self.harness.address().expect("a case that needs an address is run only with one");
        let worker = Worker::start(&address, self.worker);
        assert_eq!(worker.answer(LIMIT), crate::worker::Answer::Ready, "a worker says that it is there");
        worker
    }

    /// The directory of what the processes of a case share beside the locks.
    pub(super) fn scratch() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = directory.path().join("counter");
        (directory, file)
    }

    /// Tells a worker to acquire a lock with the case's ttl.
    pub(super) fn tell_to_acquire(&self, worker: &mut Worker, name: &str, patience: crate::worker::Patience) {
        worker.tell(&Command::Acquire { name: name.to_owned(), ttl: self.ttl(), patience });
    }
}

/// Takes a lock that must be free.
pub(super) async fn take(lock: &Lock) -> Lease {
    let lease = lock.try_acquire().await.expect("a free lock can be asked for");
    lease.unwrap_or_else(|| panic!("{} is free, and was not given", lock.name()))
}

/// Runs each piece of work on a thread of its own; the first panic goes on in the caller.
fn on_threads<W: Send>(work: Vec<W>, run: impl Fn(W) + Sync) {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = work.into_iter().map(|work| scope.spawn(move || run(work))).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}
