//! Signals that locks of a directory may have changed, as the kernel tells of their files.

use std::future::poll_fn;
use std::path::Path;
use std::time::Duration;

use fencepost_core::{Clock, Raced, Watched, race};
use futures_util::stream::{self, BoxStream, StreamExt};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{ReadFlags, WatchFlags};

use crate::news::{ENDS, poll_seen, watch};

/// What changes when a lock does: its files are written, and closed by who had them open to write. Looking does neither.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE_SELF);

/// The kernel tells of a descriptor that is closed just before it frees the lock, so whoever looks at once looks too early; and many
/// changes come together.
const SETTLES_AFTER: Duration = Duration::from_millis(10);

/// Then the same signal is given once more, for a process that was held up just there.
const ECHOES_AFTER: Duration = Duration::from_millis(250);

struct Signals {
    watch: Watched<OwnedFd>,
    clock: Clock,
    /// Whether the last signal is to be given again.
    echoes: bool,
}

/// The signals of a directory; `None` where it does not exist, or the kernel has no watch to give.
pub(crate) fn of(directory: &Path, clock: &Clock) -> Option<BoxStream<'static, ()>> {
    let watch = watch(directory, clock, CHANGES).ok()?;
    let signals = Signals { watch, clock: clock.clone(), echoes: false };
    Some(stream::unfold(signals, Signals::next).boxed())
}

impl Signals {
    async fn next(mut self) -> Option<((), Self)> {
        let seen = poll_fn(|context| poll_seen(&self.watch, context));
        let seen = if self.echoes {
            match race(seen, self.clock.sleep(ECHOES_AFTER)).await {
                Raced::First(seen) => Some(seen?),
                Raced::Second(()) => None,
            }
        } else {
            Some(seen.await?)
        };
        if seen.is_some_and(|seen| seen.intersects(ENDS.union(ReadFlags::MOVE_SELF))) {
            return None;
        }
        self.echoes = seen.is_some();
        if self.echoes {
            self.clock.sleep(SETTLES_AFTER).await;
        }
        Some(((), self))
    }
}
