//! What happens to a lock and a lease, told to whoever keeps records of it.

use std::fmt;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::name::LockName;

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
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
    /// The backend has seen something that people should know: a server whose clock was set, or which may drop data.
    Noticed {
        /// What, as a sentence without its end.
        what: String,
    },
    /// The lease is lost.
    Lost {
        /// Why.
        error: Error,
    },
}

/// Somebody who is told. Called on fencepost's own thread: it must return at once.
pub trait Observer: fmt::Debug + Send + Sync {
    /// `event` has happened to the lease of `lock`.
    fn observe(&self, lock: &LockName, event: &Event);
}
