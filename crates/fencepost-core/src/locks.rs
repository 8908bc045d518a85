//! The locks of one backend: looked at, taken away, lifted, given back for others. Each becomes a [`Lock`] to be acquired.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Handover, LockState, Renewal, Revoked};
use crate::changes::Watch;
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::passed_deadline;
use crate::lock::Lock;
use crate::logbook::Logbook;
use crate::name::{LockName, NamePrefix};
use crate::profile::Profile;
use crate::token::FencingToken;

/// The locks of one backend.
///
/// # Examples
/// ```
/// use fencepost_core::{Locks, MemoryBackend};
///
/// # let time = fencepost_core::VirtualTime::new(1);
/// # let clock = time.clock();
/// # time.block_on(async {
/// let locks = Locks::new(MemoryBackend::new(clock));
/// let lease = locks.lock("ledger/2026-11")?.acquire().await?;
/// lease.check()?;
/// println!("writing with token {}", lease.token());
/// lease.release().await?;
/// # Ok::<(), fencepost_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Locks(pub(crate) Arc<dyn Backend>);

impl Locks {
    /// The locks of `backend`.
    pub fn new(backend: impl Backend) -> Self {
        Self::shared(Arc::new(backend))
    }

    /// The locks of a backend that others use as well.
    pub fn shared(backend: Arc<dyn Backend>) -> Self {
        Self(backend)
    }

    /// The lock `name`, not yet acquired.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it is no name.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        Ok(Lock::new(self.clone(), name.parse()?))
    }

    /// What the backend promises.
    pub fn profile(&self) -> &Profile {
        self.0.profile()
    }

    /// The backend itself, for what only it can do.
    pub fn backend(&self) -> &dyn Backend {
        &*self.0
    }

    /// Looks at one lock, changing nothing.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn inspect(&self, name: &str) -> Result<LockState> {
        self.0.inspect(&name.parse()?).await
    }

    /// Looks at every lock that is not free and whose name begins with `prefix`.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.0.list(&NamePrefix::new(prefix)).await
    }

    /// Tells what becomes of the locks whose names begin with `prefix`, changing nothing. Nothing is asked of the store before the
    /// first [`Watch::next`].
    pub fn watch(&self, prefix: &str) -> Watch {
        Watch::new(self.clone(), NamePrefix::new(prefix))
    }

    /// Takes the lease with `token` away from its holder by force.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have taken it away.
    pub async fn revoke(&self, name: &str, token: FencingToken, reason: &str) -> Result<Revoked> {
        self.0.revoke(&name.parse()?, token, reason).await
    }

    /// Makes the store promise another term to a lease that was [detached](crate::Lease::detach), here or in another process. One that has
    /// ended is never taken anew.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have renewed it.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lease has ended, or the answer came after the term that it tells of;
    /// [`ErrorKind::InvalidArgument`] for a longer `ttl` than the backend gives; [`ErrorKind::Unsupported`] where leases cannot be
    /// detached.
    pub async fn renew(&self, handover: &Handover, ttl: Duration) -> Result<Renewal> {
        let renewed = match self.profile().longest_ttl {
            _ if !self.profile().detach => Err(self.profile().not_detachable().during("renew the lease")),
            Some(longest) if ttl > longest => Err(too_long(ttl, longest, self)),
            _ => self.0.renew(handover, ttl).await,
        };
        // An answer that comes after the term that it tells of is none.
        let in_time = renewed.and_then(|renewal| {
            let deadline = Deadline::of(renewal.counted_from, renewal.ttl);
            if deadline.passed(self.0.clock().now()) {
                return Err(passed_deadline().during("renew the lease"));
            }
            Ok(renewal)
        });
        in_time.map_err(|error| error.on(&handover.lock))
    }

    /// Gives back a lease that was [detached](crate::Lease::detach), here or in another process.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given it back.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lease is not its holder's any more; nothing has changed then.
    pub async fn give_back(&self, handover: &Handover) -> Result<()> {
        self.0.give_back(handover).await.map_err(|error| error.on(&handover.lock))
    }

    /// What the holders of the lock have left: the last period that was done, and the last grants, where they were to be kept.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the store keeps no logbook.
    pub async fn logbook(&self, name: &str) -> Result<Logbook> {
        let name: LockName = name.parse()?;
        let content = if self.profile().logbook {
            self.0.logbook(&name).await
        } else {
            Err(without_logbook(self.profile()).during("read the logbook"))
        };
        content.and_then(|content| Logbook::read(content.as_deref())).map_err(|error| error.on(&name))
    }

    /// Makes the lock's next token at least `to`; never lowers it.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have raised it.
    pub async fn lift(&self, name: &str, to: FencingToken) -> Result<()> {
        self.0.lift(&name.parse()?, to).await
    }
}

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) fn without_logbook(profile: &Profile) -> Error {
    let what = format!("{} keeps nothing beside a lock's token", profile.backend);
    Error::new(ErrorKind::Unsupported, "acquire the lock", what)
}

pub(crate) fn too_long(ttl: Duration, longest: Duration, locks: &Locks) -> Error {
    let what = format!("a ttl of {ttl:?} is more than the {longest:?} that {locks} gives");
    let error = Error::new(ErrorKind::InvalidArgument, "renew the lease", what);
    error.hint("ask for a shorter one, or raise max_ttl in the URL")
}
