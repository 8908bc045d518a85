//! Waiting for a hold without polling: a thread that blocks in the kernel, one per lock, mode and process.
//!
//! The call cannot be interrupted, so a waiter that gives up leaves the thread behind; all waiters of one lock share it,
//! and when it gets a hold that nobody wants any more, it closes it at once. A killed process leaves nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, MutexGuard};

use fencepost_core::{Clock, Error, ErrorKind, Mode, Result};
use futures_channel::oneshot;

use crate::directory::{Directory, Paths};
use crate::hold::Hold;
use crate::readers;

type Waiters = VecDeque<oneshot::Sender<Result<Hold>>>;

/// The waiters of this process, by lock; all backends of the process share them.
static QUEUE: Queue = Queue(LazyLock::new(Mutex::default));

#[derive(Debug)]
struct Queue(LazyLock<Mutex<HashMap<(Paths, Mode), Waiters>>>);

/// Waits for a hold.
///
/// # Cancel safety
/// A dropped wait is skipped when its turn comes.
pub(crate) async fn wait(directory: &Directory, paths: &Paths, mode: Mode, clock: &Clock) -> Result<Hold> {
    let _mark = match mode {
        Mode::Exclusive => readers::mark(directory, paths, clock).await,
        Mode::Shared => None,
    };
    let (waiter, hold) = oneshot::channel();
    QUEUE.join(directory, &(paths.clone(), mode), waiter)?;
    hold.await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unexpected, "wait for the lock", "its thread ended")))
}

/// How many of this process wait to have a lock alone, and have not given up.
pub(crate) fn waiting(paths: &Paths) -> usize {
    let waiters = QUEUE.waiters();
    waiters
        .get(&(paths.clone(), Mode::Exclusive))
        .map_or(0, |waiters| waiters.iter().filter(|waiter| !waiter.is_canceled()).count())
}

impl Queue {
    fn join(
        &'static self,
        directory: &Directory,
        lock: &(Paths, Mode),
        waiter: oneshot::Sender<Result<Hold>>,
    ) -> Result<()> {
        let mut waiters = self.waiters();
        if let Some(others) = waiters.get_mut(lock) {
            others.push_back(waiter);
            return Ok(());
        }
        let (directory, waited_for) = (directory.clone(), lock.clone());
        let thread = std::thread::Builder::new().name("fencepost-wait".to_owned());
        let started = thread.spawn(move || self.serve(&directory, &waited_for));
        started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "wait for the lock", "no thread could be started")
                .caused_by(error)
        })?;
        waiters.insert(lock.clone(), VecDeque::from([waiter]));
        Ok(())
    }

    fn serve(&self, directory: &Directory, lock: &(Paths, Mode)) {
        loop {
            let hold = Hold::wait(directory, &lock.0, lock.1);
            let mut waiters = self.waiters();
            let ours = waiters.get_mut(lock).expect("the thread's entry is removed by the thread alone");
            hand_over(ours, hold);
            if ours.is_empty() {
                waiters.remove(lock);
                return;
            }
        }
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<(Paths, Mode), Waiters>> {
        fencepost_core::lock(&self.0)
    }
}

/// Gives a hold to the first who still waits, and an error to all.
fn hand_over(waiters: &mut Waiters, hold: Result<Hold>) {
    match hold {
        Ok(mut hold) => {
            while let Some(waiter) = waiters.pop_front() {
                match waiter.send(Ok(hold)) {
                    Err(Ok(refused)) => hold = refused,
                    _ => return,
                }
            }
        }
        Err(error) => {
            for waiter in waiters.drain(..) {
                let _ = waiter.send(Err(error.clone()));
            }
        }
    }
}
