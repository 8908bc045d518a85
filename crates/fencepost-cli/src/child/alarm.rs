//! A kernel timer on `CLOCK_BOOTTIME`, which goes off on time after a suspend too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fencepost::{Moment, arm};
use rustix::time::{TimerfdClockId, TimerfdFlags};

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
        arm(&self.0, at)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
