//! The backend of one Redis: acquiring, looking, lifting, revoking.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Connections, Error, ErrorKind, Examination, Expiry,
    FencingToken, Handover, LockName, LockState, Loss, Mode, NamePrefix, Profile, Renewal, Result, Revoked,
    Scope, Status, Timing, Waiting,
};
use futures_util::stream::BoxStream;

use crate::claim;
use crate::endpoint::{Endpoint, Options};
use crate::examine::examine;
use crate::failure::{lost_touch, refuse, unexpected};
use crate::keys::LockKey;
use crate::look::{BATCH, look, names};
use crate::queue;
use crate::quorum::GREATEST_TOKEN;
use crate::resp::Reply;
use crate::script::{self, Script};
use crate::server::Server;
use crate::signals::signals;

/// What one Redis promises.
pub const PROFILE: Profile = Profile::weakest("redis")
    .expiry(Expiry::AfterTtl)
    .waiting(Waiting::Queued)
    .loss(Loss::Pushed)
    .scope(Scope::Server)
    .timing(Timing::WallClock)
    .outlives_sessions()
    .detachable()
    .quarantine(true)
    .revocable()
    .rests()
    .shares()
    .keeps_logbook()
    .costs(1, 1, Connections::OnePerProcess);

/// Locks on one Redis, wherever it is.
#[derive(Clone, Debug)]
pub struct RedisBackend {
    server: Server,
    endpoint: Endpoint,
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
        let endpoint = Endpoint::one(url)?;
        let server = Server::new(clock, endpoint.clone(), options);
        let connections =
            if options.replicas > 0 { Connections::TwoPerProcess } else { Connections::OnePerProcess };
        Ok(Self {
            server,
            endpoint,
            profile: PROFILE.longest_ttl(Some(options.max_ttl)).quarantine(options.has_quarantine).costs(
                1,
                1,
                connections,
            ),
            shown: url.to_string(),
        })
    }

    /// Runs a script that changes something.
    async fn change(
        &self,
        operation: &'static str,
        script: &'static Script,
        keys: &[&str],
        arguments: &[&str],
    ) -> Result<Reply> {
        let session = self.server.session().await?;
        match session.connection.run(script, keys, arguments).await {
            Ok(reply) => refuse(reply),
            Err(broken) if broken.was_sent => {
                let what = format!("{}; the server may have done it", broken.why);
                Err(Error::new(ErrorKind::Indeterminate, operation, what))
            }
            Err(broken) => Err(lost_touch(&broken)),
        }
    }
}

/// The token below `to`, as the scripts are told it.
///
/// # Errors
/// `InvalidArgument` above the greatest token that Redis counts exactly.
pub(crate) fn below(to: FencingToken, name: &LockName) -> Result<String> {
    if to.get() > GREATEST_TOKEN {
        let what = format!("{to} is above 2^53-1, the greatest token that Redis counts exactly");
        return Err(Error::new(ErrorKind::InvalidArgument, "lift the token", what).on(name));
    }
    Ok((to.get() - 1).to_string())
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
        let seen = look(&self.server, &session, std::slice::from_ref(name)).await?;
        Ok(seen.into_iter().next().unwrap_or_else(|| LockState::free(name.clone())))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let session = self.server.session().await?;
        let mut states = Vec::new();
        for names in names(&session, prefix).await?.chunks(BATCH) {
            states.extend(look(&self.server, &session, names).await?);
        }
        states.retain(|state| matches!(state.status, Status::Held | Status::Resting));
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        let for_long = self.server.options().max_ttl.as_millis().to_string();
        let reply = self
            .change(
                "revoke the lease",
                &script::REVOKE,
                &[&LockKey::of(name)],
                &[&token.to_string(), reason, &for_long],
            )
            .await?;
        Ok(if reply == Reply::Integer(1) { Revoked::Done } else { Revoked::NotCurrent })
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        let below = below(to, name)?;
        self.change("lift the token", &script::LIFT, &[&LockKey::of(name)], &[&below]).await.map(drop)
    }

    async fn renew(&self, handover: &Handover, ttl: Duration) -> Result<Renewal> {
        let session = self.server.session().await?;
        claim::renew(&self.server, &session, handover, ttl).await
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        // What the process that is gone has sent may still be on its way.
        claim::release(&self.server, &LockKey::of(&handover.lock), handover, Mode::Exclusive, true).await
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        let session = self.server.session().await?;
        let reply = session.connection.call(&[b"GET", LockKey::of(name).logbook().as_bytes()]).await;
        match reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)? {
            Reply::Null => Ok(None),
            Reply::Text(content) => Ok(Some(content)),
            reply => Err(unexpected("GET", &reply)),
        }
    }

    /// On a connection of its own. A lease that runs out without a release is signalled late, when the server removes it.
    async fn signals(&self, _: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        signals(&self.server).await
    }

    async fn examine(&self) -> Result<Examination> {
        examine(self.server.clock(), &self.endpoint, self.server.options()).await
    }
}
