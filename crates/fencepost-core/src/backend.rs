//! The contract between the core and the backends: two traits, and the data that crosses them.
//!
//! Users never touch the traits; they hold a [`Lock`](crate::Lock) and a [`Lease`](crate::Lease).

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Observer;
use crate::examine::Examination;
use crate::name::{LockName, NamePrefix};
use crate::profile::Profile;
use crate::token::{FencingToken, HolderId};

/// A place where locks are kept.
///
/// # Contract
/// - At most one holder at a time inside a holder's deadline; tokens grow in the order of the grants.
/// - Waiting is the backend's: it waits in the store, by a push or a queue, and never in a loop of tries.
/// - Time is the core's: a backend says when the request that earned a term was sent, and the core computes deadlines.
/// - A holder is one attempt; the store never takes two attempts of one process for the same holder.
/// - Every call may be dropped at any point and leaves nothing behind: no holder, no waiter, no session. What has to be
///   cleaned up then is [spawned](Clock::spawn) on the clock, so that a process can wait for it before it ends.
/// - Making a backend connects nothing and starts no thread: `run` makes it before it forks.
#[async_trait]
pub trait Backend: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// What this backend promises.
    fn profile(&self) -> &Profile;

    /// The clock that deadlines and pauses are counted on.
    fn clock(&self) -> &Clock;

    /// Takes the lock, waiting for it as the request says.
    ///
    /// # Cancel safety
    /// Dropping the call leaves no holder and no waiter, at the latest when the store can be reached again or the ttl
    /// has run out.
    ///
    /// # Errors
    /// `Contended` when it is held and the wait is over; `Indeterminate` when the store may have granted it; `Unavailable`
    /// when it cannot be reached: at once, or, where it could be before, after about five seconds of trying.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>>;

    /// Looks at one lock, changing nothing.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    async fn inspect(&self, name: &LockName) -> Result<LockState>;

    /// Looks at every lock that is not free and whose name begins with `prefix`, in the order of the names.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>>;

    /// Takes the lease with `token` away from its holder; a newer one is never hit.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have taken it away.
    ///
    /// # Errors
    /// `Unsupported` where the profile says so.
    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked>;

    /// Makes the next token at least `to`; never lowers it.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have raised it.
    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()>;

    /// Makes the store promise another term to a lease that was [detached](crate::Lease::detach). Never called where the profile
    /// does not say [`detach`](Profile::detach).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out.
    ///
    /// # Errors
    /// `Lost` when the store does not know the lease any more: it is never taken anew.
    async fn renew(&self, handover: &Handover, ttl: Duration) -> Result<Renewal>;

    /// Gives a lease back for a holder whose process is gone.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given it back.
    ///
    /// # Errors
    /// `Lost` when the lease is not the holder's any more; nothing has changed then.
    async fn give_back(&self, handover: &Handover) -> Result<()>;

    /// What holders of the lock have written beside its token ([`Claim::write_logbook`]); `None` if nobody has. As new as the last
    /// write that was acknowledged. Never called where the profile does not say [`logbook`](Profile::logbook).
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        let what = format!("{} keeps none", self.profile().backend);
        Err(Error::new(ErrorKind::Unsupported, "read the logbook", what).on(name))
    }

    /// Signals that locks whose names begin with `prefix` may have changed; `None` where the store pushes none, so that one
    /// must look again from time to time. One signal may stand for many changes and some for none. The stream ends when it
    /// cannot go on; whoever wants more asks again.
    ///
    /// # Cancel safety
    /// Dropping the call, or the stream, leaves nothing behind.
    async fn signals(&self, prefix: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        let _ = prefix;
        Ok(None)
    }

    /// Looks at the servers and how they are set up, changing nothing. What cannot be looked at is a finding, too.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Unavailable` when no server can be reached.
    async fn examine(&self) -> Result<Examination>;
}

/// One live claim inside one store.
#[async_trait]
pub trait Claim: fmt::Debug + Send + 'static {
    /// What the store granted.
    fn grant(&self) -> &Grant;

    /// Makes the store promise another term. Never called where the grant has no ttl.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out; the next one repairs that.
    ///
    /// # Errors
    /// `Lost` when the store says that the lease is gone; any other kind when that is not known.
    async fn renew(&mut self) -> Result<Renewal>;

    /// Writes what is to stand beside the lock's token for the holders to come, in place of what stood there, in one step with the
    /// check that the lease is still held. Never called where the profile does not say [`logbook`](Profile::logbook).
    ///
    /// # Cancel safety
    /// A dropped call may or may not have written it, and changes nothing once the lease is gone.
    ///
    /// # Errors
    /// `Lost` when the lease is not held any more; nothing has been written then.
    async fn write_logbook(&mut self, content: &[u8]) -> Result<()> {
        let _ = content;
        Err(Error::new(ErrorKind::Unsupported, "write the logbook", "the store keeps none"))
    }

    /// Ends when the store says that the lease is gone; never where it cannot tell. Does not borrow the claim, so that
    /// it is heard while a renewal hangs.
    fn lost(&self) -> BoxFuture<'static, Error>;

    /// The descriptors that the lock hangs on, for whoever must outlive this process.
    fn descriptors(&self) -> Vec<Descriptor>;

    /// What another process needs to give the lease back; `None` where closing the descriptors does it.
    fn handover(&self) -> Option<Handover>;

    /// Lets go of the lease without giving it back, so that it runs out after its ttl unless others renew it. Never called where the
    /// profile does not say [`detach`](Profile::detach).
    fn detach(self: Box<Self>);

    /// Gives the lease back.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given it back; the ttl bounds it.
    ///
    /// # Errors
    /// `Lost` when the lease was not ours any more.
    async fn release(self: Box<Self>) -> Result<()>;
}

/// What to acquire, and how.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The lock.
    pub name: LockName,
    /// Who asks; fresh for each attempt.
    pub holder: HolderId,
    /// The holder in words, for people.
    pub label: String,
    /// Beside whom it may be held. Never [`Shared`](Mode::Shared) where the profile does not say [`share`](Profile::share).
    pub mode: Mode,
    /// The length of lease asked for. The store may give another one, and the grant says which.
    pub ttl: Duration,
    /// How long to keep the lock taken at least, counted from the grant, even if it is released sooner.
    pub at_least: Option<Duration>,
    /// How long to wait.
    pub wait: Wait,
    /// The holders of the locks that this one is acquired together with, which are held already: one session of the store can
    /// carry the whole set.
    pub beside: Vec<HolderId>,
    /// Who is told what the backend notices beside the lease.
    pub observer: Option<Arc<dyn Observer>>,
}

/// Beside whom a lock may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Beside nobody.
    #[default]
    Exclusive,
    /// Beside others who share it. A reader that comes while an exclusive holder waits goes behind it.
    Shared,
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until this moment.
    Until(Moment),
    /// Until it is free.
    Forever,
}

impl Wait {
    /// The moment when to give up, where there is one; now for [`Wait::No`].
    pub fn give_up_at(self, now: Moment) -> Option<Moment> {
        match self {
            Self::No => Some(now),
            Self::Until(at) => Some(at),
            Self::Forever => None,
        }
    }
}

/// What a store granted.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The lock.
    pub name: LockName,
    /// Who holds it.
    pub holder: HolderId,
    /// The token of this grant.
    pub token: FencingToken,
    /// The length of lease that the store really gave; `None` if it does not run out.
    pub ttl: Option<Duration>,
    /// When the request that earned it was sent.
    pub counted_from: Moment,
    /// Of how many nodes of a quorum the loss can be borne; `None` where one store decides.
    pub slack: Option<usize>,
}

/// What a store granted on renewal.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// The length of lease that the store really gave; `None` if it does not run out.
    pub ttl: Option<Duration>,
    /// When the request that earned it was sent.
    pub counted_from: Moment,
}

/// A descriptor that a lock hangs on: it stays taken until the last clone of this, and every duplicate, is closed.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The descriptor.
    pub fd: Arc<OwnedFd>,
    /// Whether a command that runs under the lock may inherit it (a file yes, a server connection never).
    pub inheritable: bool,
}

/// What another process needs to give a lease back. Contains no secrets: those are in the backend's URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The lock.
    pub lock: LockName,
    /// Who held it.
    pub holder: HolderId,
    /// The token of the lease.
    pub token: FencingToken,
    /// What else the backend needs; its own affair.
    pub detail: Option<String>,
}

/// What became of an attempt to take a lease away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The lease has been taken away.
    Done,
    /// Nobody holds the lock with that token; nothing has changed.
    NotCurrent,
}

/// One lock, as an onlooker sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockState {
    /// The lock.
    pub name: LockName,
    /// Whether it can be had.
    pub status: Status,
    /// The holder, where it is held; the one with the smallest token where it is shared.
    pub holder: Option<HolderId>,
    /// The holder in words.
    pub label: Option<String>,
    /// All who hold it, in the order of their tokens, where it is shared; empty otherwise.
    pub readers: Vec<Reader>,
    /// The token of the present lease, or of the one that the lock rests from.
    pub token: Option<FencingToken>,
    /// When it was granted: microseconds since 1970.
    pub since_micros: Option<u64>,
    /// How long until it is free if nothing is done.
    pub remaining: Option<Duration>,
    /// Of how many nodes of a quorum the loss can be borne; `None` where one store decides.
    pub slack: Option<usize>,
    /// Who waits, in order where there is one.
    pub waiters: Vec<Waiter>,
}

impl LockState {
    /// A lock that nobody holds.
    pub fn free(name: LockName) -> Self {
        Self {
            name,
            status: Status::Free,
            holder: None,
            label: None,
            readers: Vec::new(),
            token: None,
            since_micros: None,
            remaining: None,
            slack: None,
            waiters: Vec::new(),
        }
    }
}

/// Whether a lock can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Somebody holds it.
    Held,
    /// Nobody holds it.
    Free,
    /// Its holder has released it, and it stays taken a while as that holder asked.
    Resting,
    /// The store may have lost data and grants nothing yet.
    Quarantined,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Free => "free",
            Self::Resting => "resting",
            Self::Quarantined => "quarantined",
        })
    }
}

/// Somebody who holds a lock beside others.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Who.
    pub holder: HolderId,
    /// The holder in words.
    pub label: Option<String>,
    /// The token of the lease.
    pub token: FencingToken,
    /// When it was granted: microseconds since 1970.
    pub since_micros: Option<u64>,
    /// How long until it ends if nothing is done.
    pub remaining: Option<Duration>,
}

/// Somebody who waits for a lock.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// Who, where the store knows.
    pub holder: Option<HolderId>,
    /// The waiter in words.
    pub label: Option<String>,
    /// Since when: microseconds since 1970.
    pub since_micros: Option<u64>,
}
