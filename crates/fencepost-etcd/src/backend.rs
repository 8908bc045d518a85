//! The backend of one cluster: acquiring, looking, lifting, revoking.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Connections, Error, ErrorKind, Examination, Expiry,
    FencingToken, Handover, Lease, LockName, LockState, Loss, NamePrefix, Profile, Renewal, Result, Revoked,
    Scope, Timing, Tokens, Waiting,
};
use futures_util::stream::BoxStream;

use crate::claim::{self, give_up, not_held};
use crate::endpoint::Endpoint;
use crate::examine;
use crate::generated::TxnRequest;
use crate::keys::Keys;
use crate::logbook;
use crate::look;
use crate::members::Failed;
use crate::proof::{self, Proof};
use crate::queue;
use crate::record::{Kept, Place, signed};
use crate::requests::{all, created, delete, get, modified, put, range};
use crate::rest::Rest;
use crate::server::{FOR_EVER, ONCE, Server};
use crate::session::{self, Session};
use crate::signals;
use crate::stand::{Stand, text};

/// What a cluster promises.
pub const PROFILE: Profile = Profile::weakest("etcd")
    .expiry(Expiry::AfterTtl)
    .tokens(Tokens::Durable)
    .waiting(Waiting::Queued)
    .loss(Loss::Pushed)
    .scope(Scope::Cluster)
    .timing(Timing::Monotonic)
    .outlives_sessions()
    .detachable()
    .revocable()
    .rests()
    .shares()
    .keeps_logbook()
    .costs(2, 1, Connections::OnePerProcess);

/// How often others may be in the way of a lift.
const LIFT_TRIES: usize = 20;

/// Locks in a cluster, or on one node.
#[derive(Clone, Debug)]
pub struct EtcdBackend {
    server: Server,
    profile: Profile,
    shown: String,
}

impl EtcdBackend {
    /// The backend of `etcd://` and `etcds://`. Connects when it is first needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL or an option is wrong.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        let endpoint = Endpoint::of(url)?;
        let profile = PROFILE.longest_ttl(Some(endpoint.max_ttl));
        Ok(Self { server: Server::new(clock, endpoint), profile, shown: url.to_string() })
    }

    /// What a transaction in the same cluster compares so that it is carried out only while `lease` is held. Asks etcd once.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Lost` when the lease is not held any more; `Unsupported` for a lease that is shared, whose holder only reads.
    pub async fn proof(&self, lease: &Lease) -> Result<Proof> {
        proof::proof(&self.server, lease).await
    }

    /// The place of a lease that was handed over, if it is held. One that rests was given back, and is nobody's any more.
    async fn lease_of(&self, handover: &Handover) -> Result<Option<Place>> {
        let is_held = |place: &Place| {
            let rests = place.record.as_ref().is_some_and(|record| record.rests_until.is_some());
            place.holder() == Some(handover.holder) && !rests
        };
        Ok(look::holder(&self.server, &handover.lock, handover.token).await?.filter(is_held))
    }

    async fn take_away(&self, name: &LockName, place: &Place, reason: &str) -> Result<Revoked> {
        let server = &self.server;
        let seconds = signed(server.max_ttl().as_secs()).max(1);
        // The reason lasts as long as anybody may ask for it.
        let lease = session::grant(server, seconds, ONCE).await.map_err(Failed::error)?;
        let key = String::from_utf8_lossy(&place.key).into_owned();
        let holder = place.holder().ok_or_else(not_held)?;
        let reason = put(&Keys::of(server.root(), name).reason(holder), reason.into(), lease.id);
        let compare = vec![created(&key, place.created)];
        let request = TxnRequest { compare, success: vec![delete(&key), reason], failure: Vec::new() };
        let answer =
            server.txn(&request, ONCE).await.map_err(|failed| failed.doubtful("revoke the lease"))?;
        if answer.message.succeeded || answer.is_late {
            return Ok(Revoked::Done);
        }
        // Nothing is tied to it, and it ends by itself.
        drop(session::end(server, lease.id, ONCE).await);
        Ok(Revoked::NotCurrent)
    }

    /// Raises the offset of one lock, so that its next token is `to` at least. Whether nobody was in the way.
    async fn raise(&self, name: &LockName, to: FencingToken) -> Result<bool> {
        let (server, keys) = (&self.server, Keys::of(self.server.root(), name));
        let success = vec![get(&server.offset_key()), get(&keys.lifted()), range(all(&keys.queue()))];
        let looking = TxnRequest { compare: Vec::new(), success, failure: Vec::new() };
        let done = server.txn(&looking, ONCE).await.map_err(Failed::error)?.message;
        let [general, own] = [0, 1].map(|part| Kept::read(done.found(part).first()));
        // Whoever waits already has a lower revision than whoever comes next; the first one may have its token, and keeps it.
        let waiting = done.found(2).iter().filter_map(Place::read).map(|place| place.created);
        let next = waiting.min().unwrap_or(done.header.revision + 1);
        let offset = signed(to.get()).saturating_sub(next);
        if offset <= general.offset.max(own.offset) {
            return Ok(true);
        }
        let compare = vec![modified(&keys.lifted(), own.modified)];
        let success = vec![put(&keys.lifted(), text(offset), 0)];
        let lifting = TxnRequest { compare, success, failure: Vec::new() };
        let answer = server.txn(&lifting, ONCE).await.map_err(|failed| failed.doubtful("lift the token"))?;
        Ok(answer.message.succeeded)
    }
}

impl fmt::Display for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Clock {
        self.server.clock()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        Ok(Box::new(queue::acquire(&self.server, request).await?))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        look::one(&self.server, name).await
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        look::list(&self.server, prefix).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        match look::holder(&self.server, name, token).await? {
            Some(place) => Box::pin(self.take_away(name, &place, reason)).await,
            None => Ok(Revoked::NotCurrent),
        }
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        for _ in 0..LIFT_TRIES {
            if Box::pin(self.raise(name, to)).await? {
                return Ok(());
            }
        }
        let what = "others lift it all the time; nothing was changed";
        Err(Error::new(ErrorKind::Unavailable, "lift the token", what))
    }

    async fn renew(&self, handover: &Handover, ttl: Duration) -> Result<Renewal> {
        let Handover { lock, holder, .. } = handover;
        let why_gone = || claim::why_gone(&self.server, lock, *holder);
        let Some(place) = self.lease_of(handover).await? else { return Err(why_gone().await) };
        let mut session = Session::of_another(&self.server, place.lease, ttl);
        let keys = Keys::of(self.server.root(), lock);
        let stand = Stand::found(&self.server, keys, place).ok_or_else(not_held)?;
        match claim::renew(&mut session, &Arc::new(stand)).await? {
            Some(renewal) => Ok(renewal),
            None => Err(why_gone().await),
        }
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        let Handover { lock, detail, .. } = handover;
        let place = self.lease_of(handover).await?.ok_or_else(not_held)?;
        let lease = place.lease;
        let rest = detail.as_ref().and_then(|rest| Rest::read(rest, self.server.clock()));
        let keys = Keys::of(self.server.root(), lock);
        let stand = Stand::found(&self.server, keys, place).ok_or_else(not_held)?;
        let (was_there, was_late) = Box::pin(give_up(&self.server, &stand, rest)).await?;
        // What the process that is gone has sent may still be on its way.
        drop(Box::pin(session::end(&self.server, lease, FOR_EVER)).await);
        if was_there || was_late { Ok(()) } else { Err(not_held()) }
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        logbook::read(&self.server, name).await
    }

    async fn signals(&self, prefix: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        signals::signals(&self.server, prefix).await.map(Some)
    }

    async fn examine(&self) -> Result<Examination> {
        Box::pin(examine::examine(&self.server)).await
    }
}
