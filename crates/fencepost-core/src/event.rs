//! What happens to a lock and a lease, told to whoever keeps records of it.
//!
//! Invariant: an attempt begins with [`Event::Asked`] and ends with one of `Granted`, `NotGranted` and `GivenUp`; a lease that was
//! granted ends with `Released` or `Detached`, once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::name::LockName;
use crate::token::{FencingToken, HolderId};

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An attempt to acquire the lock begins.
    Asked,
    /// The lock is held, and its fences are sealed. Where one of several slots was asked for, it is told of the one that was got.
    Granted {
        /// The token of the lease.
        token: FencingToken,
        /// Who holds it.
        holder: HolderId,
        /// How long the attempt took.
        waited: Duration,
    },
    /// The attempt has failed.
    NotGranted {
        /// Why.
        error: Error,
        /// How long it took.
        waited: Duration,
    },
    /// The attempt was dropped.
    GivenUp {
        /// How long it took until then.
        waited: Duration,
    },
    /// The store may have lost leases, and grants nothing before they are over. [`Noticed`](Self::Noticed) says so in words.
    Quarantined,
    /// The store has acknowledged a renewal.
    Renewed {
        /// Until when the holder may now believe in its lease.
        deadline: Deadline,
    },
    /// A renewal has failed; the lease holds on until its deadline.
    RenewFailed {
        /// Why.
        error: Error,
    },
    /// The backend has seen something that people should know: a server whose clock was set, which may drop data, or which has granted
    /// another ttl than was asked for.
    Noticed {
        /// What, as a sentence without its end.
        what: String,
    },
    /// A fence has refused the token of the lease, when it was sealed or when its holder [heeded](crate::Lease::heed) the answer.
    Stale {
        /// What the fence said.
        error: Error,
    },
    /// The lease is lost, or is overdue at a store that may keep it. A lease that was overdue can be told of again.
    Lost {
        /// Why.
        error: Error,
    },
    /// The lease was given back.
    Released {
        /// How long it was held, the release included.
        held: Duration,
        /// Why the release has failed, or the lease was lost before.
        error: Option<Error>,
    },
    /// The holder has let go of the lease without giving it back; others may keep it.
    Detached {
        /// How long it was held.
        held: Duration,
    },
}

/// One attempt to acquire a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Attempt<'a> {
    /// The lock.
    pub lock: &'a LockName,
    /// The kind of its backend, in one word.
    pub backend: &'static str,
}

/// Somebody who is told. Called on fencepost's own thread, or within the call that the event is about: it must return at once.
///
/// A panic in it while a lease is kept loses that lease; everywhere else it changes nothing.
pub trait Observer: fmt::Debug + Send + Sync {
    /// `event` has happened to `lock`, or to the lease of it.
    fn observe(&self, lock: &LockName, event: &Event);

    /// Who is told of this attempt and of the lease that comes of it, in the place of this observer; `None` for itself. Called before
    /// [`Event::Asked`], within the call to acquire, by those who keep something for each lease.
    fn attempt(&self, attempt: &Attempt<'_>) -> Option<Arc<dyn Observer>> {
        let _ = attempt;
        None
    }
}

/// Two observers, of which the first is told first.
#[derive(Debug)]
pub(crate) struct Both(pub(crate) Arc<dyn Observer>, pub(crate) Arc<dyn Observer>);

impl Observer for Both {
    fn observe(&self, lock: &LockName, event: &Event) {
        self.0.observe(lock, event);
        self.1.observe(lock, event);
    }

    fn attempt(&self, attempt: &Attempt<'_>) -> Option<Arc<dyn Observer>> {
        let own = [self.0.attempt(attempt), self.1.attempt(attempt)];
        if own.iter().all(Option::is_none) {
            return None;
        }
        let [first, second] = own;
        let first = first.unwrap_or_else(|| Arc::clone(&self.0));
        Some(Arc::new(Self(first, second.unwrap_or_else(|| Arc::clone(&self.1)))))
    }
}
