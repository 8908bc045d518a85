//! Acquiring a lock: entering the queue, waiting for one's turn, and leaving nothing behind.
//!
//! Whoever waits watches the last key that it waits for and no other, so a release wakes one, or all readers that waited for a
//! writer. Invariant: a wait by itself never yields
//! a lease. What it yields is confirmed by a majority, which sees the own key alive and nobody before it: a reader no writer.

use std::pin::pin;
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Cadence, Clock, Deadline, Error, ErrorKind, FencingToken, Grant, Moment, Result, Wait,
    default_grace, until,
};
use futures_channel::oneshot;

use crate::claim::EtcdClaim;
use crate::crowd::Presence;
use crate::failure::unavailable;
use crate::keys::Keys;
use crate::members::{Failed, Patience};
use crate::record::Record;
use crate::server::{FOR_A_WHILE, ONCE, Server};
use crate::session::{Session, changing, is_lost};
use crate::stand::{Ahead, Entered, Entry, Seen, Stand};
use crate::watch::{Heard, Watch};

/// How long the first try may take, also where less is left to wait.
const ONE_TRY_MOST: Duration = Duration::from_secs(1);

/// How long a doubtful attempt is ended before its caller is told that nothing is certain.
const CANCEL_MOST: Duration = Duration::from_millis(500);

/// The pause before a watch that has ended is begun anew, and as much again at random.
const WATCH_PAUSE: Duration = Duration::from_millis(25);

/// How old the term of a lease may be that was waited for, as a share of its ttl.
const WHOLE_SHARE: u32 = 4;

/// How often one attempt may find its lease gone, or its place.
const MOST_LOSSES: usize = 20;

/// Acquires the lock as the request says.
///
/// # Cancel safety
/// Dropping it ends the session of the attempt on the server, in the background.
///
/// # Errors
/// `Contended` when it is held and the wait is over; `Indeterminate` when the server may have granted it and cannot be reached;
/// `Unavailable` when it cannot be reached.
pub(crate) async fn acquire(server: &Server, request: &AcquireRequest) -> Result<EtcdClaim> {
    let clock = server.clock();
    let now = clock.now();
    let mut attempt = Attempt::new(server, request);
    let give_up_at = attempt.give_up_at.map(|at| at.max(now.after(ONE_TRY_MOST)));
    let outcome = until(clock, give_up_at, Box::pin(attempt.run())).await;
    match outcome.unwrap_or_else(|| Err(attempt.out_of_time())) {
        Ok(claim) => Ok(claim),
        Err(error) => Err(attempt.give_up(error).await),
    }
}

/// One attempt to acquire one lock. Dropped before its end it ends its session.
struct Attempt<'a> {
    server: &'a Server,
    request: &'a AcquireRequest,
    keys: Keys,
    session: Option<Session>,
    /// What tells others of this process that the place is there.
    presence: Option<Presence>,
    /// When to wait no longer.
    give_up_at: Option<Moment>,
    was_reached: bool,
    /// Whether the session may have the lock without our knowing.
    is_in_doubt: bool,
    has_waited: bool,
}

impl<'a> Attempt<'a> {
    fn new(server: &'a Server, request: &'a AcquireRequest) -> Self {
        let keys = Keys::of(server.root(), &request.name);
        let (session, presence, was_reached, is_in_doubt, has_waited) = Default::default();
        let give_up_at = match request.wait {
            Wait::Until(at) => Some(at),
            Wait::No | Wait::Forever => None,
        };
        Self { server, request, keys, session, presence, give_up_at, was_reached, is_in_doubt, has_waited }
    }

    fn clock(&self) -> &'a Clock {
        self.server.clock()
    }

    fn waits(&self) -> bool {
        self.request.wait != Wait::No
    }

    /// A server that could be reached before is tried for a while.
    fn patience(&self) -> Patience {
        if self.was_reached && self.waits() { FOR_A_WHILE } else { ONCE }
    }

    async fn run(&mut self) -> Result<EtcdClaim> {
        for _ in 0..MOST_LOSSES {
            let Some((stand, seen)) = self.enter().await? else { continue };
            let stand = Box::new(stand);
            let Some((mut stand, seen)) = Box::pin(self.wait_for_turn(stand, seen)).await? else { continue };
            if let Some(token) = stand.settle(seen, self.patience()).await? {
                let session = self.session.take().ok_or_else(changing)?;
                let presence = self.presence.take().unwrap_or_else(|| self.server.crowd().enter(&stand));
                return Ok(self.claim(token, session, (*stand, presence)));
            }
            self.session = None;
        }
        Err(unavailable("its lease has ended again and again while it waited").during("acquire the lock"))
    }

    fn claim(&self, token: FencingToken, session: Session, stand: (Stand, Presence)) -> EtcdClaim {
        self.server.note_acquisition();
        let AcquireRequest { name, holder, at_least, .. } = self.request;
        let (ttl, counted_from) = (Some(session.ttl()), session.counted_from());
        let grant = Grant { name: name.clone(), holder: *holder, token, ttl, counted_from, slack: None };
        EtcdClaim::new(grant, session, stand, *at_least, self.has_waited)
    }

    /// Enters the queue; `None` where it is to be tried again.
    async fn enter(&mut self) -> Result<Option<(Stand, Seen)>> {
        let patience = self.patience();
        let session = Box::pin(self.server.session(self.request.ttl, patience)).await?;
        self.was_reached = true;
        let lease = session.id();
        self.session = Some(session);
        let mut if_free = !self.waits();
        loop {
            let (wall, before) = (self.clock().wall_micros(), self.is_in_doubt);
            let AcquireRequest { name, label, holder, .. } = self.request;
            let (name, label, holder) = (name.clone(), label.clone(), *holder);
            let record = Record { name, label, holder, since: wall, offset: 0, rests_until: None };
            self.is_in_doubt = true;
            let entering = Stand::enter(
                self.server,
                &self.keys,
                record,
                (self.request.mode, lease),
                if_free,
                self.patience(),
            );
            let Entered { entry, is_late } = match Box::pin(entering).await {
                Ok(entered) => entered,
                Err(failed) => {
                    self.note_late(failed.is_late);
                    self.is_in_doubt = before || failed.is_late;
                    return Err(failed.error());
                }
            };
            self.note_late(is_late);
            self.is_in_doubt = before || is_late;
            match entry {
                Entry::In(entered) => return self.entered(*entered, if_free).map(Some),
                Entry::Busy => {
                    self.leave_unused();
                    return Err(contended("it is held"));
                }
                Entry::Foreign => if_free = false,
                Entry::NoLease => {
                    self.session = None;
                    return Ok(None);
                }
            }
        }
    }

    fn entered(&mut self, entered: (Stand, Seen), was_free: bool) -> Result<(Stand, Seen)> {
        let is_behind = matches!(entered.1.ahead, Ahead::Somebody(_));
        // Behind foreign keys the queue was entered by somebody who does not wait.
        if is_behind && !self.waits() && !was_free {
            return Err(contended("it is held"));
        }
        self.is_in_doubt |= !is_behind;
        self.presence = Some(self.server.crowd().enter(&entered.0));
        Ok(entered)
    }

    /// The session has no key and will have none, so it is left to the next one.
    fn leave_unused(&mut self) {
        if let Some(session) = self.session.take() {
            session.keep();
        }
    }

    fn note_late(&mut self, is_late: bool) {
        if let Some(session) = &mut self.session {
            session.note_late(is_late);
        }
    }

    /// Waits until nobody is ahead; `None` where the place is gone, and with it the session.
    async fn wait_for_turn(
        &mut self,
        stand: Box<Stand>,
        mut seen: Seen,
    ) -> Result<Option<(Box<Stand>, Seen)>> {
        loop {
            let next = match seen.ahead {
                Ahead::Nobody if self.is_whole() => return Ok(Some((stand, seen))),
                Ahead::Nobody => self.renew(&stand).await?,
                Ahead::Unknown => self.look(&stand).await?,
                Ahead::Somebody(_) if !self.waits() => return Err(contended("it is held")),
                Ahead::Somebody(ref place) => {
                    self.has_waited = true;
                    let (key, created) = (place.key.clone(), place.created);
                    self.wait_behind(&stand, &key, created).await?
                }
            };
            let Some(next) = next else {
                // Another one has the next place, at the end of the queue.
                self.session = None;
                self.is_in_doubt = false;
                return Ok(None);
            };
            seen = next;
        }
    }

    /// Whether enough of the lease is left to begin with.
    fn is_whole(&self) -> bool {
        let now = self.clock().now();
        let session = self.session.as_ref();
        session.is_some_and(|session| now.since(session.counted_from()) <= session.ttl() / WHOLE_SHARE)
    }

    /// Waits until the key right ahead is gone or another one is, and looks again.
    async fn wait_behind(&mut self, stand: &Stand, key: &[u8], created: i64) -> Result<Option<Seen>> {
        let ahead = String::from_utf8_lossy(key);
        if let Some(told) = self.server.crowd().stand_behind(&ahead, created, stand) {
            return self.wait_to_be_told(stand, told, created).await;
        }
        let mut watch = self.watch(key).await;
        // It hears everything by now; what happened before is seen by looking.
        let mut seen = self.look(stand).await?;
        while is_behind(seen.as_ref(), created) {
            let renew_at = self.renew_at();
            let Some(watching) = &mut watch else {
                self.pause().await;
                self.may_wait()?;
                return self.renew_if_due(stand, renew_at).await;
            };
            let end = self.give_up_at.map_or(renew_at, |at| at.min(renew_at));
            match until(self.clock(), Some(end), watching.next()).await {
                Some(Some(Heard::Begun)) => {}
                Some(Some(Heard::Changed)) => return self.look(stand).await,
                Some(None) => watch = None,
                None => {
                    self.may_wait()?;
                    seen = self.renew(stand).await?;
                }
            }
        }
        Ok(seen)
    }

    /// Waits until somebody of this process, who is right ahead, has left or is not there any more.
    async fn wait_to_be_told(
        &mut self,
        stand: &Stand,
        mut told: oneshot::Receiver<Option<Seen>>,
        created: i64,
    ) -> Result<Option<Seen>> {
        loop {
            let renew_at = self.renew_at();
            let end = self.give_up_at.map_or(renew_at, |at| at.min(renew_at));
            match until(self.clock(), Some(end), &mut told).await {
                Some(Ok(Some(seen))) => {
                    self.note(Some(&seen));
                    return Ok(Some(seen));
                }
                Some(_) => return self.look(stand).await,
                None => {
                    self.may_wait()?;
                    let seen = self.renew(stand).await?;
                    if !is_behind(seen.as_ref(), created) {
                        return Ok(seen);
                    }
                }
            }
        }
    }

    /// Whether there is time left to wait.
    fn may_wait(&self) -> Result<()> {
        let is_over = self.give_up_at.is_some_and(|at| self.clock().now() >= at);
        if is_over { Err(self.out_of_time()) } else { Ok(()) }
    }

    /// A watch that has begun; `None` where there is none for the moment.
    async fn watch(&self, key: &[u8]) -> Option<Watch> {
        let begin = async {
            let mut watch = self.server.members().watch(key, 0).await.ok()?;
            (watch.next().await == Some(Heard::Begun)).then_some(watch)
        };
        let most = self.clock().now().after(self.patience().each);
        until(self.clock(), Some(most), begin).await.flatten()
    }

    async fn pause(&self) {
        self.clock().sleep(WATCH_PAUSE + self.clock().jitter(WATCH_PAUSE)).await;
    }

    fn renew_at(&self) -> Moment {
        self.session.as_ref().map_or_else(
            || self.clock().now(),
            |session| {
                let ttl = session.ttl();
                Cadence::new(ttl, default_grace(ttl)).next(session.counted_from())
            },
        )
    }

    async fn renew_if_due(&mut self, stand: &Stand, at: Moment) -> Result<Option<Seen>> {
        if self.clock().now() >= at { self.renew(stand).await } else { self.look(stand).await }
    }

    async fn look(&mut self, stand: &Stand) -> Result<Option<Seen>> {
        let outcome = Box::pin(stand.look(self.patience())).await.map_err(Failed::error)?.0;
        self.note(outcome.as_ref());
        Ok(outcome)
    }

    /// Where nobody is ahead, the session has the lock.
    fn note(&mut self, seen: Option<&Seen>) {
        self.is_in_doubt = seen.is_some_and(|seen| seen.ahead == Ahead::Nobody);
    }

    /// Renews the session, and looks; a term counts only if the same leader is still in office.
    async fn renew(&mut self, stand: &Stand) -> Result<Option<Seen>> {
        for _ in 0..=self.server.members().count() {
            let Some(session) = &mut self.session else { return Ok(None) };
            let ends = Deadline::of(session.counted_from(), Some(session.ttl()));
            let patience = session.patience();
            let kept =
                match Box::pin(session.keep_alive(Patience { most: FOR_A_WHILE.most, ..patience })).await {
                    Ok(kept) => kept,
                    Err(error) if is_lost(&error) => return Ok(None),
                    Err(_) if ends.passed(self.server.clock().now()) => return Ok(None),
                    Err(error) => return Err(error),
                };
            let (seen, raft_term) = Box::pin(stand.look(FOR_A_WHILE)).await.map_err(Failed::error)?;
            if session.confirm(kept, raft_term).is_some() || seen.is_none() {
                self.note(seen.as_ref());
                return Ok(seen);
            }
        }
        Err(changing())
    }

    fn out_of_time(&self) -> Error {
        if self.has_waited {
            return contended("it was held all the time");
        }
        unavailable("etcd has not answered in time")
    }

    /// Ends an attempt that has come to nothing. Where it may hold the lock, its caller hears whether that is certain.
    async fn give_up(mut self, error: Error) -> Error {
        let Some(session) = self.session.take() else { return error };
        if !self.is_in_doubt {
            return error;
        }
        let mut ending = pin!(session.end());
        let soon = Some(self.clock().now().after(CANCEL_MOST));
        match until(self.clock(), soon, ending.as_mut()).await {
            Some(()) => error,
            None => in_doubt(&error),
        }
    }
}

/// Whether the place that was made by that revision is still right ahead.
fn is_behind(seen: Option<&Seen>, created: i64) -> bool {
    seen.is_some_and(|seen| matches!(&seen.ahead, Ahead::Somebody(place) if place.created == created))
}

fn in_doubt(error: &Error) -> Error {
    let what = format!("{error}; etcd may have granted it");
    Error::new(ErrorKind::Indeterminate, "acquire the lock", what)
        .hint("it is given back as soon as etcd can be reached, and ends with its ttl at the latest")
}

fn contended(what: &str) -> Error {
    Error::new(ErrorKind::Contended, "acquire the lock", what)
}
