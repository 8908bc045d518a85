//! Waiting for a hold without polling: a thread that blocks in the kernel, one per lock and process.
//!
//! The call cannot be interrupted, so a waiter that gives up leaves the thread behind; all waiters of one lock share it,
//! and when it gets a hold that nobody wants any more, it closes it at once. A killed process leaves nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use fencepost_core::{Error, ErrorKind, Result};
use futures_channel::oneshot;

use crate::directory::{Directory, Paths};
use crate::hold::Hold;

type Waiters = VecDeque<oneshot::Sender<Result<Hold>>>;

/// The waiters of this process, by lock; all backends of the process share them.
static QUEUE: Queue = Queue(LazyLock::new(Mutex::default));

#[derive(Debug)]
struct Queue(LazyLock<Mutex<HashMap<Paths, Waiters>>>);

/// Waits for a hold.
///
/// # Cancel safety
/// A dropped wait is skipped when its turn comes.
pub(crate) async fn wait(directory: &Directory, paths: &Paths) -> Result<Hold> {
    let (waiter, hold) = oneshot::channel();
    QUEUE.join(directory, paths, waiter)?;
    hold.await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unexpected, "wait for the lock", "its thread ended")))
}

/// How many of this process wait for a lock, and have not given up.
pub(crate) fn waiting(paths: &Paths) -> usize {
    let waiters = QUEUE.waiters();
    waiters.get(paths).map_or(0, |waiters| waiters.iter().filter(|waiter| !waiter.is_canceled()).count())
}

impl Queue {
    fn join(
        &'static self,
        directory: &Directory,
        paths: &Paths,
        waiter: oneshot::Sender<Result<Hold>>,
    ) -> Result<()> {
        let mut waiters = self.waiters();
        if let Some(others) = waiters.get_mut(paths) {
            others.push_back(waiter);
            return Ok(());
        }
        let (directory, waited_for) = (directory.clone(), paths.clone());
        let thread = std::thread::Builder::new().name("fencepost-wait".to_owned());
        let started = thread.spawn(move || self.serve(&directory, &waited_for));
        started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "wait for the lock", "no thread could be started")
                .caused_by(error)
        })?;
        waiters.insert(paths.clone(), VecDeque::from([waiter]));
        Ok(())
    }

    fn serve(&self, directory: &Directory, paths: &Paths) {
        loop {
            let hold = Hold::wait(directory, paths);
            let mut waiters = self.waiters();
            let ours = waiters.get_mut(paths).expect("the thread's entry is removed by the thread alone");
            hand_over(ours, hold);
            if ours.is_empty() {
                waiters.remove(paths);
                return;
            }
        }
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<Paths, Waiters>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
