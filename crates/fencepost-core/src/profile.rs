//! What a backend promises, as data.
//!
//! One constant per backend chooses the cases of the conformance suite, prints the table of promises, and feeds
//! `explain` and `advise`, so that no text can promise what no test has seen.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// When a holder that is gone stops holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// When its ttl has run out.
    AfterTtl,
    /// When its session with the server has ended.
    WithSession,
    /// When its process, and every process that it handed the lock to, has ended.
    WithProcess,
}

/// How long tokens are sure to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tokens {
    /// As long as the store keeps its data; after a loss of data the wall clock takes over.
    WhileDataSurvives,
    /// Over every crash of the store.
    Durable,
}

/// How a waiter learns that its turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// It looks again from time to time.
    Polled,
    /// It is told, in no certain order.
    Notified,
    /// It is told, nearly first come first served: who waits for long may be passed by.
    NearlyQueued,
    /// It is told, first come first served.
    Queued,
}

/// When a holder learns that it is not one any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// At its own deadline.
    AtDeadline,
    /// The store tells it, and the deadline holds besides.
    Pushed,
}

/// How far the lock reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// One process.
    Process,
    /// One host.
    Host,
    /// Everybody who uses the same database of one server.
    Server,
    /// Everybody who talks to one cluster, some of whose servers may fail.
    Cluster,
}

/// By what clock the store ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timing {
    /// By none: a lease does not run out.
    Untimed,
    /// By one that nobody can set.
    Monotonic,
    /// By the wall clock of one server.
    WallClock,
    /// By the wall clocks of several servers, a minority of which may be set.
    WallClocks,
}

/// What a lock is tied to at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tie {
    /// The holder's session: the lock is free when that ends, whatever ends it, before the holder can have stopped.
    Session,
    /// The lease, whatever becomes of connections.
    Lease,
}

/// What an acquisition and a release cost, where nobody else wants the lock and the connection is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Round trips to the store until a lock is granted.
    pub acquire_trips: u32,
    /// Round trips until it is given back.
    pub release_trips: u32,
    /// Which connections are needed.
    pub connections: Connections,
}

/// Which connections a process keeps with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connections {
    /// None.
    None,
    /// One, whatever it holds and waits for.
    OnePerProcess,
    /// Two, since a grant that waits for replicas holds one of them up.
    TwoPerProcess,
    /// One with each node, whatever it holds and waits for.
    OnePerNode,
    /// One for each lock or set of locks that it holds, and one for each lock that it waits for.
    OnePerLock,
}

impl Connections {
    /// The need in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::None => "no connection",
            Self::OnePerProcess => "one connection for each process",
            Self::TwoPerProcess => "two connections for each process",
            Self::OnePerNode => "one connection with each node for each process",
            Self::OnePerLock => "one connection for each lock that is held or waited for",
        }
    }
}

/// How much of its ttl a lease has left for certain right after a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assured {
    /// All of it: a renewal that is acknowledged begins a whole term.
    Whole,
    /// Half of it: that the store has heard of a renewal is only known from later ones.
    Half,
}

impl Assured {
    /// What is left for certain of a lease of `ttl` right after a renewal.
    pub fn of(self, ttl: Duration) -> Duration {
        match self {
            Self::Whole => ttl,
            Self::Half => ttl / 2,
        }
    }
}

impl Expiry {
    /// The promise in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::AfterTtl => "runs out after its ttl unless it is renewed",
            Self::WithSession => "ends with the session on the server",
            Self::WithProcess => "does not run out; it ends with the last process of the command",
        }
    }
}

impl Tokens {
    /// The promise in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::WhileDataSurvives => {
                "grow with every grant; after a loss of data, as long as the wall clock has not gone back"
            }
            Self::Durable => "grow with every grant, over every crash",
        }
    }
}

impl Waiting {
    /// The promise in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Polled => "looks again from time to time",
            Self::Notified => "told when the lock is free, in no certain order",
            Self::NearlyQueued => "told when its turn comes, nearly first come first served",
            Self::Queued => "told when its turn comes, first come first served",
        }
    }
}

impl Loss {
    /// The promise in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::AtDeadline => "the holder stops at its own deadline",
            Self::Pushed => "the holder is told, and its own deadline holds besides",
        }
    }
}

impl Scope {
    /// The reach in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Process => "this process only",
            Self::Host => "this host only",
            Self::Server => "everybody who uses this database of the server",
            Self::Cluster => "everybody who uses this cluster",
        }
    }
}

/// What one backend promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a promise of its own, and none decides another")]
pub struct Profile {
    /// The backend's kind: `file`, `redis`, …
    pub backend: &'static str,
    /// When a holder that is gone stops holding.
    pub expiry: Expiry,
    /// How long tokens are sure to grow.
    pub tokens: Tokens,
    /// How a waiter learns that its turn has come.
    pub waiting: Waiting,
    /// When a holder learns that it is not one any more.
    pub loss: Loss,
    /// How far the lock reaches.
    pub scope: Scope,
    /// By what clock the store ends a lease.
    pub timing: Timing,
    /// Whether a store that may have lost data grants nothing until every lease that it may have forgotten is over.
    pub quarantine: bool,
    /// What a lock is tied to.
    pub tie: Tie,
    /// How much of its ttl a lease has left for certain right after a renewal.
    pub assured: Assured,
    /// Whether a lease can be taken away by force; [`frees_when_revoked`](Self::frees_when_revoked) says when the lock is free then.
    pub revoke: bool,
    /// Whether the store keeps a lock taken after its release (hold-at-least).
    pub rest: bool,
    /// Whether a lease can be acquired, renewed and released by different processes, none of which stays.
    pub detach: bool,
    /// Whether a lock can be held by several who only read.
    pub share: bool,
    /// Whether the store keeps a logbook beside the lock's token, which only the holder can write.
    pub logbook: bool,
    /// Whether a lock can be had in slots, each with a token of its own.
    pub slots: bool,
    /// The longest ttl that it gives; `None` where a lease does not run out.
    pub longest_ttl: Option<Duration>,
    /// What it costs; `None` where nobody has counted.
    pub cost: Option<Cost>,
}

impl Profile {
    /// A profile of the weakest promises, to be strengthened field by field.
    pub const fn weakest(backend: &'static str) -> Self {
        Self {
            backend,
            expiry: Expiry::AfterTtl,
            tokens: Tokens::WhileDataSurvives,
            waiting: Waiting::Polled,
            loss: Loss::AtDeadline,
            scope: Scope::Process,
            timing: Timing::WallClock,
            quarantine: false,
            tie: Tie::Session,
            assured: Assured::Whole,
            revoke: false,
            rest: false,
            detach: false,
            share: false,
            logbook: false,
            slots: true,
            longest_ttl: Some(Duration::from_mins(1)),
            cost: None,
        }
    }

    /// Why a lease cannot be detached.
    pub fn not_detachable(&self) -> Error {
        let ends = match self.expiry {
            Expiry::AfterTtl => "ends with the session or the process of its holder",
            Expiry::WithSession | Expiry::WithProcess => self.expiry.describe(),
        };
        let what = format!("a lease of {} {ends}, so no other process can have it", self.backend);
        Error::new(ErrorKind::Unsupported, "detach the lease", what)
            .hint("run the job under the lock: fencepost run LOCK -- COMMAND")
    }

    /// Whether a lease that is revoked is over at once, so that the lock is free for the next. Where the lock ends with the processes
    /// of its holder it is not: the holder is told, and the lock is free when it has let go.
    pub fn frees_when_revoked(&self) -> bool {
        self.revoke && self.expiry != Expiry::WithProcess
    }

    /// What it means here to revoke a lease, in words.
    pub fn describe_revoke(&self) -> &'static str {
        match (self.revoke, self.frees_when_revoked()) {
            (false, _) => "no",
            (true, true) => "yes",
            (true, false) => "yes; it is free when its holder has stopped",
        }
    }

    /// Changes the expiry.
    pub const fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = expiry;
        self
    }

    /// Changes the durability of tokens.
    pub const fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = tokens;
        self
    }

    /// Changes the way of waiting.
    pub const fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// Changes the way of learning of a loss.
    pub const fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// Changes the reach.
    pub const fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Changes the clock that ends leases.
    pub const fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Whether a loss of data is followed by a quarantine.
    pub const fn quarantine(mut self, quarantine: bool) -> Self {
        self.quarantine = quarantine;
        self
    }

    /// The lock is free when the lease is over, and not before.
    pub const fn outlives_sessions(mut self) -> Self {
        self.tie = Tie::Lease;
        self
    }

    /// Changes how much of a ttl is certain after a renewal.
    pub const fn assured(mut self, assured: Assured) -> Self {
        self.assured = assured;
        self
    }

    /// The lease can be taken away by force.
    pub const fn revocable(mut self) -> Self {
        self.revoke = true;
        self
    }

    /// A lease needs no process of its holder.
    pub const fn detachable(mut self) -> Self {
        self.detach = true;
        self
    }

    /// The store keeps a lock taken after its release.
    pub const fn rests(mut self) -> Self {
        self.rest = true;
        self
    }

    /// The lock can be shared by readers.
    pub const fn shares(mut self) -> Self {
        self.share = true;
        self
    }

    /// The store keeps a logbook beside the token.
    pub const fn keeps_logbook(mut self) -> Self {
        self.logbook = true;
        self
    }

    /// The lock is not to be had in slots.
    pub const fn without_slots(mut self) -> Self {
        self.slots = false;
        self
    }

    /// Says what an acquisition and a release cost, in round trips, and which connections are needed.
    pub const fn costs(mut self, acquire_trips: u32, release_trips: u32, connections: Connections) -> Self {
        self.cost = Some(Cost { acquire_trips, release_trips, connections });
        self
    }

    /// Changes the longest ttl; `None` for a lease that does not run out.
    pub const fn longest_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.longest_ttl = ttl;
        self
    }
}
