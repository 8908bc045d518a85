//! Deliberately broken backends and fences. A case that passes on a backend with the fitting defect proves nothing, so
//! each case about safety is shown to fail on one.
//!
//! Invariant: a defect changes what its name says and nothing else.

mod claim;
mod defect;
mod fence;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, Claim, Clock, Error, ErrorKind, Examination, FencingToken, Grant, Handover,
    HolderId, LockName, LockState, Mode, Moment, NamePrefix, Profile, Renewal, Result, Revoked, Scope,
    Status, Wait, Waiter,
};

use futures_util::stream::{self, BoxStream, StreamExt};

use claim::BrokenClaim;

pub use defect::{Defect, Lie};
pub use fence::{BrokenFence, FenceDefect};

/// A backend with a defect. Clones share everything.
#[derive(Clone, Debug)]
pub struct Broken(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    healthy: Arc<dyn Backend>,
    profile: Profile,
    defect: Defect,
    notes: Mutex<Notes>,
}

/// What the defects must remember.
#[derive(Debug, Default)]
struct Notes {
    grants: u64,
    looks: u64,
    first: Option<FencingToken>,
    next: Option<FencingToken>,
    /// Waiters beside those of the healthy backend, in the order in which they came.
    waiters: Vec<(LockName, HolderId)>,
    last_holders: BTreeMap<LockName, HolderId>,
    names: BTreeSet<LockName>,
}

impl Broken {
    /// `healthy` with `defect`.
    pub fn new(healthy: Arc<dyn Backend>, defect: Defect) -> Self {
        let mut profile = *healthy.profile();
        match defect {
            Defect::RevokesUnpromised => profile.revoke = false,
            Defect::ReachesNobody => profile.scope = Scope::Host,
            _ => {}
        }
        Self(Arc::new(Inside { healthy, profile, defect, notes: Mutex::default() }))
    }

    fn defect(&self) -> Defect {
        self.0.defect
    }

    fn healthy(&self) -> &dyn Backend {
        &*self.0.healthy
    }

    fn now(&self) -> Moment {
        self.healthy().clock().now()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request as the defect hears it.
    fn heard(&self, request: &AcquireRequest) -> AcquireRequest {
        let mut request = request.clone();
        match self.defect() {
            Defect::HasOneLock => request.name = name("the only lock"),
            Defect::ConfusesSpellings => request.name = name(&request.name.as_str().replace("%2F", "/")),
            Defect::WaitsForever => request.wait = Wait::Forever,
            Defect::NeverWaits => request.wait = Wait::No,
            Defect::FreesTooEarly => request.ttl /= 2,
            Defect::NeverFrees => request.ttl *= 1_000,
            Defect::SharesNothing => request.mode = Mode::Exclusive,
            Defect::SharesWithEverybody => request.mode = Mode::Shared,
            Defect::NeverRests => request.at_least = None,
            Defect::RestsTooLong => request.at_least = request.at_least.map(|rest| rest * 20),
            _ => {}
        }
        request
    }

    /// The grant as the defect tells it.
    fn told(&self, request: &AcquireRequest, asked: Moment, grant: &Grant) -> Grant {
        let mut grant =
            Grant { name: request.name.clone(), ttl: grant.ttl.map(|_| request.ttl), ..grant.clone() };
        let mut notes = self.notes();
        notes.grants += 1;
        notes.last_holders.insert(grant.name.clone(), grant.holder);
        let first = *notes.first.get_or_insert(grant.token);
        match self.defect() {
            Defect::RepeatsTokens => grant.token = first,
            Defect::LowersTokens if notes.grants.is_multiple_of(50) => {
                grant.token = token(grant.token.get() - 10_000_000);
            }
            Defect::RoundsTokens => grant.token = rounded(grant.token),
            Defect::LiftsOneGrant => {
                grant.token = grant.token.max(notes.next.take().unwrap_or(FencingToken::MIN));
            }
            Defect::LowersByLift => grant.token = notes.next.take().unwrap_or(grant.token),
            Defect::CountsFromTheReply => grant.counted_from = self.now(),
            Defect::CountsFromTheWait => grant.counted_from = asked,
            Defect::BelievesTooLong => grant.ttl = grant.ttl.map(|ttl| ttl * 10),
            _ => {}
        }
        grant
    }

    /// Takes the lock from whoever holds it.
    async fn free(&self, name: &LockName) -> Result<()> {
        if let Some(token) = self.healthy().inspect(name).await?.token {
            self.healthy().revoke(name, token, "a defect").await?;
        }
        Ok(())
    }

    fn seen(&self, mut state: LockState) -> LockState {
        let notes = self.notes();
        let waiters = notes.waiters.iter().filter(|(name, _)| *name == state.name);
        state.waiters.extend(waiters.map(|(_, holder)| waiter(*holder)));
        let Defect::Shows(lie) = self.defect() else { return state };
        match lie {
            Lie::Spelling => state.name = name(&state.name.canonical()),
            Lie::AnotherHolder => state.holder = state.holder.map(|_| HolderId::from_bytes([1; 16])),
            Lie::AnotherToken => state.token = state.token.map(|seen| token(seen.get() + 1)),
            Lie::NoLabel => state.label = None,
            Lie::NoSince => state.since_micros = None,
            Lie::NoEnd => state.remaining = None,
            Lie::NoWaiters => state.waiters.clear(),
            Lie::AWaiter => state.waiters.push(waiter(HolderId::from_bytes([2; 16]))),
            Lie::TheLastHolder => {
                state.holder = state.holder.or(notes.last_holders.get(&state.name).copied());
            }
        }
        state
    }
}

fn name(text: &str) -> LockName {
    text.parse().expect("a name with a defect is a name")
}

fn token(number: u64) -> FencingToken {
    number.try_into().expect("a token with a defect is a token")
}

#[expect(clippy::cast_precision_loss, reason = "the loss is the defect")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a positive number")]
fn rounded(exact: FencingToken) -> FencingToken {
    token(exact.get() as f64 as u64)
}

fn waiter(holder: HolderId) -> Waiter {
    Waiter { holder: Some(holder), label: None, since_micros: None }
}

fn contended() -> Error {
    Error::new(ErrorKind::Contended, "acquire the lock", "it is held")
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with the defect {:?}", self.healthy(), self.defect())
    }
}

#[async_trait]
impl Backend for Broken {
    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    fn clock(&self) -> &Clock {
        self.healthy().clock()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        let (asked, heard) = (self.now(), self.heard(request));
        self.notes().names.insert(request.name.clone());
        let claim = self.acquire_somehow(&heard).await?;
        if self.defect() == Defect::CountsFromTheReply {
            self.clock().sleep(request.ttl / 4).await;
        }
        let grant = self.told(request, asked, claim.grant());
        Ok(Box::new(BrokenClaim::new(self.clone(), claim, grant)))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.notes().names.insert(name.clone());
        Ok(self.seen(self.healthy().inspect(name).await?))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let prefix = match self.defect() {
            Defect::ListsAnyPrefix => &NamePrefix::default(),
            _ => prefix,
        };
        let mut states = self.healthy().list(prefix).await?;
        match self.defect() {
            Defect::ListsTooFew => drop(states.pop()),
            Defect::ListsNowAndThen => {
                let mut notes = self.notes();
                notes.looks += 1;
                states.retain(|_| !notes.looks.is_multiple_of(2));
            }
            Defect::ListsInDisorder => states.reverse(),
            Defect::ListsFreeLocks => {
                let names = self.notes().names.clone().into_iter().filter(|name| prefix.matches(name));
                for name in names {
                    let state = self.healthy().inspect(&name).await?;
                    states.extend((state.status == Status::Free).then_some(state));
                }
                states.sort_by(|one, other| one.name.cmp(&other.name));
            }
            _ => {}
        }
        Ok(states.into_iter().map(|state| self.seen(state)).collect())
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        match self.defect() {
            Defect::RevokesNothing => Ok(Revoked::Done),
            Defect::RevokesWithoutReason => self.healthy().revoke(name, token, "").await,
            Defect::RevokesAnyToken => {
                self.free(name).await?;
                Ok(Revoked::Done)
            }
            _ => self.healthy().revoke(name, token, reason).await,
        }
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        match self.defect() {
            Defect::NeverLifts => return Ok(()),
            Defect::LiftsOneGrant | Defect::LowersByLift => {
                self.notes().next = Some(to);
                return Ok(());
            }
            Defect::FreesByLift => self.free(name).await?,
            _ => {}
        }
        self.healthy().lift(name, to).await
    }

    async fn renew(&self, handover: &Handover, ttl: Duration) -> Result<Renewal> {
        self.healthy().renew(handover, ttl).await
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        match self.defect() {
            Defect::GivesBackNothing => Ok(()),
            Defect::GivesBackForAnyToken => self.free(&handover.lock).await,
            Defect::GivesBackForAnyHolder => {
                let state = self.healthy().inspect(&handover.lock).await?;
                let holder = state.holder.filter(|_| state.token == Some(handover.token));
                let holder = holder.unwrap_or(handover.holder);
                self.healthy().give_back(&Handover { holder, ..handover.clone() }).await
            }
            _ => self.healthy().give_back(handover).await,
        }
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        if self.defect() == Defect::ReadsTheLogbookSlowly {
            self.clock().sleep(Duration::from_millis(2)).await;
        }
        self.healthy().logbook(name).await
    }

    async fn signals(&self, prefix: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        match self.defect() {
            Defect::SignalsNothing => Ok(Some(stream::pending().boxed())),
            _ => self.healthy().signals(prefix).await,
        }
    }

    async fn examine(&self) -> Result<Examination> {
        self.healthy().examine().await
    }
}
