//! Everything that the runner waits for, in one place: signals, the guardian, a timer, and a future.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use fencepost::{Clock, Moment};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::alarm::Alarm;
use super::channel::{Channel, Received, ToRunner};
use super::signals::{SignalReader, Signals};

/// Something that the runner was told.
#[derive(Debug)]
pub(crate) enum Heard<T> {
    /// The future has ended.
    Done(T),
    /// A signal has arrived.
    Signal(i32),
    /// The guardian says something.
    Message(ToRunner),
    /// The guardian is gone.
    GuardianGone,
    /// The moment that was waited for has come.
    Alarm,
    /// Somebody rang.
    Bell,
}

/// The runner's sources of news.
#[derive(Debug)]
pub(crate) struct Inbox {
    channel: Channel,
    /// The guardian's end, where there is no guardian.
    _other_end: Option<Channel>,
    signals: SignalReader,
    alarm: Alarm,
    bell: Arc<Bell>,
}

/// Wakes the runner from another thread.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Whether it has rung since this was asked last.
    pub(crate) fn has_rung(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }

    pub(crate) fn ring(&self) {
        // A full counter already wakes the runner.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

impl Inbox {
    pub(crate) fn new(channel: Channel, signals: &Signals) -> io::Result<Self> {
        Self::with(channel, None, signals)
    }

    /// The inbox of a process that has no guardian.
    pub(crate) fn alone(signals: &Signals) -> io::Result<Self> {
        let (ours, theirs) = Channel::pair()?;
        Self::with(ours, Some(theirs), signals)
    }

    fn with(channel: Channel, other_end: Option<Channel>, signals: &Signals) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        Ok(Self { channel, _other_end: other_end, signals: signals.open()?, alarm: Alarm::new()?, bell })
    }

    /// The guardian's ear.
    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// What rings when there is news from another thread.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// The signals that have arrived and were not heard yet.
    pub(crate) fn signals(&self) -> Vec<i32> {
        std::iter::from_fn(|| self.signals.next()).collect()
    }

    /// Waits for the next news, at the latest until `until`. Signals come first, so that none is overtaken by the end
    /// of what it was meant to end.
    pub(crate) fn next<T>(
        &self,
        until: Option<Moment>,
        mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> io::Result<Heard<T>> {
        let waker = Waker::from(Arc::clone(&self.bell));
        loop {
            if let Some(signal) = self.signals.next() {
                return Ok(Heard::Signal(signal));
            }
            match self.channel.receive() {
                Received::Message(message, _) => return Ok(Heard::Message(message)),
                Received::Gone => return Ok(Heard::GuardianGone),
                Received::Nothing => {}
            }
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(Heard::Done(output));
            }
            if until.is_some_and(|until| Clock::system().now() >= until) {
                return Ok(Heard::Alarm);
            }
            if self.sleep(until)? {
                return Ok(Heard::Bell);
            }
        }
    }

    /// Sleeps until there may be news; whether the bell has rung.
    fn sleep(&self, until: Option<Moment>) -> io::Result<bool> {
        self.alarm.set(until)?;
        let sources = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.channel, PollFlags::IN),
            PollFd::new(&self.alarm, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        match poll(&mut { sources }, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(self.bell.has_rung()),
            Err(error) => Err(error.into()),
        }
    }
}
