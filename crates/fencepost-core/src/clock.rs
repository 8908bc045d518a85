//! Time, timers and randomness: the one place that reads a clock, sleeps or draws a random number.
//!
//! Deadlines live on `CLOCK_BOOTTIME`, which runs on while the machine is suspended (`std::time::Instant` does not).
//! The same interface exists in virtual time, where a simulated hour takes no time and every run is repeatable.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::error::{Error, ErrorKind, Result};
use crate::poll::{self, Executor};

/// A moment on the holder's clock: nanoseconds of `CLOCK_BOOTTIME`, or of virtual time.
///
/// Comparable between the processes of one boot of one machine, and with nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `duration` later; the end of time where that overflows.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The moment `duration` earlier; the clock's start where that underflows.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of time: the system's, or a virtual one.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Virtual(Arc<Simulation>),
}

impl Clock {
    /// The machine's own clocks.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => system_now(),
            Source::Virtual(simulation) => simulation.now(),
        }
    }

    /// The wall clock in microseconds since 1970. For the floor of tokens and for messages, never for a deadline.
    pub fn wall_micros(&self) -> u64 {
        match &self.0 {
            Source::System => system_wall_micros(),
            Source::Virtual(simulation) => simulation.wall_micros(),
        }
    }

    /// A random number; in virtual time the next one of the seed.
    pub fn random(&self) -> u64 {
        match &self.0 {
            Source::System => u64::from_ne_bytes(system_random()),
            Source::Virtual(simulation) => simulation.random(),
        }
    }

    /// Two random numbers at once, which cost no more than one.
    pub(crate) fn wide_random(&self) -> u128 {
        match &self.0 {
            Source::System => u128::from_ne_bytes(system_random()),
            Source::Virtual(simulation) => {
                u128::from(simulation.random()) << 64 | u128::from(simulation.random())
            }
        }
    }

    /// A random duration below `most`, so that many waiters do not act in step.
    pub fn jitter(&self, most: Duration) -> Duration {
        let below = nanos(most).max(1);
        Duration::from_nanos(self.random() % below)
    }

    /// Ends at `at`.
    ///
    /// # Cancel safety
    /// Dropping it removes the timer.
    pub fn sleep_until(&self, at: Moment) -> Sleep {
        Sleep { clock: self.clone(), at, timer: None }
    }

    /// Ends `duration` from now.
    ///
    /// # Cancel safety
    /// Dropping it removes the timer.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().after(duration))
    }

    /// Makes sure that tasks and timers can run, so that what cannot be had is an error and not a panic later.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the system refuses a thread or a descriptor.
    pub fn start(&self) -> Result<()> {
        match &self.0 {
            Source::System => poll::start().map(drop).map_err(|error| {
                let what = "the system refuses a thread or a descriptor";
                Error::new(ErrorKind::Unavailable, "start the keeper of leases", what).caused_by(error)
            }),
            Source::Virtual(_) => Ok(()),
        }
    }

    /// Runs `task` to its end beside everything else: on fencepost's own thread, so that an application which blocks
    /// its executor delays nothing here; in virtual time inside [`VirtualTime::block_on`].
    ///
    /// The task must not block.
    ///
    /// # Panics
    /// When the system refuses the thread, which is started on first use.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.executor().spawn(task);
    }

    /// The same for a task that serves others for as long as they need it: [`settled`](Self::settled) does not wait for
    /// it.
    ///
    /// # Panics
    /// When the system refuses the thread, which is started on first use.
    pub fn serve(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.executor().serve(task);
    }

    /// Ends when everything that was [spawned](Self::spawn) has ended: no lease is held, and whatever was dropped has
    /// been given back. For a process that is about to end; bound it, since a store may not answer.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn settled(&self) {
        self.executor().settled().await;
    }

    pub(crate) fn executor(&self) -> &Arc<Executor> {
        match &self.0 {
            Source::System => poll::background(),
            Source::Virtual(simulation) => &simulation.executor,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Clock::system",
            Source::Virtual(_) => "Clock::virtual",
        })
    }
}

fn system_now() -> Moment {
    let time = read(ClockId::CLOCK_BOOTTIME);
    Moment(unsigned(time.tv_sec()) * 1_000_000_000 + unsigned(time.tv_nsec()))
}

fn system_wall_micros() -> u64 {
    let time = read(ClockId::CLOCK_REALTIME);
    unsigned(time.tv_sec()).saturating_mul(1_000_000).saturating_add(unsigned(time.tv_nsec()) / 1_000)
}

/// Reads a clock through the C library, as every other program does, so that what shifts clocks for tests shifts this.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
fn read(clock: ClockId) -> TimeSpec {
    clock_gettime(clock).expect("the kernel has this clock")
}

/// A wall clock before 1970 counts as 1970.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[expect(clippy::disallowed_methods, reason = "the one place that draws randomness")]
fn system_random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(read, Ok(bytes.len()), "the kernel gives so few random bytes at once");
    bytes
}

/// A future that ends at a moment; see [`Clock::sleep_until`].
#[derive(Debug)]
#[must_use = "a sleep does nothing until it is awaited"]
pub struct Sleep {
    clock: Clock,
    at: Moment,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        let timer = self.clock.executor().set_timer(self.at, self.timer, context.waker());
        self.timer = Some(timer);
        // The timers may have been fired between the two looks at the clock, and this one set too late for it.
        if self.clock.now() >= self.at { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.clock.executor().timers.remove(self.at, timer);
        }
    }
}

/// The pending timers of one executor, in the order in which they are due.
#[derive(Default)]
pub(crate) struct Timers {
    next_id: AtomicU64,
    pending: Mutex<BTreeMap<(Moment, u64), Waker>>,
}

impl Timers {
    /// Sets a timer; its number, and whether it is due before all others.
    pub(crate) fn set(&self, at: Moment, timer: Option<u64>, waker: &Waker) -> (u64, bool) {
        let id = timer.unwrap_or_else(|| self.next_id.fetch_add(1, Ordering::Relaxed));
        let mut pending = lock(&self.pending);
        pending.insert((at, id), waker.clone());
        let is_next = pending.first_key_value().is_some_and(|(first, _)| *first == (at, id));
        (id, is_next)
    }

    fn remove(&self, at: Moment, timer: u64) {
        lock(&self.pending).remove(&(at, timer));
    }

    /// When the next timer is due.
    pub(crate) fn next(&self) -> Option<Moment> {
        lock(&self.pending).first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes whoever waits for a moment that has come.
    pub(crate) fn fire(&self, now: Moment) {
        loop {
            let mut pending = lock(&self.pending);
            let Some(entry) = pending.first_entry().filter(|entry| entry.key().0 <= now) else { return };
            let waker = entry.remove();
            drop(pending);
            waker.wake();
        }
    }
}

/// Locks a mutex whose data is valid between any two statements, so a panic elsewhere cannot have broken it.
#[doc(hidden)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Virtual time: jumps to the next timer whenever nothing else can run.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use fencepost_core::VirtualTime;
///
/// let time = VirtualTime::new(7);
/// let clock = time.clock();
/// let start = clock.now();
/// time.block_on(clock.sleep(Duration::from_secs(3600)));
/// assert_eq!(clock.now().since(start), Duration::from_secs(3600));
/// ```
#[derive(Debug)]
pub struct VirtualTime(Arc<Simulation>);

struct Simulation {
    now: AtomicU64,
    wall_offset_micros: AtomicI64,
    seed: AtomicU64,
    executor: Arc<Executor>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now).finish_non_exhaustive()
    }
}

impl VirtualTime {
    /// Virtual time whose random numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Simulation {
            now: AtomicU64::new(1_000_000_000),
            wall_offset_micros: AtomicI64::new(1_700_000_000_000_000),
            seed: AtomicU64::new(seed),
            executor: Arc::new(Executor::simulated()),
        }))
    }

    /// A clock that shows this time.
    pub fn clock(&self) -> Clock {
        Clock(Source::Virtual(Arc::clone(&self.0)))
    }

    /// Steps the wall clock, and the wall clock alone.
    pub fn step_wall(&self, micros: i64) {
        self.0.wall_offset_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Lets `duration` pass, and everything happen that is due in it.
    pub fn pass(&self, duration: Duration) {
        self.block_on(self.clock().sleep(duration));
    }

    /// Lets `duration` pass in which nothing can run, as while the machine is suspended or the process stopped.
    pub fn freeze(&self, duration: Duration) {
        self.0.now.fetch_add(nanos(duration), Ordering::Relaxed);
    }

    /// Runs `future`, and what was spawned, to the future's end.
    ///
    /// # Panics
    /// When nothing is left that could ever end it.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let simulation = &self.0;
        simulation.executor.simulate(future, |next| {
            simulation.now.fetch_max(next.as_nanos(), Ordering::Relaxed);
            simulation.now()
        })
    }
}

impl Simulation {
    fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::Relaxed))
    }

    fn wall_micros(&self) -> u64 {
        let offset = self.wall_offset_micros.load(Ordering::Relaxed);
        (self.now().as_nanos() / 1_000).saturating_add_signed(offset)
    }

    /// `SplitMix64` (Steele, Lea and Flood 2014): every seed gives a full-period sequence.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.seed.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
