//! Listening to a store that pushes, and trying again where it could not be listened to.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};

use super::LOOK_MOST;
use crate::clock::{Clock, Moment};
use crate::locks::Locks;
use crate::name::NamePrefix;
use crate::poll::until;

/// The first and the longest pause before the store is listened to again, after that has failed.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
const LISTEN_AGAIN_MOST: Duration = Duration::from_mins(1);

/// After how many signals the rest is left for later: a store must not be able to keep us from looking.
const MOST_AT_ONCE: usize = 10_000;

/// What hears the signals of a store.
pub(super) enum Ear {
    /// To be opened at that moment, and after that pause again if it fails.
    Closed {
        at: Moment,
        pause: Duration,
    },
    Open {
        signals: BoxStream<'static, ()>,
        since: Moment,
        pause: Duration,
    },
    /// The store pushes nothing.
    Deaf,
}

impl Ear {
    /// One that is to be opened.
    pub(super) fn new(now: Moment) -> Self {
        Self::Closed { at: now, pause: LISTEN_AGAIN }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Whether it is to be opened.
    pub(super) fn opens_at(&self, now: Moment) -> bool {
        matches!(self, Self::Closed { at, .. } if *at <= now)
    }

    /// Listens to the store, if that is due. Where it fails, somebody looks without being told to.
    ///
    /// # Cancel safety
    /// Dropping it leaves the ear as it was.
    pub(super) async fn open(&mut self, locks: &Locks, prefix: &NamePrefix, clock: &Clock) {
        let now = clock.now();
        let Self::Closed { at, pause } = *self else { return };
        if at > now {
            return;
        }
        let asked = until(clock, Some(now.after(LOOK_MOST)), locks.backend().signals(prefix)).await;
        *self = match asked {
            Some(Ok(Some(signals))) => Self::Open { signals, since: clock.now(), pause },
            Some(Ok(None)) => Self::Deaf,
            Some(Err(_)) | None => Self::later(clock.now(), pause),
        };
    }

    fn later(now: Moment, pause: Duration) -> Self {
        Self::Closed { at: now.after(pause), pause: (pause * 2).min(LISTEN_AGAIN_MOST) }
    }

    /// Ends when a signal is heard, or when there will be none any more; never where nothing is listened to.
    ///
    /// # Cancel safety
    /// Dropping it loses no signal.
    pub(super) async fn hears(&mut self, clock: &Clock) {
        let Self::Open { signals, .. } = self else { return std::future::pending().await };
        if signals.next().await.is_none() {
            self.close(clock.now());
        }
    }

    /// Passes over what was signalled before a look.
    pub(super) fn forget_what_was_heard(&mut self, now: Moment) {
        for _ in 0..MOST_AT_ONCE {
            let Self::Open { signals, .. } = self else { return };
            match signals.next().now_or_never() {
                Some(Some(())) => {}
                Some(None) => self.close(now),
                None => return,
            }
        }
    }

    fn close(&mut self, now: Moment) {
        let Self::Open { since, pause, .. } = *self else { return };
        // One that was listened to for long has not failed.
        let pause = if now.since(since) > pause { LISTEN_AGAIN } else { pause };
        *self = Self::later(now, pause);
    }
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed { .. } => "Closed",
            Self::Open { .. } => "Open",
            Self::Deaf => "Deaf",
        })
    }
}
