//! The executor behind [`Clock::spawn`](crate::Clock::spawn), and two ways to await one of several things.
//!
//! One thread at a time carries all keepers, timers and sockets of the process, so that ten thousand leases cost one
//! thread: fencepost's own, so that an application which blocks its executor cannot delay a renewal, or the thread that
//! waits in `block_on` (`lead.rs`). It needs no async runtime.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::fd::AsFd;
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec};

use crate::clock::{Clock, Moment, Timers, lock};
use crate::lead::{self, Lead};
use crate::watch::{Slept, Watch};

/// Tasks and timers that one thread works off.
pub(crate) struct Executor {
    pub(crate) timers: Timers,
    /// How many tasks have not ended, and who waits for none to be left.
    unfinished: Mutex<(usize, Vec<Waker>)>,
    arrived: Mutex<Vec<BoxFuture<'static, ()>>>,
    /// Whether whoever has the tasks works, sleeps, or has been told to look again.
    state: AtomicU8,
    tasks: Mutex<Tasks>,
    /// What is slept on; in a simulation nobody sleeps.
    watch: Option<Watch>,
    pub(crate) lead: Lead,
}

const WORKS: u8 = 0;
const SLEEPS: u8 = 1;
const RUNG: u8 = 2;

/// The tasks, and when the alarm goes off if that is known. Whoever has them works them off.
#[derive(Default)]
pub(crate) struct Tasks {
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    alarm: Option<Moment>,
}

static BACKGROUND: OnceLock<Arc<Executor>> = OnceLock::new();

/// The process's executor, if it has been started.
pub(crate) fn started() -> Option<&'static Arc<Executor>> {
    BACKGROUND.get()
}

/// The process's executor; its thread starts with the first call.
///
/// # Errors
/// When the system refuses a descriptor or a thread.
pub(crate) fn start() -> io::Result<&'static Arc<Executor>> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(executor) = BACKGROUND.get() {
        return Ok(executor);
    }
    let _first = lock(&STARTING);
    match BACKGROUND.get() {
        Some(executor) => Ok(executor),
        None => Executor::launch().map(|executor| BACKGROUND.get_or_init(|| executor)),
    }
}

/// The same, where it has been started before or must be.
///
/// # Panics
/// When the system refuses a descriptor or a thread.
pub(crate) fn background() -> &'static Arc<Executor> {
    start().expect("the system gives two descriptors and a thread")
}

impl Executor {
    fn new(watch: Option<Watch>) -> Self {
        Self {
            timers: Timers::default(),
            unfinished: Mutex::default(),
            arrived: Mutex::default(),
            state: AtomicU8::new(WORKS),
            tasks: Mutex::default(),
            watch,
            lead: Lead::default(),
        }
    }

    fn launch() -> io::Result<Arc<Self>> {
        let executor = Arc::new(Self::new(Some(Watch::new()?)));
        let shared = Arc::clone(&executor);
        std::thread::Builder::new().name("fencepost".to_owned()).spawn(move || shared.work())?;
        Ok(executor)
    }

    /// An executor that works only inside [`Executor::simulate`].
    pub(crate) fn simulated() -> Self {
        Self::new(None)
    }

    /// What the thread watches; `None` in a simulation, which has no descriptors.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Takes on a task. One that panics ends alone: the others are keepers of leases that have nothing to do with it.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.unfinished).0 += 1;
        let executor = Arc::clone(self);
        self.serve(AssertUnwindSafe(task).catch_unwind().map(move |_| executor.finished_one()));
    }

    /// Takes on a task that nobody waits for.
    pub(crate) fn serve(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = AssertUnwindSafe(task).catch_unwind().map(drop);
        lock(&self.arrived).push(Box::pin(task));
        self.ring();
    }

    fn finished_one(&self) {
        let mut unfinished = lock(&self.unfinished);
        unfinished.0 -= 1;
        if unfinished.0 == 0 {
            unfinished.1.drain(..).for_each(Waker::wake);
        }
    }

    /// Ends when no task is left.
    pub(crate) async fn settled(&self) {
        poll_fn(|context| {
            let mut unfinished = lock(&self.unfinished);
            if unfinished.0 == 0 {
                return Poll::Ready(());
            }
            unfinished.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Sets a timer, in place of the one with the number `timer`; its number.
    pub(crate) fn set_timer(&self, at: Moment, timer: Option<u64>, waker: &Waker) -> u64 {
        let (id, is_next) = self.timers.set(at, timer, waker);
        // A simulated thread looks at the timers whenever it has nothing else to do.
        if is_next && self.watch.is_some() {
            self.ring();
        }
        id
    }

    /// Tells whoever has the tasks to look again. Costs a system call only where it sleeps.
    pub(crate) fn ring(&self) {
        let before = self.state.swap(RUNG, Ordering::SeqCst);
        if let Some(watch) = self.watch.as_ref().filter(|_| before == SLEEPS) {
            watch.wake();
        }
    }

    /// The tasks, for whoever is to work them off now.
    pub(crate) fn tasks(&self) -> MutexGuard<'_, Tasks> {
        let tasks = self.tasks.try_lock();
        if let (Err(TryLockError::WouldBlock), Some(watch)) = (&tasks, &self.watch) {
            // Somebody sleeps with them.
            watch.wake();
        }
        tasks.unwrap_or_else(|_| lock(&self.tasks))
    }

    /// Works off what can be, and then sleeps until there is more to do, unless `is_awaited` says that there is elsewhere.
    pub(crate) fn work_and_sleep(
        self: &Arc<Self>,
        tasks: &mut Tasks,
        most: Option<Duration>,
        is_awaited: impl Fn() -> bool,
    ) {
        let Some(watch) = &self.watch else { return };
        // A swap, so that what was written before a ring is seen after it.
        self.state.swap(WORKS, Ordering::SeqCst);
        self.run_ready(&mut tasks.running, &Waker::from(Arc::clone(self)));
        let now = Clock::system().now();
        self.timers.fire(now);
        let next = self.timers.next();
        // One that goes off in vain does less harm than one that is missing, and costs less than to set it anew each time, so it
        // is never taken back and never put off.
        if let Some(at) = next.filter(|next| tasks.alarm.is_none_or(|alarm| *next < alarm || alarm <= now)) {
            watch.set_alarm(at);
            tasks.alarm = Some(at);
        }
        // What has rung since the store above has something to do that was perhaps not seen.
        let rested = self.state.compare_exchange(WORKS, SLEEPS, Ordering::SeqCst, Ordering::SeqCst);
        // The clock may have been shifted while the process was stopped: the alarm is then set anew.
        // What wakes up by what was slept on is not told to look again: that would ring the bell of the next sleep.
        let awake = || {
            self.state.swap(WORKS, Ordering::SeqCst);
        };
        if rested.is_ok() && !is_awaited() && watch.sleep(most, awake) != Slept::Woken {
            tasks.alarm = None;
        }
        self.state.swap(WORKS, Ordering::SeqCst);
    }

    /// The life of the background thread.
    fn work(self: Arc<Self>) {
        self.lead.introduce_background();
        loop {
            if self.lead.is_vacant() {
                let mut tasks = self.tasks();
                self.work_and_sleep(&mut tasks, None, || !self.lead.is_vacant());
            } else if self.lead.is_away_for_long() {
                let mut tasks = self.tasks();
                self.work_and_sleep(&mut tasks, Some(lead::AWAY_MOST), || false);
            }
        }
    }

    /// Polls tasks until none can go on.
    fn run_ready(&self, tasks: &mut FuturesUnordered<BoxFuture<'static, ()>>, waker: &Waker) {
        let mut context = Context::from_waker(waker);
        loop {
            tasks.extend(lock(&self.arrived).drain(..));
            let ran = matches!(tasks.poll_next_unpin(&mut context), Poll::Ready(Some(())));
            if !ran && lock(&self.arrived).is_empty() {
                return;
            }
        }
    }

    /// Runs `future` beside the tasks; `jump` moves time to a timer when nothing else can run.
    pub(crate) fn simulate<T>(
        self: &Arc<Self>,
        future: impl Future<Output = T>,
        jump: impl Fn(Moment) -> Moment,
    ) -> T {
        let waker = Waker::from(Arc::clone(self));
        let mut future = pin!(future);
        let mut kept = Kept { tasks: FuturesUnordered::new(), executor: self };
        loop {
            self.state.store(WORKS, Ordering::Release);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            self.run_ready(&mut kept.tasks, &waker);
            if self.state.swap(WORKS, Ordering::AcqRel) == RUNG {
                continue;
            }
            let next = self.timers.next().expect("something is left that can end the future");
            self.timers.fire(jump(next));
        }
    }
}

/// The tasks of a simulation, which go on in the next one, however this one ends.
struct Kept<'a> {
    tasks: FuturesUnordered<BoxFuture<'static, ()>>,
    executor: &'a Executor,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        lock(&self.executor.arrived).extend(std::mem::take(&mut self.tasks));
    }
}

impl Wake for Executor {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// Sets a kernel timer on `CLOCK_BOOTTIME`, which counts a suspend, to go off at `at`, or never.
///
/// It is set by the time that is left, and not by the moment: the kernel's clock may be another one than ours where
/// somebody shifts ours.
pub fn arm(timer: &impl AsFd, at: Option<Moment>) -> io::Result<()> {
    let left = at.map(|at| at.since(Clock::system().now()).max(Duration::from_nanos(1))).unwrap_or_default();
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    let value = Timespec { tv_sec: seconds, tv_nsec: i64::from(left.subsec_nanos()) };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

/// Which of two futures ended first.
#[derive(Debug)]
pub enum Raced<A, B> {
    /// The first one, also when both had ended.
    First(A),
    /// The second one.
    Second(B),
}

/// Awaits whichever of two futures ends first, and drops the other.
///
/// # Cancel safety
/// Dropping it drops both.
pub async fn race<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> Raced<A, B> {
    let mut first = pin!(first);
    let mut second = pin!(second);
    poll_fn(|context| {
        if let Poll::Ready(output) = first.as_mut().poll(context) {
            return Poll::Ready(Raced::First(output));
        }
        second.as_mut().poll(context).map(Raced::Second)
    })
    .await
}

/// Awaits `future`, but no longer than until `at` (for ever with `None`); `None` when the time ran out.
///
/// # Cancel safety
/// Dropping it drops `future`.
pub async fn until<T>(clock: &Clock, at: Option<Moment>, future: impl Future<Output = T>) -> Option<T> {
    let Some(at) = at else { return Some(future.await) };
    match race(future, clock.sleep_until(at)).await {
        Raced::First(output) => Some(output),
        Raced::Second(()) => None,
    }
}
