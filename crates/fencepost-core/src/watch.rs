//! Descriptors that fencepost's own thread watches, so that a backend's connection needs no thread and no runtime.
//!
//! Invariant: whoever finds a descriptor not ready has left its waker before it looked, so no readiness is missed.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags, Timespec};

use crate::clock::{Clock, Moment, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::poll::arm;

/// What one thread sleeps on: a bell, an alarm, and the descriptors of others.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: OwnedFd,
    bell: OwnedFd,
    alarm: OwnedFd,
    next_id: AtomicU64,
    listeners: Mutex<HashMap<u64, Arc<Listeners>>>,
}

/// How a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// Something was ready, or the bell was rung, or the time was over.
    Woken,
    /// The alarm went off.
    Alarmed,
    /// By a signal, or because the process was stopped.
    Interrupted,
}

/// Who waits for one descriptor.
#[derive(Debug, Default)]
struct Listeners {
    reader: Mutex<Option<Waker>>,
    writer: Mutex<Option<Waker>>,
    /// Whether the peer sends nothing any more.
    has_ended: AtomicBool,
    /// How often there was something new to read, and how often when a read last left nothing.
    news: AtomicU64,
    read_to: AtomicU64,
}

/// The numbers of the bell and the alarm, which nobody listens to: they only end the sleep.
const BELL: u64 = 0;
const ALARM: u64 = u64::MAX;

/// How many events one sleep brings at most.
const EVENTS: usize = 64;

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), edge)?;
        epoll::add(&epoll, &alarm, EventData::new_u64(ALARM), edge)?;
        Ok(Self { epoll, bell, alarm, next_id: AtomicU64::new(1), listeners: Mutex::default() })
    }

    /// Has the sleep end at `at`.
    pub(crate) fn set_alarm(&self, at: Moment) {
        let set = arm(&self.alarm, Some(at));
        debug_assert!(set.is_ok(), "a time that is left is a valid timer");
    }

    /// Ends the sleep. A full counter already means that, so a refused write is as good as an accepted one.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Sleeps until something is ready, for `most` at most, and wakes who waits for it, after a call of `awake`.
    pub(crate) fn sleep(&self, most: Option<Duration>, awake: impl FnOnce()) -> Slept {
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let slept = epoll::wait(&self.epoll, &mut events, most.as_ref());
        awake();
        let events: &[Event] = match slept {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Slept::Interrupted,
            Err(error) => {
                debug_assert!(false, "epoll waits on descriptors of its own: {error}");
                &[]
            }
        };
        let is_alarmed = events.iter().any(|event| event.data.u64() == ALARM);
        for event in events {
            let listeners = lock(&self.listeners).get(&event.data.u64()).map(Arc::clone);
            if let Some(listeners) = listeners {
                listeners.hear(event.flags);
            }
        }
        if is_alarmed { Slept::Alarmed } else { Slept::Woken }
    }
}

impl Listeners {
    fn hear(&self, flags: EventFlags) {
        let ended = EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::RDHUP | ended) {
            self.has_ended.store(true, Ordering::Release);
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | ended) {
            self.news.fetch_add(1, Ordering::AcqRel);
            wake(&self.reader);
        }
        if flags.intersects(EventFlags::OUT | ended) {
            wake(&self.writer);
        }
    }
}

fn listen(listener: &Mutex<Option<Waker>>, context: &Context<'_>) {
    match &mut *lock(listener) {
        Some(waker) => waker.clone_from(context.waker()),
        listener => *listener = Some(context.waker().clone()),
    }
}

fn wake(listener: &Mutex<Option<Waker>>) {
    let waker = lock(listener).take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A descriptor in non-blocking mode that is watched until this is dropped. One task reads, and one task writes.
#[derive(Debug)]
pub struct Watched<T: AsFd> {
    io: T,
    id: u64,
    clock: Clock,
    listeners: Arc<Listeners>,
}

impl<T: AsFd> Watched<T> {
    /// Begins to watch `io`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the system refuses to; [`ErrorKind::Unsupported`] in virtual time.
    pub fn new(clock: &Clock, io: T) -> Result<Self> {
        clock.start()?;
        let watch = clock.executor().watch().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "watch a descriptor", "virtual time has no descriptors")
        })?;
        // A descriptor may have something to read from the beginning.
        let listeners = Arc::new(Listeners { news: AtomicU64::new(1), ..Listeners::default() });
        let id = watch.next_id.fetch_add(1, Ordering::Relaxed);
        lock(&watch.listeners).insert(id, Arc::clone(&listeners));
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let watched = Self { io, id, clock: clock.clone(), listeners };
        epoll::add(&watch.epoll, &watched.io, EventData::new_u64(id), flags).map_err(|error| {
            let what = "the system refuses to watch a descriptor";
            Error::new(ErrorKind::Unavailable, "connect", what).caused_by(io::Error::from(error))
        })?;
        Ok(watched)
    }

    /// What is watched.
    pub fn inner(&self) -> &T {
        &self.io
    }

    /// Whether the peer sends nothing any more, so that what is read comes to its end. The end itself is told only once: whoever
    /// stops reading at a buffer that was not filled must look here.
    pub fn has_ended(&self) -> bool {
        self.listeners.has_ended.load(Ordering::Acquire)
    }

    /// Reads by `read`; where that would block, `context` is woken when it is worth another try.
    pub fn poll_read<R>(
        &self,
        context: &mut Context<'_>,
        read: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll(&self.listeners.reader, context, read)
    }

    /// Reads into `buffer` by `read`; where that would block, `context` is woken when it is worth another try. A stream that did
    /// not fill the buffer is not read again before there is news, since that would only find nothing.
    pub fn poll_fill(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        mut read: impl FnMut(&T, &mut [u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let Listeners { reader, news, read_to, .. } = &*self.listeners;
        listen(reader, context);
        // Before the read: what comes in the midst of it is news for the next one.
        let seen = news.load(Ordering::Acquire);
        if seen == read_to.load(Ordering::Acquire) && !self.has_ended() {
            return Poll::Pending;
        }
        let outcome = self.poll(reader, context, |io| read(io, buffer));
        let is_filled = matches!(outcome, Poll::Ready(Ok(length)) if length == buffer.len());
        if !is_filled {
            read_to.store(seen, Ordering::Release);
        }
        outcome
    }

    /// Writes by `write`; where that would block, `context` is woken when it is worth another try.
    pub fn poll_write<R>(
        &self,
        context: &mut Context<'_>,
        write: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll(&self.listeners.writer, context, write)
    }

    fn poll<R>(
        &self,
        listener: &Mutex<Option<Waker>>,
        context: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        // Before the try: an edge between the try and this would never be heard.
        listen(listener, context);
        loop {
            match operation(&self.io) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

impl<T: AsFd> Drop for Watched<T> {
    fn drop(&mut self) {
        let Some(watch) = self.clock.executor().watch() else { return };
        // The descriptor leaves the epoll by being closed, unless somebody has a duplicate of it.
        let _ = epoll::delete(&watch.epoll, &self.io);
        lock(&watch.listeners).remove(&self.id);
    }
}
