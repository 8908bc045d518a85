//! The backend of one Redis: acquiring, looking, lifting, revoking.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Error, ErrorKind, Expiry, FencingToken, Handover,
    LockName, LockState, Loss, NamePrefix, Profile, Result, Revoked, Scope, Status, Timing, Waiter, Waiting,
};

use crate::claim;
use crate::endpoint::{Endpoint, Options};
use crate::keys::{self, Keys};
use crate::queue;
use crate::record::{Record, State, read_waiter};
use crate::resp::Reply;
use crate::script::{self, Script};
use crate::server::Server;
use crate::session::{Session, lost_touch, refuse, unexpected};

/// What one Redis promises.
pub const PROFILE: Profile = Profile::weakest("redis")
    .expiry(Expiry::AfterTtl)
    .waiting(Waiting::Queued)
    .loss(Loss::Pushed)
    .scope(Scope::Server)
    .timing(Timing::WallClock)
    .quarantine(true)
    .revocable()
    .rests();

/// The greatest token that Redis counts exactly.
const GREATEST_TOKEN: u64 = (1 << 53) - 1;

/// How many locks are looked at in one script.
const BATCH: usize = 200;

/// Locks on one Redis, wherever it is.
#[derive(Clone, Debug)]
pub struct RedisBackend {
    server: Server,
    profile: Profile,
    shown: String,
}

impl RedisBackend {
    /// The backend of `redis://`, `rediss://` and `redis+sentinel://`. Connects when it is first needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL or an option is wrong.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        url.accept_options(&["max_ttl", "quarantine", "replicas"])?;
        let options = Options::of(url)?;
        let server = Server::new(clock, Endpoint::one(url)?, options);
        Ok(Self {
            server,
            profile: PROFILE.longest_ttl(Some(options.max_ttl)).quarantine(options.has_quarantine),
            shown: url.to_string(),
        })
    }

    async fn run(&self, script: &'static Script, keys: &[&str], arguments: &[&str]) -> Result<Reply> {
        let session = self.server.session().await?;
        let reply = session.connection.run(script, keys, arguments).await;
        reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)
    }

    async fn look(&self, session: &Session, names: &[LockName]) -> Result<Vec<LockState>> {
        let all: Vec<Keys> = names.iter().map(Keys::of).collect();
        let mut keys = vec![keys::INCARNATION];
        keys.extend(all.iter().flat_map(|keys| [&*keys.lock, &*keys.token, &*keys.queue, &*keys.waiters]));
        let reply = session.connection.run(&script::INSPECT, &keys, &[]).await;
        let reply = reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
        let [now, _, locks @ ..] = reply.list() else { return Err(unexpected("inspect.lua", &reply)) };
        let now = now.number().unwrap_or_default();
        let has_quarantine = self.server.options().has_quarantine;
        let quarantine = session.incarnation.ready_at_ms - now;
        let quarantine =
            (has_quarantine && quarantine > 0).then(|| Duration::from_millis(quarantine.unsigned_abs()));
        Ok(names.iter().zip(locks).map(|(name, lock)| state(name, lock.list(), quarantine)).collect())
    }

    /// The names of all locks that have a record.
    async fn names(&self, session: &Session, prefix: &NamePrefix) -> Result<Vec<LockName>> {
        let mut names = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let scan: [&[u8]; 6] =
                [b"SCAN", cursor.as_bytes(), b"MATCH", keys::ALL_LOCKS.as_bytes(), b"COUNT", b"1000"];
            let reply = session.connection.call(&scan).await.map_err(|broken| lost_touch(&broken))?;
            let reply = refuse(reply)?;
            let [next, found] = reply.list() else { return Err(unexpected("SCAN", &reply)) };
            let mut get: Vec<&[u8]> = vec![b"MGET"];
            get.extend(found.list().iter().filter_map(Reply::text).map(str::as_bytes));
            if get.len() > 1 {
                let records = session.connection.call(&get).await.map_err(|broken| lost_touch(&broken))?;
                let records = refuse(records)?;
                let owners = records.list().iter().filter_map(|record| Record::read(record.text()?)?.owner);
                names.extend(owners.map(|owner| owner.name).filter(|name| prefix.matches(name)));
            }
            next.text().unwrap_or("0").clone_into(&mut cursor);
            if cursor == "0" {
                break;
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

fn state(name: &LockName, seen: &[Reply], quarantine: Option<Duration>) -> LockState {
    let mut state = LockState::free(name.clone());
    let [record, left, _, waiters] = seen else { return state };
    state.waiters = waiters.list().chunks_exact(2).map(waiter).collect();
    let Some(record) = record.text().and_then(Record::read).filter(|record| record.state != State::Reserved)
    else {
        if let Some(left) = quarantine {
            state.status = Status::Quarantined;
            state.remaining = Some(left);
        }
        return state;
    };
    state.status = if record.state == State::Rests { Status::Resting } else { Status::Held };
    state.token = record.token;
    state.remaining = left.number().and_then(|left| u64::try_from(left).ok()).map(Duration::from_millis);
    if state.status == Status::Held {
        state.holder = record.holder;
        state.since_micros = record.since_micros;
        state.label = record.owner.map(|owner| owner.label);
    }
    state
}

fn waiter(seen: &[Reply]) -> Waiter {
    let known = seen[1].text().and_then(read_waiter);
    let (since_micros, owner) = known.unzip();
    Waiter {
        holder: seen[0].text().and_then(|holder| holder.parse().ok()),
        label: owner.map(|owner| owner.label),
        since_micros,
    }
}

impl fmt::Display for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[async_trait]
impl Backend for RedisBackend {
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
        let session = self.server.session().await?;
        let seen = self.look(&session, std::slice::from_ref(name)).await?;
        Ok(seen.into_iter().next().unwrap_or_else(|| LockState::free(name.clone())))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let session = self.server.session().await?;
        let mut states = Vec::new();
        for names in self.names(&session, prefix).await?.chunks(BATCH) {
            states.extend(self.look(&session, names).await?);
        }
        states.retain(|state| matches!(state.status, Status::Held | Status::Resting));
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        let keys = Keys::of(name);
        let for_long = self.server.options().max_ttl.as_millis().to_string();
        let reply = self
            .run(
                &script::REVOKE,
                &[&keys.lock, &keys.token, &keys.queue, &keys.waiters, keys.tombstones()],
                &[&token.to_string(), reason, &for_long],
            )
            .await?;
        Ok(if reply == Reply::Integer(1) { Revoked::Done } else { Revoked::NotCurrent })
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        if to.get() > GREATEST_TOKEN {
            let what = format!("{to} is above 2^53-1, the greatest token that Redis counts exactly");
            return Err(Error::new(ErrorKind::InvalidArgument, "lift the token", what).on(name));
        }
        let below = (to.get() - 1).to_string();
        self.run(&script::LIFT, &[&Keys::of(name).token], &[&below]).await.map(drop)
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        claim::release(&self.server, &Keys::of(&handover.lock), handover, false).await
    }
}
