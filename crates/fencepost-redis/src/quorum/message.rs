//! What crosses between a machine, its driver and the nodes.
//!
//! Each request to a node is one atomic script there. Invariant: an answer carries the round of its request, so that
//! one of an earlier round is never taken for one of the present.

use std::time::Duration;

use fencepost_core::{FencingToken, Moment};

/// What a node is asked, on behalf of one holder id and with one ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Take the lock if nobody has it, and write the token if it is greater than every one that was proposed here.
    Lock(FencingToken),
    /// Write the token if it is greater than every one that was proposed here, and prolong the lock.
    Propose(FencingToken),
    /// Prolong the lock, if the holder still has it.
    Renew,
    /// Free the lock if the holder has it, and refuse the holder from now on, also what it sent before and arrives
    /// later.
    Cancel,
}

/// What a node answers.
///
/// A counter is the greatest token that the node knows of for the lock, its seeded floor included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To a lock: the holder has it here, and the token was not written, because the counter is not below it.
    Granted {
        /// The node's counter.
        counter: Option<FencingToken>,
    },
    /// To a lock: somebody else has it.
    Busy {
        /// For how long, unless prolonged; unknown if the lock does not run out. None at all where it is an attempt that has
        /// no token yet.
        remaining: Option<Duration>,
        /// The token that it has here, where it has one.
        token: Option<FencingToken>,
    },
    /// To a lock or a proposal: the holder has the lock here, and its token is written.
    Acked,
    /// To a proposal: the counter is not below it. The lock is still the holder's, but was not prolonged.
    Stale {
        /// The node's counter.
        counter: Option<FencingToken>,
    },
    /// To a proposal: the holder does not have the lock.
    NoLock,
    /// To a renewal: prolonged.
    Renewed,
    /// To a renewal: the holder does not have the lock.
    Lost,
    /// To a lock: this holder was cancelled.
    Cancelled,
    /// The node may have lost data, and grants nothing yet.
    Quarantined {
        /// For how long.
        ready_in: Duration,
    },
    /// The node has sat out its quarantine and waits for its floor; see [`decide`](super::decide).
    Unseeded,
    /// To a cancellation: done.
    Done,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The work is due: an attempt, a renewal, a cancellation.
    Began,
    /// A node has answered.
    Replied {
        /// Which.
        node: usize,
        /// The round of the request.
        round: Round,
        /// What.
        reply: Reply,
    },
    /// A request has failed, and may have been carried out all the same.
    Failed {
        /// At which node.
        node: usize,
        /// The round of the request.
        round: Round,
    },
    /// A moment that was asked for has come. One too many does no harm.
    Woke,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<T> {
    /// Send a request. The requests of one holder to one node go out in this order on one connection.
    Send {
        /// To which node.
        node: usize,
        /// What an answer is marked with.
        round: Round,
        /// What.
        request: Request,
    },
    /// Say [`Event::Woke`] at that moment, and no longer at the one that was asked for before; to say it at both does no
    /// harm.
    WakeAt(Moment),
    /// The work has come to this.
    Done(T),
}

/// One round of requests, sent at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Round(u32);

impl Round {
    /// The round before the first.
    pub(super) const NONE: Self = Self(0);

    /// How many rounds there were.
    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// The round after this.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The same request to each of `nodes`.
pub(super) fn send<T>(
    nodes: impl Iterator<Item = usize>,
    round: Round,
    request: Request,
) -> impl Iterator<Item = Action<T>> {
    nodes.map(move |node| Action::Send { node, round, request })
}
