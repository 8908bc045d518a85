//! Acquiring a lock: asking, waiting in the server's queue, and leaving nothing behind.
//!
//! No statement waits for longer than a second: one that waits holds a snapshot, which keeps an index that is built concurrently
//! from being finished and vacuum from cleaning up. Each is sent again at once. Invariant: a session on which a request was
//! given up is used again only when the request has ended and what it may have got has been given back.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{
    AcquireRequest, Clock, Error, ErrorKind, Event, FencingToken, Grant, Moment, Result, Wait, until,
};

use crate::claim::PostgresClaim;
use crate::endpoint::PausePolicy;
use crate::failure::{unavailable, unexpected};
use crate::server::{Server, Turn};
use crate::session::{Answer, REPLY_MOST, Request, Session, Waits, answered, silent};

/// How long a server that broke off is tried to be reached before a wait ends.
const RECONNECT_MOST: Duration = Duration::from_secs(5);

/// The pause between two tries, and as much again at random.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a request that was given up may take to end.
const LET_GO_MOST: Duration = Duration::from_secs(2);

/// How old a grant may be without a sign of life that makes its lease a whole one: this, or this part of the lease. A sign of
/// life is one more request while the others wait, and the lease is valid without it.
const FRESH_FOR: Duration = Duration::from_millis(20);
const FRESH_PART: u32 = 32;

/// How long, and how often, somebody who does not wait waits all the same for a session that is about to end: longer together
/// than the server takes to notice a client that is gone.
const PASSING: Duration = Duration::from_millis(30);
const PASSING_TIMES: u32 = 5;

/// Acquires the lock as the request says.
///
/// # Cancel safety
/// Dropping it ends the request on the server, in the background.
///
/// # Errors
/// `Contended` when it is held, or the server in quarantine, and the wait is over; `Unavailable` when the server cannot be
/// reached. A grant that was not heard of ends with its session, so nothing is ever in doubt.
pub(crate) async fn acquire(server: &Server, request: &AcquireRequest) -> Result<PostgresClaim> {
    let clock = server.clock();
    let give_up_at = match request.wait {
        Wait::No => None,
        wait => wait.give_up_at(clock.now()),
    };
    let mut attempt = Attempt::new(server, request);
    let outcome = until(clock, give_up_at.map(|at| at.max(clock.now().after(REPLY_MOST))), async {
        let _turn = attempt.turn(give_up_at).await?;
        attempt.run(give_up_at).await
    });
    match outcome.await {
        Some(outcome) => outcome,
        None => Err(attempt.out_of_time()),
    }
}

/// One attempt to acquire one lock. Dropped while a request is under way it ends that one in the background.
struct Attempt<'a> {
    server: &'a Server,
    request: &'a AcquireRequest,
    began: Moment,
    who: String,
    /// Why there is no grant yet.
    standing: Option<Error>,
    /// Whether the observer was told of a quarantine.
    has_told: bool,
    was_reached: bool,
    /// How often the lock was found taken by somebody who may be gone in a moment.
    passed: u32,
    under_way: Option<UnderWay>,
}

/// A session with a request that has been sent and not answered, or in the door of the lock.
struct UnderWay {
    session: Arc<Session>,
    id: i32,
}

impl<'a> Attempt<'a> {
    fn new(server: &'a Server, request: &'a AcquireRequest) -> Self {
        let AcquireRequest { ttl, holder, label, .. } = request;
        // A session that is not ended when it is idle has no time that remains.
        let ttl = match server.options().on_pause {
            PausePolicy::Hold => 0,
            PausePolicy::Expire => ttl.as_millis(),
        };
        Self {
            server,
            request,
            began: server.clock().now(),
            who: format!("{ttl} {holder} {label}"),
            standing: None,
            has_told: false,
            was_reached: false,
            passed: 0,
            under_way: None,
        }
    }

    fn clock(&self) -> &'a Clock {
        self.server.clock()
    }

    /// Waits for the turn of this process, where it waits at all.
    async fn turn(&mut self, give_up_at: Option<Moment>) -> Result<Option<Turn>> {
        if self.request.wait == Wait::No {
            return Ok(None);
        }
        let turn = self.server.turn(&self.request.name);
        // A wait of no time is one try.
        let most = give_up_at.map(|at| at.max(self.began.after(FRESH_FOR)));
        match until(self.clock(), most, turn).await {
            Some(turn) => Ok(Some(turn)),
            None => Err(contended("it was held all the time")),
        }
    }

    async fn run(&mut self, give_up_at: Option<Moment>) -> Result<PostgresClaim> {
        let mut failing_since = None;
        let mut unknown_rows = 0;
        let mut tries = 0_u32;
        let mut kept = None;
        loop {
            let step = self.step(&mut kept, tries, give_up_at).await;
            let session = match (step, kept.take()) {
                (Ok(Step::Granted(claim)), _) => return Ok(claim),
                (Err(error), _) if error.kind() == ErrorKind::Unavailable => {
                    // Who had the lock before is not known any more.
                    self.standing = Some(error.clone());
                    self.may_go_on(&mut failing_since, error).await?;
                    continue;
                }
                (Err(error), session) => {
                    if let Some(session) = session {
                        self.server.keep(session);
                    }
                    return Err(error);
                }
                (Ok(Step::Again), session) => session,
                (Ok(Step::UnknownRow), session) => {
                    unknown_rows += 1;
                    if unknown_rows > 2 {
                        return Err(unexpected("the lock's row is gone as soon as it is made"));
                    }
                    session
                }
                (Ok(Step::Busy), session) => {
                    let what = if tries == 0 { "it is held" } else { "it was held all the time" };
                    self.standing = Some(contended(what));
                    tries += 1;
                    session
                }
            };
            (failing_since, kept) = (None, session);
            let is_over = give_up_at.is_some_and(|at| self.clock().now() >= at)
                || (self.request.wait == Wait::No && tries > 0);
            if is_over && self.standing.is_some() {
                match kept {
                    Some(session) if self.has_door(&session) => self.end_request().await,
                    Some(session) => self.server.keep(session),
                    None => {}
                }
                return Err(self.out_of_time());
            }
        }
    }

    /// Whether the session stands in the door of the lock.
    fn has_door(&self, session: &Arc<Session>) -> bool {
        self.under_way.as_ref().is_some_and(|it| Arc::ptr_eq(&it.session, session))
    }

    /// Asks the server once. `kept` is the session to ask on, and afterwards the one that can be asked on again.
    async fn step(
        &mut self,
        kept: &mut Option<Arc<Session>>,
        tries: u32,
        give_up_at: Option<Moment>,
    ) -> Result<Step> {
        let session = match kept.take().filter(|session| session.is_open()) {
            Some(session) => session,
            None => Box::pin(self.session()).await?,
        };
        if let Some(ready_at) = session.ready_at {
            // A new session asks again: a client of longer leases may come meanwhile, and put it off.
            drop(session);
            self.sit_out(ready_at, give_up_at).await?;
            return Ok(Step::Again);
        }
        let asking = Box::pin(self.server.lock_id(&session, &self.request.name));
        let id = self.answer(&session, asking).await?;
        self.was_reached = true;
        let (answer, sent) = self.ask(&session, id, tries, give_up_at).await?;
        match answer {
            Answer::Granted(token) => {
                let counted_from = Box::pin(self.confirm(&session, id, sent)).await?;
                self.under_way = None;
                return self.claim(session, id, token, counted_from).map(Step::Granted);
            }
            Answer::Busy if self.is_passing(&session, id).await? => {
                self.clock().sleep(PASSING).await;
                *kept = Some(session);
                return Ok(Step::Again);
            }
            Answer::Busy | Answer::InDoor => {}
            Answer::UnknownRow => {
                self.server.forget_id(&self.request.name);
                *kept = Some(session);
                return Ok(Step::UnknownRow);
            }
            Answer::Rests => {
                let left = Box::pin(self.answer(&session, session.rests_for(id))).await?;
                *kept = Some(session);
                return self.rest(left, give_up_at).await;
            }
        }
        *kept = Some(session);
        Ok(Step::Busy)
    }

    /// Whether, for somebody who does not wait, the lock may be taken by a session that is about to end, since its client was
    /// killed a moment ago.
    async fn is_passing(&mut self, session: &Session, id: i32) -> Result<bool> {
        if self.request.wait != Wait::No || self.passed >= PASSING_TIMES {
            return Ok(false);
        }
        self.passed += 1;
        Ok(!Box::pin(self.answer(session, session.is_settled(id))).await?)
    }

    /// The answer to a request that waits for nothing. A session on which none comes is closed.
    async fn answer<T>(&self, session: &Session, asking: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = answered(self.clock(), asking).await;
        if answer.is_err() {
            session.close();
        }
        answer
    }

    /// The session of the locks that are acquired together with this one, or one of its own.
    async fn session(&self) -> Result<Arc<Session>> {
        match self.server.session_of(&self.request.beside) {
            Some(session) => Ok(session),
            None => self.server.session(self.request.ttl, Some(&self.request.name)).await,
        }
    }

    async fn ask(
        &mut self,
        session: &Arc<Session>,
        id: i32,
        tries: u32,
        give_up_at: Option<Moment>,
    ) -> Result<(Answer, Moment)> {
        let rest = self.request.at_least.unwrap_or_default().as_millis();
        let asked = Request {
            id,
            name: self.request.name.as_str().to_owned(),
            who: self.who.clone(),
            rest_ms: i64::try_from(rest).unwrap_or(i64::MAX),
            mode: self.request.mode,
            has_door: self.has_door(session),
        };
        self.under_way = Some(UnderWay { session: Arc::clone(session), id });
        let sent = self.clock().now();
        let answered_by = sent.after(REPLY_MOST);
        // Where there is time, the first request waits as well: in a queue each would be two otherwise.
        let is_long = self.request.wait != Wait::No && give_up_at.is_none_or(|at| at >= answered_by);
        let waits = tries > 0 || is_long;
        // Who waits for longer than one statement does is told to onlookers.
        let told = (tries > 1 || (tries == 1 && is_long)).then(|| self.waits(sent));
        let end = give_up_at.filter(|_| waits).map_or(answered_by, |at| at.min(answered_by));
        let asking = Box::pin(session.acquire(&asked, waits, told.as_ref()));
        let answer = until(self.clock(), Some(end), asking).await;
        match answer {
            Some(Ok(answer)) => {
                if !matches!(answer, Answer::Granted(_) | Answer::InDoor) {
                    self.under_way = None;
                }
                Ok((answer, sent))
            }
            Some(Err(error)) => {
                // It may hold the lock all the same.
                self.under_way = None;
                session.close();
                Err(error)
            }
            None if self.clock().now() < answered_by => {
                self.end_request().await;
                Err(self.out_of_time())
            }
            None => {
                self.under_way = None;
                session.close();
                Err(silent())
            }
        }
    }

    fn waits(&self, now: Moment) -> Waits {
        let AcquireRequest { holder, label, .. } = self.request;
        let for_ms = i64::try_from(now.since(self.began).as_millis()).unwrap_or(i64::MAX);
        Waits { holder: holder.to_string(), label: label.clone(), for_ms }
    }

    /// From when on the lease is counted: where the grant took a while, from a sign of life after it.
    async fn confirm(&mut self, session: &Arc<Session>, id: i32, sent: Moment) -> Result<Moment> {
        let now = self.clock().now();
        if now.since(sent) <= FRESH_FOR.max(self.request.ttl / FRESH_PART) {
            return Ok(sent);
        }
        match until(self.clock(), Some(now.after(REPLY_MOST)), Box::pin(session.holds(id))).await {
            Some(Ok(true)) => Ok(now),
            outcome => {
                self.under_way = None;
                session.close();
                match outcome {
                    Some(Err(error)) => Err(error),
                    _ => Err(unavailable("the server does not say that the lock is held")),
                }
            }
        }
    }

    fn claim(
        &self,
        session: Arc<Session>,
        id: i32,
        token: i64,
        counted_from: Moment,
    ) -> Result<PostgresClaim> {
        let AcquireRequest { name, holder, ttl, .. } = self.request;
        let token = u64::try_from(token).ok().and_then(|token| FencingToken::try_from(token).ok());
        let token = token.ok_or_else(|| unexpected("it granted a number that is no token"))?;
        if let (Some(observer), Some(what)) = (&self.request.observer, &session.warning) {
            observer.observe(name, &Event::Noticed { what: what.clone() });
        }
        let ttl = Some(session.ttl().min(whole_millis(*ttl)));
        let grant = Grant { name: name.clone(), holder: *holder, token, ttl, counted_from, slack: None };
        Ok(PostgresClaim::new(self.server.clone(), session, id, self.request.mode, grant))
    }

    /// Waits until the server grants again, where there is so much time.
    async fn sit_out(&mut self, ready_at: Moment, give_up_at: Option<Moment>) -> Result<()> {
        let clock = self.clock();
        let seconds = ready_at.since(clock.now()).as_secs_f64().ceil();
        let what =
            format!("the server grants nothing for another {seconds} s, because it has lost its locks");
        let error = contended(&what).hint(
            "leases that it has forgotten are over then; ?quarantine=off skips that where there can be none",
        );
        if let Some(observer) = self.request.observer.as_ref().filter(|_| !self.has_told) {
            observer.observe(&self.request.name, &Event::Quarantined);
        }
        if self.request.wait == Wait::No {
            return Err(error);
        }
        if let Some(observer) = self.request.observer.as_ref().filter(|_| !self.has_told) {
            observer.observe(&self.request.name, &Event::Noticed { what });
            self.has_told = true;
        }
        self.standing = Some(error);
        self.sleep_until(ready_at, give_up_at).await
    }

    /// Waits until a lock that rests is free, where there is so much time.
    async fn rest(&mut self, left: Duration, give_up_at: Option<Moment>) -> Result<Step> {
        self.standing = Some(contended("its last holder keeps it taken for a while"));
        if self.request.wait == Wait::No {
            return Err(self.out_of_time());
        }
        self.sleep_until(self.clock().now().after(left), give_up_at).await?;
        Ok(Step::Again)
    }

    async fn sleep_until(&self, at: Moment, give_up_at: Option<Moment>) -> Result<()> {
        let clock = self.clock();
        if let Some(give_up_at) = give_up_at.filter(|give_up_at| *give_up_at <= at) {
            clock.sleep_until(give_up_at).await;
            return Err(self.out_of_time());
        }
        clock.sleep_until(at).await;
        Ok(())
    }

    /// Whether to go on although the server cannot be reached: for a while, where it could be before; once, where nothing is
    /// waited for.
    async fn may_go_on(&self, failing_since: &mut Option<Moment>, error: Error) -> Result<()> {
        let clock = self.clock();
        let is_first = failing_since.is_none();
        let since = *failing_since.get_or_insert(clock.now());
        let is_worth_it = if self.request.wait == Wait::No {
            // The session was perhaps broken before, and nobody had noticed.
            is_first && self.was_reached && since.since(self.began) < REPLY_MOST / 8
        } else {
            self.was_reached && clock.now().since(since) < RECONNECT_MOST
        };
        if !is_worth_it {
            return Err(error);
        }
        if !is_first {
            clock.sleep(PAUSE + clock.jitter(PAUSE)).await;
        }
        Ok(())
    }

    fn out_of_time(&self) -> Error {
        self.standing.clone().unwrap_or_else(|| unavailable("the server has not answered in time"))
    }

    async fn end_request(&mut self) {
        if let Some(UnderWay { session, id }) = self.under_way.take() {
            end(self.server.clone(), session, id).await;
        }
    }
}

/// What one request came to.
enum Step {
    Granted(PostgresClaim),
    Busy,
    /// It is to be asked again.
    Again,
    UnknownRow,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(UnderWay { session, id }) = self.under_way.take() {
            self.clock().spawn(end(self.server.clone(), session, id));
        }
    }
}

/// Ends a request that was given up. A session that does not say in time that nothing is left of it is closed.
async fn end(server: Server, session: Arc<Session>, id: i32) {
    let give_up_at = Some(server.clock().now().after(LET_GO_MOST));
    match until(server.clock(), give_up_at, Box::pin(session.let_go(id))).await {
        Some(Ok(())) => server.keep(session),
        _ => session.close(),
    }
}

/// The server counts in milliseconds.
fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

fn contended(what: &str) -> Error {
    Error::new(ErrorKind::Contended, "acquire the lock", what)
}
