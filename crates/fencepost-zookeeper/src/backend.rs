//! The backend of one ensemble: acquiring, looking, lifting, revoking.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Assured, Backend, BackendUrl, Claim, Clock, Error, ErrorKind, Examination, Expiry,
    FencingToken, Handover, LockName, LockState, Loss, Mode, NamePrefix, Profile, Renewal, Result, Revoked,
    Scope, Timing, Tokens, Waiting, until,
};
use futures_util::stream::BoxStream;

use crate::claim::Detail;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::ensemble::Ensemble;
use crate::failure::{gone, lost_touch, refused, unavailable};
use crate::look::{holders, look_at, look_at_all, standing, token_of};
use crate::offset;
use crate::protocol::{Code, Request, Stay};
use crate::record::{LockRecord, PlaceRecord, Revocation};
use crate::seen::Seen;
use crate::{claim, logbook, nodes, queue, signals};

/// What one ensemble promises.
pub const PROFILE: Profile = Profile::weakest("zookeeper")
    .expiry(Expiry::AfterTtl)
    .tokens(Tokens::Durable)
    .waiting(Waiting::Queued)
    .loss(Loss::Pushed)
    .scope(Scope::Cluster)
    .timing(Timing::Monotonic)
    .assured(Assured::Half)
    .outlives_sessions()
    .revocable()
    .rests()
    .shares()
    .keeps_logbook();

/// How long looking, lifting or revoking may take.
const ASK_MOST: Duration = Duration::from_secs(15);

/// How often something is tried again that others have come in the way of.
const TRIES: usize = 50;

/// How long a holder takes to write down its grant, and how often it is looked for.
const WRITTEN_DOWN_AFTER: Duration = Duration::from_millis(30);
const LOOKS_FOR_A_GRANT: usize = 10;

/// Locks on an ensemble.
#[derive(Clone, Debug)]
pub struct ZooKeeperBackend {
    ensemble: Ensemble,
    profile: Profile,
    shown: String,
}

impl ZooKeeperBackend {
    /// The backend of `zookeeper://`. Connects when it is first needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL or an option is wrong.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        let endpoint = Endpoint::of(url)?;
        let profile = PROFILE.longest_ttl(Some(endpoint.max_ttl));
        Ok(Self { ensemble: Ensemble::new(clock, endpoint), profile, shown: url.to_string() })
    }

    fn chroot(&self) -> &str {
        &self.ensemble.endpoint().chroot
    }

    fn now_micros(&self) -> u64 {
        self.ensemble.clock().wall_micros()
    }

    /// The outcome of what takes a few requests on a connection. One that was idle may turn out to be broken; then there is another try.
    async fn ask<T, F>(&self, asking: impl Fn(Connection) -> F + Send + Sync) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let clock = self.ensemble.clock();
        let used = self.ensemble.any_session();
        let asked = async {
            let connection = used.session.connection().await?;
            match Box::pin(asking(connection.clone())).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && !connection.is_open() => {
                    Box::pin(asking(used.session.connection().await?)).await
                }
                outcome => outcome,
            }
        };
        let outcome = until(clock, Some(clock.now().after(ASK_MOST)), Box::pin(asked)).await;
        let silent = || Err(unavailable(format!("the ensemble has not answered for {ASK_MOST:?}")));
        match outcome.unwrap_or_else(silent) {
            // It was not a lease that was lost, but the session of an onlooker.
            Err(error) if error.kind() == ErrorKind::Lost && error.operation() != GIVE_BACK => {
                Err(unavailable(error.to_string()))
            }
            outcome => outcome,
        }
    }

    async fn take_away(
        &self,
        connection: &Connection,
        name: &LockName,
        token: FencingToken,
        reason: &str,
    ) -> Result<Revoked> {
        let lock = nodes::lock(self.chroot(), name);
        for _ in 0..TRIES {
            let Some(seen) = Seen::anew(connection, &lock).await? else { return Ok(Revoked::NotCurrent) };
            let queue = standing(connection, &lock, &seen).await?;
            let holders = holders(&seen, &queue, self.now_micros());
            let of_token = holders.into_iter().find(|holder| token_of(&seen, holder) == Some(token));
            let Some(holder) = of_token else { return Ok(Revoked::NotCurrent) };
            let node = holder.place.node.clone();
            let path = format!("{lock}/{node}");
            let revoked = Some(Revocation { node, reason: reason.to_owned() });
            let record = LockRecord { revoked, ..seen.record };
            // All of it or nothing: a newer holder is never hit, and the one that is meant finds the reason.
            let change = [
                Request::delete(&path, holder.stat.version),
                Request::set_data(&lock, &record.bytes(), seen.version),
            ];
            if carried_out(connection, &change).await? {
                return Ok(Revoked::Done);
            }
        }
        Err(in_the_way().during("revoke the lease"))
    }

    async fn raise(&self, connection: &Connection, name: &LockName, to: FencingToken) -> Result<()> {
        let lock = nodes::lock(self.chroot(), name);
        for attempt in 0..TRIES {
            let Some(seen) = Seen::anew(connection, &lock).await? else {
                self.make(connection, &lock, name).await?;
                continue;
            };
            let queue = standing(connection, &lock, &seen).await?;
            let holders = holders(&seen, &queue, self.now_micros());
            // Its token is that of the present offset, until it has written it down.
            if holders.iter().any(|holder| holder.record.granted.is_none()) && attempt < LOOKS_FOR_A_GRANT {
                self.ensemble.clock().sleep(WRITTEN_DOWN_AFTER).await;
                continue;
            }
            // Whoever comes next has its place already, or gets one that is made after all that the server has seen.
            let next = queue.iter().find(|next| !holders.iter().any(|holder| holder.place == next.place));
            let needed = offset::reaching(to, next.map_or(seen.last, |next| next.stat.made_by));
            let offset = seen.record.offset;
            if offset.is_some_and(|offset| offset >= needed) {
                return Ok(());
            }
            let sharing = holders.first().filter(|first| first.place.mode == Mode::Shared);
            let beyond = sharing.and_then(|first| offset::beyond(&seen, first.stat.made_by));
            let first = queue.first().map(|first| format!("{lock}/{}", first.place.node));
            let record = LockRecord { offset: offset.max(Some(needed)).max(beyond), ..seen.record };
            let mut change: Vec<Request> = first.iter().map(|first| Request::check(first, -1)).collect();
            change.push(Request::set_data(&lock, &record.bytes(), seen.version));
            if carried_out(connection, &change).await? {
                return Ok(());
            }
        }
        Err(in_the_way().during("lift the token"))
    }

    /// Makes the node of a lock that nobody has ever asked for.
    async fn make(&self, connection: &Connection, lock: &str, name: &LockName) -> Result<()> {
        let root = queue::prepare_root(connection, &self.ensemble).await?;
        let record = LockRecord { name: Some(name.clone()), offset: root.offset, ..LockRecord::default() };
        let access = self.ensemble.endpoint().access;
        let answer = connection.call(&Request::create(lock, &record.bytes(), access, Stay::Persistent)).await;
        match answer.map_err(|broken| lost_touch(&broken))?.code {
            Code::OK | Code::NODE_EXISTS => Ok(()),
            code => Err(refused(code)),
        }
    }

    async fn give_back_on(&self, connection: &Connection, handover: &Handover) -> Result<()> {
        let detail = Detail::read(handover)?;
        let lock = nodes::lock(self.chroot(), &handover.lock);
        let path = format!("{lock}/{}", detail.node);
        // A member that lags may not have heard of the place yet.
        let (synced, answer) = {
            let mut batch = connection.batch();
            (batch.call(&Request::sync(&path)), batch.call(&Request::data(&path, false)))
        };
        synced.await.map_err(|broken| lost_touch(&broken))?;
        let answer = answer.await.map_err(|broken| lost_touch(&broken))?;
        let (bytes, stat) = match answer.code {
            Code::OK => answer.data().map_err(crate::failure::garbled)?,
            Code::NO_NODE => return Err(gone(None).during(GIVE_BACK)),
            code => return Err(refused(code)),
        };
        if !detail.is_of(stat.made_by) {
            return Err(gone(None).during(GIVE_BACK));
        }
        let rest = PlaceRecord::read(&bytes).rest(handover.token, self.now_micros());
        let clock = self.ensemble.clock();
        let was_held = claim::release(connection, &lock, &detail.node, rest.as_ref(), clock).await?;
        if was_held { Ok(()) } else { Err(gone(None).during(GIVE_BACK)) }
    }
}

/// What a lease is given back during.
const GIVE_BACK: &str = "release the lock";

async fn carried_out(connection: &Connection, change: &[Request]) -> Result<bool> {
    let answer = connection.call(&Request::all(change)).await.map_err(|broken| {
        if broken.was_sent {
            let what = format!("{}; the ensemble may have done it", broken.why);
            Error::new(ErrorKind::Indeterminate, "use the ensemble", what)
        } else {
            lost_touch(&broken)
        }
    })?;
    offset::is_done(&answer)
}

fn in_the_way() -> Error {
    unavailable("others change the lock all the time; nothing was changed")
}

impl fmt::Display for ZooKeeperBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[async_trait]
impl Backend for ZooKeeperBackend {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Clock {
        self.ensemble.clock()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        Ok(Box::new(queue::acquire(&self.ensemble, request).await?))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.ask(async |connection| look_at(&connection, self.chroot(), name, self.now_micros()).await).await
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let now = self.now_micros();
        self.ask(async |connection| look_at_all(&connection, self.chroot(), prefix, now).await).await
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        self.ask(async |connection| self.take_away(&connection, name, token, reason).await).await
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        self.ask(async |connection| self.raise(&connection, name, to).await).await
    }

    async fn renew(&self, _: &Handover, _: Duration) -> Result<Renewal> {
        let what = "a lock there ends with the session of its holder";
        Err(Error::new(ErrorKind::Unsupported, "renew the lease", what))
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        self.ask(async |connection| self.give_back_on(&connection, handover).await).await
    }

    async fn logbook(&self, name: &LockName) -> Result<Option<Vec<u8>>> {
        let lock = nodes::lock(self.chroot(), name);
        let endpoint = self.ensemble.endpoint();
        self.ask(async |connection| logbook::read(&connection, endpoint, &lock).await).await
    }

    async fn signals(&self, prefix: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        signals::signals(&self.ensemble, prefix).await
    }

    async fn examine(&self) -> Result<Examination> {
        crate::examine::examine(&self.ensemble).await
    }
}
