//! The other half of a lock: the check inside the protected system.
//!
//! A lock decides who may start. Only a number that the protected system checks stops a holder that was paused past its
//! lease and does not know it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use async_trait::async_trait;

use crate::clock::lock;
use crate::error::{Error, ErrorKind, Result};
use crate::examine::{Examination, Finding};
use crate::name::{LockName, NamePrefix};
use crate::token::FencingToken;

/// Who a stamp says the holder is: text of 0 to 64 bytes of `[A-Za-z0-9-]`; a [`HolderId`](crate::HolderId) is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StampHolder(String);

impl StampHolder {
    /// The holder with this text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when it is longer or has other characters.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let fits = text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if fits {
            return Ok(Self(text));
        }
        let what = format!("{text:?} is not 0 to 64 letters, digits and hyphens");
        Err(Error::new(ErrorKind::InvalidArgument, "read the holder of a stamp", what))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<crate::token::HolderId> for StampHolder {
    fn from(holder: crate::token::HolderId) -> Self {
        Self(holder.to_string())
    }
}

/// What a holder shows to a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The lock that protects the resource.
    pub lock: LockName,
    /// The token of the holder's grant.
    pub token: FencingToken,
    /// The holder; two holders with one token are told apart by it.
    pub holder: StampHolder,
}

/// The highest stamp that a fence has sealed for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its token.
    pub token: FencingToken,
    /// Its holder.
    pub holder: StampHolder,
}

impl Mark {
    /// What sealing `stamp` over `mark` leaves: the stamp, if its token is greater, or equal with the same holder.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] with the mark in the message.
    pub fn sealed(mark: Option<&Self>, stamp: &Stamp) -> Result<Self> {
        match mark {
            Some(mark)
                if stamp.token < mark.token || (stamp.token == mark.token && stamp.holder != mark.holder) =>
            {
                Err(mark.refusal("seal the fence", stamp))
            }
            _ => Ok(Self { token: stamp.token, holder: stamp.holder.clone() }),
        }
    }

    /// Accepts `stamp` if it is exactly the sealed one.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] with the mark in the message, also for a greater token that was never sealed.
    pub fn checked(mark: Option<&Self>, stamp: &Stamp) -> Result<()> {
        match mark {
            Some(mark) if mark.token == stamp.token && mark.holder == stamp.holder => Ok(()),
            Some(mark) if mark.token >= stamp.token => Err(mark.refusal("check the stamp", stamp)),
            lower => {
                let mark =
                    lower.map_or("there is no mark".to_owned(), |mark| format!("the mark is {}", mark.token));
                let what = format!("token {} was never sealed, {mark}", stamp.token);
                Err(Error::new(ErrorKind::Stale, "check the stamp", what).on(&stamp.lock).hint("seal first"))
            }
        }
    }

    fn refusal(&self, operation: &'static str, stamp: &Stamp) -> Error {
        let what = if self.token == stamp.token {
            format!("token {} is sealed for another holder", stamp.token)
        } else {
            format!("token {} is stale, the mark is {}", stamp.token, self.token)
        };
        let hint = format!(
            "somebody else has had the lock since: acquire it anew, and read again before you write; where it is the lock's tokens \
             that have gone back, `fencepost lift {} --to {}` raises them",
            stamp.lock,
            self.token.get().saturating_add(1)
        );
        Error::new(ErrorKind::Stale, operation, what).on(&stamp.lock).hint(hint)
    }
}

/// The check inside one protected system.
///
/// # Contract
/// The mark lives in the same atomic and durable domain as the data. Sealing before the first read makes the critical
/// sections of all holders serial in the order of their tokens; a check without a seal loses updates.
#[async_trait]
pub trait Fence: fmt::Debug + fmt::Display + Send + Sync {
    /// Raises the mark to `stamp`. The same stamp again changes nothing.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have raised the mark.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] when the mark is higher, or equal with another holder.
    async fn seal(&self, stamp: &Stamp) -> Result<()>;

    /// Accepts exactly the sealed stamp, and never raises the mark.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] for any other stamp.
    async fn check(&self, stamp: &Stamp) -> Result<()>;

    /// The mark of `lock`.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    async fn mark(&self, lock: &LockName) -> Result<Option<Mark>>;

    /// The marks of all locks whose names begin with `prefix`, in the order of the names.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>>;

    /// Removes the mark of `lock`, and says whether there was one.
    ///
    /// From then on the fence knows nothing of the lock: a stamp of any former holder can be sealed, and is then accepted.
    /// It is for locks that nobody will hold again.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have removed the mark.
    async fn forget(&self, lock: &LockName) -> Result<bool>;

    /// What weakens the fence of `lock`: a guard that was switched off, a table that has none. Nothing where all is well.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    async fn findings(&self, lock: &LockName) -> Result<Vec<Finding>>;

    /// Looks at the system that the fence is in and how it is set up, and at the fences of all locks there, changing nothing. What
    /// cannot be looked at is a finding, too.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be reached.
    async fn examine(&self) -> Result<Examination>;
}

/// A fence in this process's memory: the reference for what the others must do.
#[derive(Debug, Default)]
pub struct MemoryFence(Mutex<BTreeMap<LockName, Mark>>);

impl fmt::Display for MemoryFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

#[async_trait]
impl Fence for MemoryFence {
    async fn seal(&self, stamp: &Stamp) -> Result<()> {
        let mut marks = lock(&self.0);
        let mark = Mark::sealed(marks.get(&stamp.lock), stamp)?;
        marks.insert(stamp.lock.clone(), mark);
        Ok(())
    }

    async fn check(&self, stamp: &Stamp) -> Result<()> {
        Mark::checked(lock(&self.0).get(&stamp.lock), stamp)
    }

    async fn mark(&self, name: &LockName) -> Result<Option<Mark>> {
        Ok(lock(&self.0).get(name).cloned())
    }

    async fn marks(&self, prefix: &NamePrefix) -> Result<Vec<(LockName, Mark)>> {
        let marks = lock(&self.0);
        let matching = marks.iter().filter(|(name, _)| prefix.matches(name));
        Ok(matching.map(|(name, mark)| (name.clone(), mark.clone())).collect())
    }

    async fn forget(&self, name: &LockName) -> Result<bool> {
        Ok(lock(&self.0).remove(name).is_some())
    }

    async fn findings(&self, _: &LockName) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn examine(&self) -> Result<Examination> {
        Ok(Examination::default())
    }
}
