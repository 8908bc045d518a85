//! Acquiring the lock of one server: asking, waiting for one's turn, and leaving nothing behind.
//!
//! The server tells a waiter when its turn has come; timers only bound what a lost message can cost. Invariant: a wait by itself
//! never yields a lease. It yields a reservation, and the request that claims it starts the deadline.

use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Clock, Error, ErrorKind, Event, FencingToken, Grant, HolderId, Mode, Moment, Result,
    Wait, until,
};
use futures_util::StreamExt;

use crate::claim::RedisClaim;
use crate::connection::Connection;
use crate::failure::{lost_touch, refuse, refused, unexpected};
use crate::keys::{self, LockKey};
use crate::leases::Held;
use crate::record::owned_by;
use crate::resp::Reply;
use crate::script;
use crate::server::{ALIVE_FOR, Attended, Note, Server};
use crate::session::{REFUSED_PAUSE, Session};

/// How long a server that broke off is tried to be reached before a wait ends.
pub(crate) const RECONNECT_MOST: Duration = Duration::from_secs(5);

/// How soon a connection breaks that was broken before.
const STALE_MOST: Duration = Duration::from_millis(250);

/// How long the first try may take, also where less is left to wait.
pub(crate) const ONE_TRY_MOST: Duration = Duration::from_secs(1);

/// How long a reservation lasts (`hand_over.lua`), and what is added so that it is over then.
const CLAIM_AND_MORE: Duration = Duration::from_millis(1_005);

/// How long replicas may take to have a grant, as a part of its ttl, and at most.
const REPLICATE_PART: u32 = 4;
const REPLICATE_MOST: Duration = Duration::from_secs(1);

/// How long a doubtful attempt is cancelled before its caller is told that nothing is certain.
const CANCEL_MOST: Duration = Duration::from_millis(500);

/// Acquires the lock as the request says.
///
/// # Cancel safety
/// Dropping it cancels the attempt on the server, in the background.
///
/// # Errors
/// `Contended` when it is held, or the server in quarantine, and the wait is over; `Indeterminate` when the server may have
/// granted it and cannot be reached; `Unavailable` when it cannot be reached.
pub(crate) async fn acquire(server: &Server, request: &AcquireRequest) -> Result<RedisClaim> {
    let clock = server.clock();
    let now = clock.now();
    let mut attempt = Attempt::new(server, request);
    let patience = request.wait.give_up_at(now).filter(|_| request.wait != Wait::No);
    let give_up_at = patience.map(|at| at.max(now.after(ONE_TRY_MOST)));
    let outcome = until(clock, give_up_at, attempt.run()).await;
    let outcome = outcome.unwrap_or_else(|| Err(attempt.standing.out_of_time()));
    attempt.is_over |= outcome.is_ok();
    match outcome {
        // Once the attempt is cancelled there is no doubt any more: it holds nothing, and never will.
        Err(error) if attempt.is_in_doubt => {
            let soon = Some(clock.now().after(CANCEL_MOST));
            attempt.is_over = until(clock, soon, attempt.cancel()).await.is_some();
            Err(if attempt.is_over { error } else { in_doubt(&error) })
        }
        outcome => outcome,
    }
}

fn in_doubt(error: &Error) -> Error {
    let what = format!("{error}; the server may have granted it");
    Error::new(ErrorKind::Indeterminate, "acquire the lock", what)
        .hint("it is given back as soon as the server can be reached, and ends with its ttl (or --at-least) at the latest")
}

/// How the attempt stands when its time is over.
enum Standing {
    Unreached,
    Held,
    Quarantined(Error),
}

impl Standing {
    fn out_of_time(&self) -> Error {
        match self {
            Self::Unreached => crate::failure::unavailable("the server has not answered in time"),
            Self::Held => contended("it was held all the time"),
            Self::Quarantined(error) => error.clone(),
        }
    }
}

/// One attempt to acquire one lock. Dropped before its end it is cancelled on the server.
struct Attempt<'a> {
    server: &'a Server,
    request: &'a AcquireRequest,
    began: Moment,
    key: LockKey,
    holder: String,
    /// The process and the owner, as they stand in a record.
    owner: String,
    /// The place in the queue, once there is one.
    place: String,
    standing: Standing,
    /// Whether it may have granted the lock without our knowing.
    is_in_doubt: bool,
    /// The connection on which the server was asked last, if it was.
    asked_on: Option<Connection>,
    /// Whether a request may still be on its way, on a connection that is broken.
    is_late: bool,
    is_over: bool,
}

/// What the server answered.
enum Answer {
    Granted { token: FencingToken, counted_from: Moment },
    Busy { free_in: Duration, is_first: bool },
    Quarantined(Duration),
    Forgot,
}

impl<'a> Attempt<'a> {
    fn new(server: &'a Server, request: &'a AcquireRequest) -> Self {
        Self {
            server,
            request,
            began: server.clock().now(),
            key: LockKey::of(&request.name),
            holder: request.holder.to_string(),
            owner: owned_by(&server.shared.process, &request.name, &request.label),
            place: String::new(),
            standing: Standing::Unreached,
            is_in_doubt: false,
            asked_on: None,
            is_late: false,
            is_over: false,
        }
    }

    fn clock(&self) -> &'a Clock {
        self.server.clock()
    }

    async fn run(&mut self) -> Result<RedisClaim> {
        // On the list before the first request: the turn may come right behind its answer.
        let mut attended =
            (self.request.wait != Wait::No).then(|| self.server.attend(self.request.holder, &self.key));
        let mut unreached_since = None;
        loop {
            let Some(session) = self.session(&mut unreached_since).await? else { continue };
            // What was heard until now is answered by asking.
            while attended.as_mut().is_some_and(|attended| attended.heard.try_recv().is_ok()) {}
            // Where replicas are waited for, one grant after the other: their waits would add up on the connection.
            let turn = self.server.granting_turn().await;
            let answer = match self.ask(&session).await {
                Ok(answer) => answer,
                // Also a server that refuses for a while: it saves its data, loads them, or is full.
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    self.may_go_on(&mut unreached_since, error)?;
                    if session.connection.is_open() {
                        self.clock().sleep(REFUSED_PAUSE).await;
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            unreached_since = None;
            let _turn = turn.filter(|_| matches!(answer, Answer::Granted { .. }));
            match answer {
                Answer::Granted { token, counted_from } => {
                    // Granted and yet no lease: where the replicas fail, it is given back before the caller hears of it.
                    self.is_in_doubt = true;
                    self.replicate(&session).await?;
                    self.is_in_doubt = false;
                    return Ok(self.claim(&session, token, counted_from));
                }
                Answer::Busy { free_in, is_first } => {
                    self.standing = Standing::Held;
                    let Some(attended) = &mut attended else {
                        // It has joined no queue, and so has left nothing.
                        self.is_over = !self.is_late;
                        return Err(contended("it is held"));
                    };
                    self.wait_for_turn(attended, is_first.then_some(free_in)).await?;
                }
                Answer::Quarantined(left) => {
                    // Where the server's clock has gone back, what was learned is too late.
                    let learned = self.learn_anew(&session, &mut unreached_since).await?;
                    if learned.is_some_and(|anew| anew.incarnation.record == session.incarnation.record) {
                        self.sit_out(&session, left).await?;
                    }
                }
                Answer::Forgot => drop(self.learn_anew(&session, &mut unreached_since).await?),
            }
        }
    }

    /// What the server is now; `None` where it cannot be reached and is worth another try.
    async fn learn_anew(
        &self,
        session: &Session,
        unreached_since: &mut Option<Moment>,
    ) -> Result<Option<Session>> {
        match self.server.granting().learn_anew(session).await {
            Err(error) if !session.connection.is_open() => {
                self.may_go_on(unreached_since, error).map(|()| None)
            }
            outcome => outcome.map(Some),
        }
    }

    /// A session to ask on; `None` where it is worth another try.
    async fn session(&self, unreached_since: &mut Option<Moment>) -> Result<Option<Session>> {
        match self.reach().await {
            Ok(session) => Ok(Some(session)),
            Err(error) if error.kind() == ErrorKind::Unavailable && self.asked_on.is_some() => {
                self.may_go_on(unreached_since, error).map(|()| None)
            }
            Err(error) => Err(error),
        }
    }

    async fn reach(&self) -> Result<Session> {
        // The process is told on its own link, of its turn or of a revocation, and must listen there before it asks.
        self.server.session().await?;
        self.server.granting().session().await
    }

    /// Whether to go on although the server cannot be reached: for a while, where it could be before; once, where nothing is
    /// waited for.
    fn may_go_on(&self, unreached_since: &mut Option<Moment>, error: Error) -> Result<()> {
        let now = self.clock().now();
        let is_first = unreached_since.is_none();
        let since = *unreached_since.get_or_insert(now);
        let is_worth_it = if self.request.wait == Wait::No {
            // The connection was perhaps broken before, and nobody had noticed.
            is_first && now.since(self.began) < STALE_MOST
        } else {
            now.since(since) < RECONNECT_MOST
        };
        if is_worth_it { Ok(()) } else { Err(error) }
    }

    async fn ask(&mut self, session: &Session) -> Result<Answer> {
        let request = self.request;
        let ready_at = if self.server.options().has_quarantine { session.incarnation.ready_at_ms } else { 0 };
        let (ready_at, ttl) = (ready_at.to_string(), request.ttl.as_millis().to_string());
        let at_least = request.at_least.map(|time| time.as_millis().to_string());
        let alive_for = if request.wait == Wait::No { 0 } else { ALIVE_FOR.as_millis() }.to_string();
        let mode = match request.mode {
            Mode::Exclusive => "alone",
            Mode::Shared => "shared",
        };
        self.asked_on = Some(session.connection.clone());
        let was_in_doubt = std::mem::replace(&mut self.is_in_doubt, true);
        let sent = self.clock().now();
        let arguments = [
            &*session.incarnation.record,
            &ready_at,
            &self.holder,
            &ttl,
            &self.owner,
            &alive_for,
            &self.place,
            &self.holder,
            at_least.as_deref().unwrap_or("0"),
            mode,
        ];
        // Most want nothing special, and each argument costs time.
        let is_plain = request.at_least.is_none() && request.mode == Mode::Exclusive;
        let arguments = if is_plain { &arguments[..7] } else { &arguments[..] };
        let keys = [keys::INCARNATION, &self.key];
        let reply = match session.connection.run(&script::ACQUIRE, &keys, arguments).await {
            Ok(reply) => reply,
            Err(broken) => {
                self.is_late |= broken.was_sent;
                self.is_in_doubt = was_in_doubt || broken.was_sent;
                return Err(lost_touch(&broken));
            }
        };
        self.is_in_doubt = false;
        self.read(session, &reply, sent)
    }

    fn read(&mut self, session: &Session, reply: &Reply, sent: Moment) -> Result<Answer> {
        if let Reply::Refused(what) = reply {
            session.give_up_on_a_replica(what);
            return Err(refused(what));
        }
        let wrong = || unexpected("acquire.lua", reply);
        if let Some(token) = reply.text() {
            // It is the server's time in microseconds as well.
            let token: FencingToken = token.parse().map_err(|_| wrong())?;
            self.server.note_time((token.get() / 1_000).cast_signed(), sent);
            return Ok(Answer::Granted { token, counted_from: sent });
        }
        let (what, rest) = reply.list().split_first().ok_or_else(wrong)?;
        let number = |index: usize| rest.get(index).and_then(Reply::number);
        match what.text().unwrap_or_default() {
            "OK" => {
                let token = rest.first().and_then(Reply::text).and_then(|token| token.parse().ok());
                self.server.note_time(number(1).ok_or_else(wrong)?, sent);
                Ok(Answer::Granted { token: token.ok_or_else(wrong)?, counted_from: sent })
            }
            "BUSY" => {
                rest.get(1).and_then(Reply::text).unwrap_or_default().clone_into(&mut self.place);
                self.server.note_time(number(3).ok_or_else(wrong)?, sent);
                let free_in = Duration::from_millis(number(0).unwrap_or_default().max(0).unsigned_abs());
                Ok(Answer::Busy { free_in, is_first: number(2) == Some(0) })
            }
            "QUARANTINE" => {
                let left = number(0).ok_or_else(wrong)?;
                Ok(Answer::Quarantined(Duration::from_millis(left.unsigned_abs())))
            }
            "FORGOT" => Ok(Answer::Forgot),
            "EXHAUSTED" => {
                let what = "the last token was 2^53-1, and Redis counts no further exactly";
                Err(Error::new(ErrorKind::Unexpected, "draw a fencing token", what))
            }
            "CANCELLED" => Err(contended("the attempt was cancelled")),
            _ => Err(wrong()),
        }
    }

    /// Waits until it is worth asking again.
    async fn wait_for_turn(&self, attended: &mut Attended, free_in: Option<Duration>) -> Result<()> {
        let clock = self.clock();
        let give_up_at = self.request.wait.give_up_at(clock.now());
        let mut look_at = free_in.map(|free_in| self.just_after(free_in));
        loop {
            let end = look_at.into_iter().chain(give_up_at).min();
            match until(clock, end, attended.heard.next()).await {
                Some(Some(Note::Next)) => look_at = Some(clock.now().after(CLAIM_AND_MORE)),
                Some(Some(Note::First(free_in))) => look_at = Some(self.just_after(free_in)),
                Some(None) => return Err(unexpected("a wait", &Reply::Null)),
                None if give_up_at.is_some_and(|at| clock.now() >= at) => {
                    return Err(self.standing.out_of_time());
                }
                Some(Some(Note::Turn | Note::AskAgain)) | None => return Ok(()),
            }
        }
    }

    /// When something that ends in `time` on the server has ended, not at the same moment for all who wait for it.
    fn just_after(&self, time: Duration) -> Moment {
        let clock = self.clock();
        clock.now().after(time + Duration::from_millis(1) + clock.jitter(Duration::from_millis(10)))
    }

    async fn sit_out(&mut self, session: &Session, left: Duration) -> Result<()> {
        let why = Some(&session.incarnation.why).filter(|why| !why.is_empty());
        let why = why.map_or("it may have lost data", |why| why);
        let left_seconds = left.as_secs_f64().ceil();
        let what = format!("the server grants nothing for another {left_seconds} s, because {why}");
        let error = Error::new(ErrorKind::Contended, "acquire the lock", what.clone()).hint(
            "leases that it has forgotten are over then; ?quarantine=off skips that where there can be none",
        );
        if let Some(observer) = &self.request.observer {
            observer.observe(&self.request.name, &Event::Quarantined);
        }
        if self.request.wait == Wait::No {
            return Err(error);
        }
        if let Some(observer) = &self.request.observer {
            observer.observe(&self.request.name, &Event::Noticed { what });
        }
        self.standing = Standing::Quarantined(error);
        let clock = self.clock();
        let end = clock.now().after(left + clock.jitter(Duration::from_millis(50)));
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

    /// Waits until as many replicas as were asked for have the grant.
    async fn replicate(&self, session: &Session) -> Result<()> {
        let needed = self.server.options().replicas;
        if needed == 0 {
            return Ok(());
        }
        let most = (self.request.ttl / REPLICATE_PART).min(REPLICATE_MOST).as_millis().to_string();
        let reply = session.connection.call(&[b"WAIT", needed.to_string().as_bytes(), most.as_bytes()]).await;
        let reply = reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
        let have = reply.number().unwrap_or_default();
        if have >= i64::from(needed) {
            return Ok(());
        }
        let what = format!("{have} of the {needed} replicas that the URL asks for have the grant");
        Err(Error::new(ErrorKind::Unavailable, "acquire the lock", what))
    }

    fn cancel(&self) -> impl Future<Output = ()> + Send + use<> {
        let unanswered = self.asked_on.clone().filter(|_| self.is_in_doubt);
        cancel(self.server.clone(), self.key.clone(), self.request.holder, unanswered, self.is_late)
    }

    fn claim(&self, session: &Session, token: FencingToken, counted_from: Moment) -> RedisClaim {
        let request = self.request;
        let (name, holder) = (request.name.clone(), request.holder);
        let ttl = Duration::from_millis(u64::try_from(request.ttl.as_millis()).unwrap_or(u64::MAX));
        if let (Some(observer), Some(what)) = (&request.observer, &session.incarnation.warning) {
            observer.observe(&name, &Event::Noticed { what: what.clone() });
        }
        let grant = Grant { name: name.clone(), holder, token, ttl: Some(ttl), counted_from, slack: None };
        let (lost, gone) = futures_channel::oneshot::channel();
        let observer = request.observer.clone();
        let held = Held { name, key: self.key.clone(), token, ttl, observer, lost: Some(lost) };
        self.server.shared.leases.insert(holder, held);
        RedisClaim::new(self.server.clone(), grant, self.key.clone(), request.mode, gone, self.is_late)
    }
}

impl Drop for Attempt<'_> {
    /// Cancels an attempt that has come to nothing, until the server has said so or the ttl is over.
    fn drop(&mut self) {
        if self.is_over || self.asked_on.is_none() {
            return;
        }
        let (clock, cancel) = (self.clock().clone(), self.cancel());
        // A lock that is to be kept longer than its lease lasts so long without a holder too.
        let lasts = self.request.ttl.max(self.request.at_least.unwrap_or_default());
        let give_up_at = clock.now().after(lasts);
        self.clock().spawn(async move {
            until(&clock, Some(give_up_at), cancel).await;
        });
    }
}

/// Has the server give up an attempt, until it has said so. A request that is `unanswered` on its connection, or `is_late` on
/// one that is broken, may still grant it: on the same connection it comes before this, on another one a tombstone stops it.
async fn cancel(
    server: Server,
    key: LockKey,
    holder: HolderId,
    unanswered: Option<Connection>,
    mut is_late: bool,
) {
    let holder = holder.to_string();
    loop {
        let Ok(session) = server.granting().session().await else { continue };
        is_late |= unanswered.as_ref().is_some_and(|asked_on| !asked_on.is(&session.connection));
        let for_long = if is_late { server.options().max_ttl.as_millis() } else { 0 }.to_string();
        let (keys, arguments) = ([&*key], [&*holder, &for_long, &holder]);
        // Where replies get lost, that a script is not known would never be heard.
        let reply = if is_late || unanswered.is_some() {
            session.connection.run_in_full(&script::CANCEL, &keys, &arguments).await
        } else {
            session.connection.run(&script::CANCEL, &keys, &arguments).await
        };
        match reply {
            Ok(Reply::Refused(_)) => server.clock().sleep(REFUSED_PAUSE).await,
            Ok(_) => return,
            Err(_) => is_late = true,
        }
    }
}

pub(crate) fn contended(what: &str) -> Error {
    Error::new(ErrorKind::Contended, "acquire the lock", what)
}
