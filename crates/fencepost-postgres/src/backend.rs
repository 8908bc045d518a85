//! The backend of one database: acquiring, looking, lifting, revoking.

use std::fmt;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Error, ErrorKind, Expiry, FencingToken, Handover,
    LockName, LockState, Loss, LossReason, NamePrefix, Profile, Result, Revoked, Scope, Status, Timing,
    Tokens, Waiting,
};

use crate::endpoint::{Endpoint, Options, PausePolicy};
use crate::failure::unavailable;
use crate::libpq::Environment;
use crate::look::{Wanted, look};
use crate::queue;
use crate::schema::missing_rights;
use crate::server::Server;

/// What the session advisory locks of one database promise, with `on_pause=hold`.
pub const PROFILE: Profile = Profile::weakest("postgres")
    .expiry(Expiry::WithSession)
    .tokens(Tokens::Durable)
    .waiting(Waiting::NearlyQueued)
    .loss(Loss::Pushed)
    .scope(Scope::Server)
    .timing(Timing::Monotonic)
    .quarantine(true)
    .revocable()
    .rests();

/// How often a lift finds the door of a lock taken before it gives up.
const LIFT_TRIES: usize = 20;

/// Locks in a database.
#[derive(Clone, Debug)]
pub struct PostgresBackend {
    server: Server,
    profile: Profile,
    shown: String,
}

impl PostgresBackend {
    /// The backend of `postgres://`. Connects when it is first needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL, an option, or what libpq's environment adds to them is wrong.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        let endpoint = Endpoint::of(url, &Environment::of_process())?;
        let options = Options::of(url)?;
        let (expiry, timing) = match options.on_pause {
            PausePolicy::Hold => (Expiry::WithSession, Timing::Monotonic),
            // A timer of the server that goes off meanwhile looks at its wall clock.
            PausePolicy::Expire => (Expiry::AfterTtl, Timing::WallClock),
        };
        let profile = PROFILE
            .expiry(expiry)
            .timing(timing)
            .longest_ttl(Some(options.max_ttl))
            .quarantine(options.has_quarantine);
        Ok(Self { server: Server::new(clock, endpoint, options), profile, shown: url.to_string() })
    }

    /// Ends the session that holds a lock by the grant with this token, and of this holder where one is named.
    async fn take_away(
        &self,
        name: &LockName,
        token: FencingToken,
        holder: Option<&str>,
        reason: Option<&str>,
    ) -> Result<Revoked> {
        let session = self.server.session(self.server.options().max_ttl).await?;
        let id = self.server.lock_id(&session, name).await?;
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let client = session.client();
        if let Some(reason) = reason {
            // Before the holder can learn of its loss, so that it finds it.
            let noted = client.execute(NOTE_REVOCATION, &[&id, &token, &reason]).await;
            noted.map_err(|error| missing_rights(&error))?;
        }
        let ended = client.query_one(END_SESSION, &[&id, &token, &holder]).await;
        if ended.is_err() && reason.is_some() {
            // It was not taken away: a later loss has another reason. What goes wrong here went wrong before.
            let _ = client.execute(FORGET_REVOCATION, &[&id, &token]).await;
        }
        let ended: Option<bool> = ended.map_err(|error| missing_rights(&error))?.get(0);
        self.server.keep(session);
        match ended {
            Some(true) => Ok(Revoked::Done),
            Some(false) => {
                let what = "the session that holds it has been told to end, and has not ended yet";
                Err(Error::new(ErrorKind::Indeterminate, "revoke the lease", what).on(name))
            }
            None => Ok(Revoked::NotCurrent),
        }
    }
}

const NOTE_REVOCATION: &str = "insert into fencepost.revocation (id, token, reason)
    select $1, $2, $3 where fencepost.holder_of($1, $2, null) is not null
    on conflict (id) do update set token = excluded.token, reason = excluded.reason";

/// No grant has the token 0.
const FORGET_REVOCATION: &str = "update fencepost.revocation set token = 0 where id = $1 and token = $2";

/// It waits until the session has ended: only then the lock is free.
const END_SESSION: &str = "select pg_catalog.pg_terminate_backend(pid, 2000)
    from (select fencepost.holder_of($1, $2, $3) as pid) as holding";

impl fmt::Display for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[async_trait]
impl Backend for PostgresBackend {
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
        let session = self.server.session(self.server.options().max_ttl).await?;
        let seen = look(&session, Wanted::One(name)).await?;
        let mut state = seen.into_iter().next().unwrap_or_else(|| LockState::free(name.clone()));
        let now = self.clock().now();
        if let Some(ready_at) = session.ready_at.filter(|at| *at > now && state.status == Status::Free) {
            state.status = Status::Quarantined;
            state.remaining = Some(ready_at.since(now));
        }
        self.server.keep(session);
        Ok(state)
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let session = self.server.session(self.server.options().max_ttl).await?;
        let mut states = look(&session, Wanted::All(prefix)).await?;
        states.retain(|state| matches!(state.status, Status::Held | Status::Resting));
        self.server.keep(session);
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        self.take_away(name, token, None, Some(reason)).await
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        let session = self.server.session(self.server.options().max_ttl).await?;
        let id = self.server.lock_id(&session, name).await?;
        let below = i64::try_from(to.get() - 1).unwrap_or(i64::MAX);
        for _ in 0..LIFT_TRIES {
            let lifted = session.client().query_one("select fencepost.lift($1, $2)", &[&id, &below]).await;
            if lifted.map_err(|error| missing_rights(&error))?.get(0) {
                self.server.keep(session);
                return Ok(());
            }
        }
        Err(unavailable("waiters stand in the way; nothing was changed").during("lift the token"))
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        let holder = handover.holder.to_string();
        match self.take_away(&handover.lock, handover.token, Some(&holder), None).await? {
            Revoked::Done => Ok(()),
            Revoked::NotCurrent => {
                Err(Error::lost(LossReason::Expired, "it is not held any more").during("release the lock"))
            }
        }
    }
}
