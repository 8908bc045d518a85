//! A kernel timer on `CLOCK_BOOTTIME`, which goes off on time after a suspend too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fencepost::Moment;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// The timer; its descriptor is readable once it has gone off.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Sets it to go off at `at`, or never; what was set before is forgotten.
    pub(super) fn set(&self, at: Option<Moment>) -> io::Result<()> {
        // A value of zero would switch the timer off, so the clock's very start counts as a nanosecond after it.
        let nanos = at.map_or(0, |at| at.as_nanos().max(1));
        let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
        let it_value =
            Timespec { tv_sec: seconds, tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0) };
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &timer)?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
