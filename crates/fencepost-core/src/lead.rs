//! `block_on`: the thread that waits does the work of fencepost's own thread meanwhile, so that nothing has to be handed
//! from one to the other.
//!
//! Invariant: work is never left lying. Where the thread that leads is busy with the future's own code for longer than
//! [`AWAY_MOST`], the background thread takes over until it is back.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::poll::{self, Executor};

/// How long the leading thread may be busy elsewhere before the background thread takes over.
pub(crate) const AWAY_MOST: Duration = Duration::from_millis(5);

/// Who works: the background thread, or one that waits in [`block_on`].
#[derive(Debug, Default)]
pub(crate) struct Lead {
    /// 0 while nobody leads. It grows with each change: odd while the leading thread is in the future's own code, even
    /// while it works or sleeps here.
    progress: AtomicU64,
    /// Whether the background thread sleeps until it is called.
    is_idle: AtomicBool,
    background: OnceLock<Thread>,
}

impl Lead {
    /// The calling thread is the one in the background.
    pub(crate) fn introduce_background(&self) {
        // There is one.
        let _ = self.background.set(std::thread::current());
    }

    /// Whether the background thread is to work.
    pub(crate) fn is_vacant(&self) -> bool {
        self.progress.load(Ordering::SeqCst) == 0
    }

    /// Waits in the background. Whether the leading thread has been busy elsewhere all the time.
    pub(crate) fn is_away_for_long(&self) -> bool {
        let seen = self.progress.load(Ordering::SeqCst);
        std::thread::park_timeout(AWAY_MOST);
        if seen == 0 || self.progress.load(Ordering::SeqCst) != seen {
            return false;
        }
        if seen % 2 == 1 {
            return true;
        }
        // It sleeps, and calls when it wakes up; unless it has done so in this very moment.
        self.is_idle.store(true, Ordering::SeqCst);
        if self.progress.load(Ordering::SeqCst) == seen {
            std::thread::park();
        }
        self.is_idle.store(false, Ordering::SeqCst);
        false
    }

    /// Whether the calling thread leads from now on.
    fn take(&self) -> bool {
        self.progress.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn turn_to_the_tasks(&self) {
        self.progress.fetch_add(1, Ordering::SeqCst);
    }

    fn turn_to_the_future(&self) {
        self.progress.fetch_add(1, Ordering::SeqCst);
        if self.is_idle.load(Ordering::SeqCst) {
            self.call_background();
        }
    }

    fn call_background(&self) {
        if let Some(background) = self.background.get() {
            background.unpark();
        }
    }
}

/// Drives a future to its end on this thread, without any runtime.
///
/// Meanwhile this thread does the work of fencepost's own thread as well: a lock that is acquired here is not waited for by
/// way of another thread. Only one thread at a time does; others that call this just wait. Where the future's own code
/// blocks, renewals go on in the background.
///
/// # Examples
/// ```
/// use fencepost_core::{Clock, Locks, MemoryBackend, block_on};
///
/// let locks = Locks::new(MemoryBackend::new(Clock::system()));
/// let token = block_on(async { locks.lock("nightly")?.run(async |lease| lease.token()).await })?;
/// println!("done under token {token}");
/// # Ok::<(), fencepost_core::Error>(())
/// ```
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // At each turn: the work may have begun, or the thread that led may have ended, since the last one.
        if let Some(leading) = Leading::begin() {
            return lead(leading.executor, future);
        }
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // A wake-up that came before this is kept by the thread, so none is missed.
            Poll::Pending => std::thread::park(),
        }
    }
}

thread_local! {
    /// Whether this thread leads. What is called from inside must not wait for itself.
    static LEADS: Cell<bool> = const { Cell::new(false) };
}

/// Gives the lead back, however the future has ended.
struct Leading {
    executor: &'static Arc<Executor>,
}

impl Leading {
    fn begin() -> Option<Self> {
        let executor = poll::started()?;
        if LEADS.get() || !executor.lead.take() {
            return None;
        }
        LEADS.set(true);
        Some(Self { executor })
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        LEADS.set(false);
        self.executor.lead.progress.store(0, Ordering::SeqCst);
        self.executor.lead.call_background();
    }
}

fn lead<T>(executor: &'static Arc<Executor>, mut future: Pin<&mut impl Future<Output = T>>) -> T {
    let bell = Arc::new(Bell { is_rung: AtomicBool::new(true), executor });
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    loop {
        if bell.is_rung.swap(false, Ordering::SeqCst)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return output;
        }
        executor.lead.turn_to_the_tasks();
        {
            let mut tasks = executor.tasks();
            executor.work_and_sleep(&mut tasks, None, || bell.is_rung.load(Ordering::SeqCst));
        }
        executor.lead.turn_to_the_future();
    }
}

/// Says that the future can go on.
struct Bell {
    is_rung: AtomicBool,
    executor: &'static Arc<Executor>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_rung.swap(true, Ordering::SeqCst) {
            self.executor.ring();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn work_goes_on_while_the_code_of_the_future_blocks() {
        let clock = Clock::system();
        let (sender, receiver) = std::sync::mpsc::channel();
        block_on(async {
            let ticking = clock.clone();
            clock.spawn(async move {
                for _ in 0..3 {
                    ticking.sleep(Duration::from_millis(10)).await;
                }
                sender.send(()).expect("somebody waits for it");
            });
            clock.sleep(Duration::from_millis(1)).await;
            receiver.recv_timeout(Duration::from_secs(10)).expect("the background takes over");
        });
    }

    #[test]
    fn several_threads_may_wait_and_one_inside_another() {
        let clock = Clock::system();
        let sleep = || clock.sleep(Duration::from_millis(20));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| block_on(sleep())));
            }
            block_on(async {
                sleep().await;
                block_on(sleep());
                sleep().await;
            });
        });
        block_on(clock.settled());
    }
}
