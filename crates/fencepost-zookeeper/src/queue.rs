//! Acquiring a lock: taking a place in its queue, waiting for the one before, and leaving nothing behind.
//!
//! Each waiter watches the last one in its way alone, or is told by it where that is one of its own session, so a release wakes one of
//! them, or all who share the lock then. Invariant: a place is never made while an earlier one of the same attempt may be there, and a lease
//! is handed out only with a term that the session's heartbeats have proved.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Clock, Error, ErrorKind, FencingToken, Grant, Mode, Moment, Renewal, Result, Wait, until,
};
use futures_util::FutureExt;

use crate::claim::ZooKeeperClaim;
use crate::connection::{Broken, Connection};
use crate::ensemble::Ensemble;
use crate::failure::{fine, gone, lost_touch, refused};
use crate::look::standing;
use crate::nodes::{self, Place};
use crate::offset::{self, Need};
use crate::protocol::{Answer, Code, Request, Stay};
use crate::record::{Granted, LockRecord, PlaceRecord};
use crate::seen::{Known, Look, Seen};
use crate::session::{Held, Session};
use crate::trace::Trace;

/// How long an ensemble that broke off is tried to be reached before a wait ends.
const RECONNECT_MOST: Duration = Duration::from_secs(5);

/// How long the first try may take, also where less is left to wait.
const ONE_TRY_MOST: Duration = Duration::from_secs(1);

/// How long a place that was given up is deleted before its caller is told how things stand.
const ERASE_MOST: Duration = Duration::from_millis(500);

/// Acquires the lock as the request says.
///
/// # Cancel safety
/// Dropping it deletes the attempt's place, in the background.
///
/// # Errors
/// `Contended` when it is held and the wait is over; `Indeterminate` when its place may be there and the ensemble cannot be reached;
/// `Unavailable` when it cannot be reached.
pub(crate) async fn acquire(ensemble: &Ensemble, request: &AcquireRequest) -> Result<ZooKeeperClaim> {
    let clock = ensemble.clock();
    let now = clock.now();
    let mut attempt = Attempt::new(ensemble, request);
    let patience = request.wait.give_up_at(now).filter(|_| request.wait != Wait::No);
    let give_up_at = patience.map(|at| at.max(now.after(ONE_TRY_MOST)));
    let outcome = until(clock, give_up_at, Box::pin(attempt.run())).await;
    match outcome.unwrap_or_else(|| Err(attempt.standing.out_of_time())) {
        Ok(claim) => Ok(claim),
        Err(error) => {
            let soon = Some(clock.now().after(ERASE_MOST));
            let is_clean = until(clock, soon, Box::pin(attempt.trace.erase())).await.is_some();
            Err(if is_clean { error } else { in_doubt(&error) })
        }
    }
}

fn in_doubt(error: &Error) -> Error {
    let what = format!("{error}; the ensemble may have granted it");
    Error::new(ErrorKind::Indeterminate, "acquire the lock", what).hint(
        "it is given back as soon as the ensemble can be reached, and ends with the session at the latest",
    )
}

/// How the attempt stands when its time is over.
#[derive(Clone, Copy)]
enum Standing {
    Unreached,
    Held,
    Resting,
}

impl Standing {
    fn out_of_time(self) -> Error {
        match self {
            Self::Unreached => crate::failure::unavailable("the ensemble has not answered in time"),
            Self::Held => contended("it was held all the time"),
            Self::Resting => contended("it rests, as its last holder asked"),
        }
    }
}

fn contended(what: &str) -> Error {
    Error::new(ErrorKind::Contended, "acquire the lock", what)
}

/// One attempt to acquire one lock. Dropped before its end it deletes its place.
struct Attempt<'a> {
    ensemble: &'a Ensemble,
    request: &'a AcquireRequest,
    began_micros: u64,
    standing: Standing,
    trace: Trace,
    /// Since when the ensemble cannot be reached that could be before.
    in_trouble_since: Option<Moment>,
    was_reached: bool,
}

/// Where the attempt stands in the queue.
enum Position<'a> {
    /// Nobody is in its way.
    Free,
    Behind(&'a Place),
    Nowhere,
}

impl<'a> Attempt<'a> {
    fn new(ensemble: &'a Ensemble, request: &'a AcquireRequest) -> Self {
        Self {
            ensemble,
            request,
            began_micros: ensemble.clock().wall_micros(),
            standing: Standing::Unreached,
            trace: trace(ensemble, request),
            in_trouble_since: None,
            was_reached: false,
        }
    }

    fn clock(&self) -> &'a Clock {
        self.ensemble.clock()
    }

    async fn run(&mut self) -> Result<ZooKeeperClaim> {
        loop {
            match self.try_once().await {
                Err(error) if error.kind() == ErrorKind::Unavailable && self.was_reached => {
                    let now = self.clock().now();
                    let since = *self.in_trouble_since.get_or_insert(now);
                    if now.since(since) >= RECONNECT_MOST {
                        return Err(error);
                    }
                }
                // The session has ended, or the place was deleted: the next one is at the end of the queue.
                Err(error) if error.kind() == ErrorKind::Lost => {}
                outcome => return outcome,
            }
        }
    }

    /// Goes as far as one connection leads.
    async fn try_once(&mut self) -> Result<ZooKeeperClaim> {
        if self.trace.used.session.has_ended() {
            // What was made in that session is gone or will be soon, and is no place of ours.
            self.trace = trace(self.ensemble, self.request);
        }
        let connection = self.trace.used.session.connection().await?;
        self.was_reached = true;
        self.trace.made().await?;
        self.trace.recover(&connection).await?;
        if self.request.wait == Wait::No && self.trace.stand.is_none() {
            self.peek(&connection).await?;
        }
        let mut seen = self.stand(&connection).await?;
        loop {
            self.in_trouble_since = None;
            let next = match self.position(&seen) {
                Position::Nowhere => {
                    self.trace.stand = None;
                    return Err(gone(None));
                }
                Position::Free => match self.granted(&connection, &seen).await? {
                    Some(claim) => return Ok(claim),
                    None => None,
                },
                Position::Behind(place) => self.wait_for(&connection, place).await?,
            };
            seen = match next {
                Some(seen) => seen,
                None => self.look(&connection).await?,
            };
        }
    }

    async fn look(&self, connection: &Connection) -> Result<Seen> {
        let lock = self.trace.lock();
        let known = self.known(connection, lock);
        let under_way = Look::begin_with(&mut connection.batch(), lock, known);
        self.seen(under_way, connection, lock).await?.ok_or_else(|| gone(None))
    }

    /// What is known of the record of a lock, or what the watch is called that it is to be read behind.
    fn known(&self, connection: &Connection, lock: &str) -> std::result::Result<Known, u64> {
        let session = &self.trace.used.session;
        session.known(connection, lock).ok_or_else(|| session.watch_over(lock))
    }

    /// The end of a look, which is remembered.
    async fn seen(&self, under_way: Look, connection: &Connection, lock: &str) -> Result<Option<Seen>> {
        let seen = under_way.end(connection, lock).await?;
        if let Some(seen) = &seen {
            if nodes::is_used_up(&seen.queue) {
                return Err(used_up(lock));
            }
            if let Some(vigil) = seen.vigil {
                self.trace.used.session.has_read(connection, lock, vigil, seen.known());
            }
        }
        Ok(seen)
    }

    /// Refuses without a trace in the queue what is held.
    async fn peek(&mut self, connection: &Connection) -> Result<()> {
        let Some(seen) = Seen::anew(connection, self.trace.lock()).await? else { return Ok(()) };
        if seen.rest(self.clock().wall_micros()).is_some() {
            return Err(Standing::Resting.out_of_time());
        }
        let is_in_the_way = |place: &Place| (place.mode, self.request.mode) != (Mode::Shared, Mode::Shared);
        if seen.queue.iter().any(is_in_the_way) { Err(contended("somebody else holds it")) } else { Ok(()) }
    }

    /// Takes a place in the queue, where there is none yet, and looks at it.
    async fn stand(&mut self, connection: &Connection) -> Result<Seen> {
        if self.trace.stand.is_some() {
            return self.look(connection).await;
        }
        if let Some(seen) = self.make(connection, None).await? {
            return Ok(seen);
        }
        let lock = self.prepare(connection).await?;
        self.make(connection, Some(&lock)).await?.ok_or_else(|| gone(None))
    }

    /// Makes the place, in a node for the lock that is made first if there is to be one; `None` where that node is missing. All is
    /// sent at once.
    async fn make(&mut self, connection: &Connection, lock: Option<&LockRecord>) -> Result<Option<Seen>> {
        let access = self.ensemble.endpoint().access;
        let stem = self.trace.stem().to_owned();
        let record = self.place_record(None).bytes();
        let path = self.trace.lock().to_owned();
        let is_quiet = lock.is_none() && self.trace.used.session.is_quiet(connection, &path);
        let known = if is_quiet { None } else { Some(self.known(connection, &path)) };
        let (beginning, under_way) = {
            let mut batch = connection.batch();
            let create = |lock: &LockRecord| Request::create(&path, &lock.bytes(), access, Stay::Persistent);
            let beginning = lock.map(|lock| batch.call(&create(lock)));
            let making = batch.call(&Request::create(&stem, &record, access, Stay::SessionInOrder));
            self.trace.is_being_made(making);
            (beginning, known.map(|known| Look::begin_with(&mut batch, &path, known)))
        };
        match self.trace.made().await? {
            Some(Code::OK) => match (self.seen_at_once(connection), under_way) {
                (Some(seen), None) => Ok(Some(seen)),
                (None, None) => self.look(connection).await.map(Some),
                (_, Some(under_way)) => self.seen(under_way, connection, &path).await,
            },
            Some(Code::NO_NODE) => match beginning {
                // One that is there already is as good; one that cannot be made is not there the next time either.
                Some(beginning) => fine_or_there(beginning.await).map(|()| None),
                None => Ok(None),
            },
            Some(code) => Err(refused(code)),
            None => Err(gone(None)),
        }
    }

    /// What a look would show of those before the place, where that is known since it was made.
    fn seen_at_once(&self, connection: &Connection) -> Option<Seen> {
        let stand = self.trace.stand.as_ref()?;
        let place = Place::of(stand.node())?;
        let (known, before) = self.trace.used.session.followed(connection, self.trace.lock(), &place)?;
        let queue: Vec<Place> = before.into_iter().chain([place]).collect();
        (!nodes::is_used_up(&queue)).then(|| known.seen_with(queue, stand.stat.made_by))
    }

    /// Makes what the node of the lock is below of. What is to be in that node.
    async fn prepare(&self, connection: &Connection) -> Result<LockRecord> {
        let root = prepare_root(connection, self.ensemble).await?;
        Ok(LockRecord { name: Some(self.request.name.clone()), offset: root.offset, ..LockRecord::default() })
    }

    fn position<'s>(&self, seen: &'s Seen) -> Position<'s> {
        let own = self.trace.stand.as_ref();
        let index = own.and_then(|own| seen.queue.iter().position(|place| place.node == own.node()));
        let Some(index) = index else { return Position::Nowhere };
        nodes::in_the_way_of(&seen.queue, index).map_or(Position::Free, Position::Behind)
    }

    /// Waits until something becomes of the place that is in the way. What is seen then, where that is known without a look.
    async fn wait_for(&mut self, connection: &Connection, place: &Place) -> Result<Option<Seen>> {
        self.standing = Standing::Held;
        if self.request.wait == Wait::No {
            return Err(contended("somebody else holds it"));
        }
        let path = self.trace.path(&place.node);
        let own = self.trace.stand.as_ref().map(|own| Arc::clone(own.path()));
        if let Some(told) = own.and_then(|own| self.trace.used.session.stand_behind(connection, &path, own)) {
            let told = self.in_time(told).await?;
            return Ok(told.ok().and_then(|last| self.first(connection, last)));
        }
        let heard = self.trace.used.session.listen(&path);
        let answer = connection.call(&Request::data(&path, true)).await;
        let answer = answer.map_err(|broken| lost_touch(&broken))?;
        self.trace.used.session.heed(&answer);
        match answer.code {
            Code::OK => {}
            Code::NO_NODE => {
                self.trace.used.session.forget(&path);
                return Ok(None);
            }
            code => return Err(refused(code)),
        }
        match self.in_time(heard).await? {
            Ok(()) => Ok(None),
            Err(_) => Err(crate::failure::unavailable("the connection broke")),
        }
    }

    /// What is heard before the wait is over.
    async fn in_time<T>(&self, heard: impl Future<Output = T>) -> Result<T> {
        let clock = self.clock();
        let heard = until(clock, self.request.wait.give_up_at(clock.now()), std::pin::pin!(heard)).await;
        heard.ok_or_else(|| self.standing.out_of_time())
    }

    /// What a look would show of the place, before which there was nobody when the server had seen the transaction `last`.
    fn first(&self, connection: &Connection, last: i64) -> Option<Seen> {
        let place = Place::of(self.trace.stand.as_ref()?.node())?;
        let known = self.trace.used.session.known(connection, self.trace.lock())?;
        Some(known.seen_with(vec![place], last))
    }

    /// The lease, where nobody is in the way; `None` where it is to look again.
    async fn granted(&mut self, connection: &Connection, seen: &Seen) -> Result<Option<ZooKeeperClaim>> {
        let now = self.clock().wall_micros();
        if let Some(rest) = seen.rest(now) {
            let left = Duration::from_micros(rest.until_micros - now);
            return self.sit_out(left).await.map(|()| None);
        }
        let session = self.trace.used.session.clone();
        let Some(term) = session.term_at_once() else {
            return self.wait_for_a_term(session).await.map(|()| None);
        };
        let Some(stand) = &self.trace.stand else { return Ok(None) };
        let (path, made_by) = (Arc::clone(stand.path()), stand.stat.made_by);
        let Some(token) = self.token(connection, seen, &path, made_by).await? else { return Ok(None) };
        let Renewal { ttl, counted_from } = term;
        let (name, holder) = (self.request.name.clone(), self.request.holder);
        let grant = Grant { name, holder, token, ttl, counted_from, slack: None };
        Ok(self.claim(grant, path, seen.lock_made_by()))
    }

    /// Waits until heartbeats prove a term. Much may have happened until there is one.
    async fn wait_for_a_term(&mut self, session: Session) -> Result<()> {
        let (clock, now) = (self.clock(), self.clock().now());
        self.in_trouble_since = Some(now);
        let term = until(clock, Some(now.after(RECONNECT_MOST)), Box::pin(session.term())).await;
        let unproved = || Err(crate::failure::unavailable("the ensemble commits no heartbeat"));
        term.unwrap_or_else(unproved).map(drop)
    }

    /// The token of the place, with the offset of the lock, which is raised first if need be.
    async fn token(
        &self,
        connection: &Connection,
        seen: &Seen,
        path: &str,
        made_by: i64,
    ) -> Result<Option<FencingToken>> {
        if let Some(token) = offset::token(&seen.record, made_by, self.clock()) {
            return Ok(Some(token));
        }
        let (endpoint, lock) = (self.ensemble.endpoint(), self.trace.lock());
        let least = match self.request.mode {
            Mode::Exclusive => None,
            // Others may hold it by the present offset, or be about to by the new one.
            Mode::Shared => {
                let queue = standing(connection, lock, seen).await?;
                queue.first().and_then(|first| offset::beyond(seen, first.stat.made_by))
            }
        };
        let need = Need { path, made_by, least };
        offset::raise(connection, endpoint, self.clock(), lock, seen, need).await
    }

    /// The claim takes over what the attempt has left in the queue.
    fn claim(&mut self, grant: Grant, path: Arc<str>, lock_made_by: i64) -> Option<ZooKeeperClaim> {
        let granted = Granted { token: grant.token, at_micros: self.granted_at_micros() };
        let (lost, gone) = futures_channel::oneshot::channel();
        let held =
            Held { record: self.place_record(Some(granted)).bytes(), counted_from: grant.counted_from, lost };
        if !self.trace.used.session.hold(path, held) {
            return None;
        }
        let rest = self.place_record(Some(granted)).rest(granted.token, granted.at_micros);
        Some(ZooKeeperClaim::new(self.trace.take(), grant, gone, rest, lock_made_by))
    }

    /// Where nobody was in the way, the place was made and granted at once.
    fn granted_at_micros(&self) -> u64 {
        let made_at = self.trace.stand.as_ref().and_then(|stand| u64::try_from(stand.stat.made_at_ms).ok());
        let at_once = made_at.filter(|_| matches!(self.standing, Standing::Unreached));
        at_once.map_or_else(|| self.clock().wall_micros(), |ms| ms.saturating_mul(1_000))
    }

    async fn sit_out(&mut self, left: Duration) -> Result<()> {
        self.standing = Standing::Resting;
        if self.request.wait == Wait::No {
            return Err(self.standing.out_of_time());
        }
        let clock = self.clock();
        let end = clock.now().after(left + Duration::from_millis(1));
        match self.request.wait.give_up_at(clock.now()) {
            Some(at) if at <= end => {
                clock.sleep_until(at).await;
                Err(self.standing.out_of_time())
            }
            _ => {
                clock.sleep_until(end).await;
                Ok(())
            }
        }
    }

    fn place_record(&self, granted: Option<Granted>) -> PlaceRecord {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        PlaceRecord {
            label: self.request.label.clone(),
            asked: self.began_micros,
            ttl_ms: ms(self.trace.used.session.timeout()),
            at_least_ms: self.request.at_least.map(ms),
            granted,
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.trace.is_clean() {
            erase_behind(self.trace.take());
        }
    }
}

/// Deletes what an attempt has left. The first request is on its way when this returns.
pub(crate) fn erase_behind(mut trace: Trace) {
    if trace.is_clean() {
        return;
    }
    let clock = trace.used.session.clock().clone();
    let mut erasing = Box::pin(async move { trace.erase().await });
    if erasing.as_mut().now_or_never().is_none() {
        clock.spawn(erasing);
    }
}

fn trace(ensemble: &Ensemble, request: &AcquireRequest) -> Trace {
    let lock = nodes::lock(&ensemble.endpoint().chroot, &request.name);
    let stem = nodes::stem(request.holder, request.mode);
    Trace::new(ensemble.session(request.ttl), format!("{lock}/{stem}"))
}

/// A node that was made, or was there.
fn fine_or_there(answer: Result<Answer, Broken>) -> Result<()> {
    match answer.map_err(|broken| lost_touch(&broken))?.code {
        Code::OK | Code::NODE_EXISTS => Ok(()),
        code => Err(refused(code)),
    }
}

/// ZooKeeper has counted to the end of its numbers below a lock, and orders nobody any more.
fn used_up(lock: &str) -> Error {
    let what = format!("ZooKeeper has no more numbers for the places below {lock}");
    Error::new(ErrorKind::Unexpected, "acquire the lock", what)
        .hint("delete that node while nobody holds the lock; tokens go on growing")
}

/// Makes the node that all locks are below of, and what that is below of. What is in it.
pub(crate) async fn prepare_root(connection: &Connection, ensemble: &Ensemble) -> Result<LockRecord> {
    let (root, access) = (nodes::root(&ensemble.endpoint().chroot), ensemble.endpoint().access);
    let (made, data) = {
        let mut batch = connection.batch();
        let paths = nodes::ancestry(&root);
        let made: Vec<_> =
            paths.map(|path| batch.call(&Request::create(path, b"", access, Stay::Persistent))).collect();
        (made, batch.call(&Request::data(&root, false)))
    };
    for made in made {
        let answer = made.await.map_err(|broken| lost_touch(&broken))?;
        if !matches!(answer.code, Code::OK | Code::NODE_EXISTS | Code::NO_AUTH) {
            return Err(refused(answer.code));
        }
    }
    let (bytes, _) = fine(data.await)?.data().map_err(crate::failure::garbled)?;
    Ok(LockRecord::read(&bytes))
}
