//! The backend of one database: acquiring, looking, lifting, revoking.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Connections, Error, ErrorKind, Examination, Expiry,
    FencingToken, Handover, LockName, LockState, Loss, LossReason, NamePrefix, Profile, Renewal, Result,
    Revoked, Scope, Status, Timing, Tokens, Waiting, until,
};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::endpoint::{Endpoint, Options, PausePolicy};
use crate::examine::examine_locks;
use crate::failure::{is, unavailable};
use crate::libpq::Environment;
use crate::logbook;
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
    .rests()
    .shares()
    .keeps_logbook()
    .costs(1, 1, Connections::OnePerLock);

/// How long looking, lifting or revoking may take.
const ASK_MOST: Duration = Duration::from_secs(15);

/// How often the row of a lock is found taken by somebody who waits before it is given up.
const ROW_TRIES: usize = 20;

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

    /// The outcome of what takes a few requests. A session on which the server is silent is not used again.
    async fn in_time<T>(&self, asking: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let clock = self.server.clock();
        let outcome = until(clock, Some(clock.now().after(ASK_MOST)), Box::pin(asking)).await;
        outcome.unwrap_or_else(|| Err(unavailable(format!("the server has not answered for {ASK_MOST:?}"))))
    }

    async fn look_at(&self, name: &LockName) -> Result<LockState> {
        let session = self.server.session(self.server.options().max_ttl, None).await?;
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

    async fn look_at_all(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let session = self.server.session(self.server.options().max_ttl, None).await?;
        let mut states = look(&session, Wanted::All(prefix)).await?;
        states.retain(|state| matches!(state.status, Status::Held | Status::Resting));
        self.server.keep(session);
        Ok(states)
    }

    async fn read_logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        let session = self.server.session_about(name).await?;
        let content = logbook::read(&session, name).await;
        // One on which it went wrong is not used for anything else; if it holds a lock, that is not for a reader to end.
        self.server.keep(session);
        content
    }

    async fn raise(&self, name: &LockName, to: FencingToken) -> Result<()> {
        let session = self.server.session(self.server.options().max_ttl, None).await?;
        let id = self.server.lock_id(&session, name).await?;
        let below = i64::try_from(to.get() - 1).unwrap_or(i64::MAX);
        for _ in 0..ROW_TRIES {
            let lifted = session.client().query_one("select fencepost.lift($1, $2)", &[&id, &below]).await;
            if lifted.map_err(|error| missing_rights(&error))?.get(0) {
                self.server.keep(session);
                return Ok(());
            }
        }
        Err(unavailable("waiters stand in the way; nothing was changed").during("lift the token"))
    }

    /// Ends the session that holds a lock by the grant with this token, and of this holder where one is named.
    async fn take_away(
        &self,
        name: &LockName,
        token: FencingToken,
        holder: Option<&str>,
        reason: Option<&str>,
    ) -> Result<Revoked> {
        let session = self.server.session(self.server.options().max_ttl, None).await?;
        let id = self.server.lock_id(&session, name).await?;
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let client = session.client();
        if let Some(reason) = reason {
            // Before the holder can learn of its loss, so that it finds it.
            let noted = client.execute(NOTE_REVOCATION, &[&id, &token, &reason]).await;
            noted.map_err(|error| missing_rights(&error))?;
        }
        let ended = end_session(client, id, token, holder).await;
        if ended.is_err() && reason.is_some() {
            // It was not taken away: a later loss has another reason. What goes wrong here went wrong before.
            let _ = client.execute(FORGET_REVOCATION, &[&id, &token]).await;
        }
        let ended = ended?;
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

/// Ends the session that holds the lock by that grant, and waits until it has ended: only then the lock is free. `None` where
/// nobody holds it so.
///
/// With the lock's row, so that no newer grant can be written between the look and the end; and as two statements, since the second
/// sees what was committed before the row was had. Not in the door: whoever waits there stays.
async fn end_session(client: &Client, id: i32, token: i64, holder: Option<&str>) -> Result<Option<bool>> {
    // A holder is 32 hexadecimal digits.
    let holder = holder.map_or_else(|| "null".to_owned(), |holder| format!("'{holder}'"));
    let sql = format!(
        "select from fencepost.lock where id = {id} for update;
         select pg_catalog.pg_terminate_backend(pid, 2000) as ended
         from (select fencepost.holder_of({id}, {token}, {holder}) as pid) as holding"
    );
    for _ in 0..ROW_TRIES {
        match client.simple_query(&sql).await {
            Ok(answers) => {
                let ended = answers.iter().find_map(|answer| match answer {
                    SimpleQueryMessage::Row(row) => row.try_get("ended").ok(),
                    _ => None,
                });
                return Ok(ended.flatten().map(|ended| ended == "t"));
            }
            Err(error) if is(&error, &SqlState::LOCK_NOT_AVAILABLE) => {}
            Err(error) => return Err(missing_rights(&error)),
        }
    }
    Err(unavailable("waiters stand in the way; nothing was changed").during("revoke the lease"))
}

impl fmt::Display for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

// It pushes no signals: a NOTIFY adds 4 % to an acquisition and its release, and lets commits that notify pass one by one only.
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
        self.in_time(self.look_at(name)).await
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        self.in_time(self.look_at_all(prefix)).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        self.in_time(self.take_away(name, token, None, Some(reason))).await
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        self.in_time(self.raise(name, to)).await
    }

    async fn renew(&self, _: &Handover, _: Duration) -> Result<Renewal> {
        let what = "a lock there ends with the session of its holder";
        Err(Error::new(ErrorKind::Unsupported, "renew the lease", what))
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        let holder = handover.holder.to_string();
        match self.in_time(self.take_away(&handover.lock, handover.token, Some(&holder), None)).await? {
            Revoked::Done => Ok(()),
            Revoked::NotCurrent => {
                Err(Error::lost(LossReason::Expired, "it is not held any more").during("release the lock"))
            }
        }
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        self.in_time(self.read_logbook(name)).await
    }

    async fn examine(&self) -> Result<Examination> {
        examine_locks(self.server.clock(), self.server.endpoint(), self.server.options()).await
    }
}
