//! A session on the server: what a lock lasts as long as.
//!
//! Invariant: a session is used only where it was seen to be one of its own on a primary whose incarnation grants: everything that
//! loses the server's locks ends every session too, so what was seen at the beginning holds to the end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, LockName, Mode, Moment, Result, lock, until};
use futures_util::future::{join, join3};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSqlOwned, ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::connection::Connection;
use crate::endpoint::{Endpoint, Host, Options};
use crate::failure::{failure, is, unavailable, unexpected};
use crate::limit::Limit;
use crate::pooler;
use crate::schema::missing_rights;
use crate::settings::{self, Terms};
use crate::standing::{self, Facts, Standing};
use crate::statements::Statements;

/// How long a server may take to make the schema, or to write down that it has lost its locks.
const SET_UP_MOST: Duration = Duration::from_secs(5);

/// A session that can hold locks.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    statements: Statements,
    /// The server's process behind it.
    pid: i32,
    /// What people should know of how it was reached.
    pub(crate) warning: Option<String>,
    /// The id of the lock that it was opened for, where that had one.
    pub(crate) known: Option<(LockName, i32)>,
    /// From when on the server may grant, for a session that was opened before; it is used for nothing but looking.
    pub(crate) ready_at: Option<Moment>,
    deadlock_timeout: Duration,
    terms: Mutex<Terms>,
    /// How many use it: each holds a lock, or asks for one.
    users: AtomicUsize,
    /// Whether it has been asked for no lock yet.
    is_new: AtomicBool,
    limit: Limit,
    /// Whether it has said who waits on it.
    is_registered: AtomicBool,
    /// Whether it has cleaned up after sessions that are gone.
    has_cleaned: AtomicBool,
}

/// What a server answers to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted(i64),
    Busy,
    /// It is taken, and the session stands in its door from now on.
    InDoor,
    Rests,
    UnknownRow,
}

/// One request for a lock, as the server is told it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: i32,
    pub(crate) name: String,
    /// `ttl_ms holder label`.
    pub(crate) who: String,
    pub(crate) rest_ms: i64,
    pub(crate) mode: Mode,
    /// Whether the session stands in the lock's door already.
    pub(crate) has_door: bool,
}

impl Session {
    /// Opens a session on the first host that is a primary, for the lock `name` where it is for one.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(crate) async fn open(
        clock: &Clock,
        endpoint: &Endpoint,
        options: &Options,
        ttl: Duration,
        name: Option<&LockName>,
    ) -> Result<Self> {
        let terms = Terms { ttl, on_pause: options.on_pause };
        let mut last = unavailable("no host is named");
        for host in &endpoint.hosts {
            match Self::open_at(clock, endpoint, host, options, terms, name).await {
                Ok(session) => return Ok(session),
                // Another host may be the primary, or the one that is up; what is wrong with us is wrong everywhere.
                Err(error) if error.kind() == ErrorKind::Unavailable => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    async fn open_at(
        clock: &Clock,
        endpoint: &Endpoint,
        host: &Host,
        options: &Options,
        terms: Terms,
        name: Option<&LockName>,
    ) -> Result<Self> {
        let reached = pooler::reach(clock, endpoint, host, options, terms).await?;
        let looks = async {
            // Both are sent at once.
            let looks =
                join(Facts::read(reached.client()), Standing::read(reached.client(), options.max_ttl, name));
            let (facts, standing) = looks.await;
            Ok((facts?, standing))
        };
        let (facts, standing) = answered(clock, Box::pin(looks)).await?;
        let connection = Box::pin(reached.seen_to_be_own(clock, endpoint, host, &facts)).await?;
        facts.check(host, terms)?;
        let session = Self {
            statements: Statements::new(),
            pid: facts.pid,
            ready_at: None,
            known: name.cloned().zip(standing.as_ref().ok().and_then(|standing| standing.id)),
            warning: endpoint.tls.warning.clone(),
            deadlock_timeout: facts.deadlock_timeout,
            terms: Mutex::new(terms),
            users: AtomicUsize::new(0),
            is_new: AtomicBool::new(true),
            limit: Limit::default(),
            is_registered: AtomicBool::new(false),
            has_cleaned: AtomicBool::new(false),
            connection,
        };
        // Where the server looks for deadlocks sooner than usual, the settings of the start wait too long.
        if standing?.is_ready && facts.deadlock_timeout >= settings::DEADLOCK_TIMEOUT {
            return Ok(session);
        }
        let give_up_at = Some(clock.now().after(SET_UP_MOST));
        let set_up = until(clock, give_up_at, Box::pin(session.set_up(clock, options.max_ttl))).await;
        let unanswered = || unavailable(format!("{host} has not answered for {SET_UP_MOST:?}"));
        let ready_at = set_up.unwrap_or_else(|| Err(unanswered()))?;
        Ok(Self { ready_at: ready_at.filter(|_| options.has_quarantine), ..session })
    }

    /// Makes what is missing, and asks from when on the server grants. After a restart is also when most rows of before are left.
    async fn set_up(&self, clock: &Clock, max_ttl: Duration) -> Result<Option<Moment>> {
        let client = self.client();
        let wait_at_most = |most: Duration| {
            let sql = format!("set lock_timeout = {}", most.as_millis());
            async move { client.batch_execute(&sql).await.map_err(|error| failure(&error)) }
        };
        wait_at_most(settings::SET_UP_WAIT_MOST).await?;
        // Also without a quarantine of its own: the longest lease counts in that of the others.
        let ready_at = standing::prepare(clock, client, max_ttl).await?;
        self.clean().await?;
        let terms = *lock(&self.terms);
        wait_at_most(terms.lock_timeout(self.deadlock_timeout)).await?;
        Ok(ready_at)
    }

    /// Has the session work by other terms, if it does not yet.
    ///
    /// # Cancel safety
    /// After a dropped call it is not known which it works by; the session is not to be used again then.
    pub(crate) async fn adopt(&self, terms: Terms) -> Result<()> {
        if *lock(&self.terms) == terms {
            return Ok(());
        }
        self.set(terms).await
    }

    async fn set(&self, terms: Terms) -> Result<()> {
        let mut sql = terms.sql();
        let lock_timeout = terms.lock_timeout(self.deadlock_timeout).as_millis();
        let shorter = format!("set lock_timeout = {lock_timeout}");
        sql.push_str(&shorter);
        self.connection.client().batch_execute(&sql).await.map_err(|error| failure(&error))?;
        *lock(&self.terms) = terms;
        self.limit.reset();
        Ok(())
    }
}

/// What a session is asked for that is not about time.
impl Session {
    /// Whether it can still be used, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// Counts one more user.
    pub(crate) fn enter(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one user less. Whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether anybody uses it.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Whether its only user is whoever asks.
    pub(crate) fn has_one_user(&self) -> bool {
        self.users.load(Ordering::Acquire) == 1
    }

    /// Closes it at once, and with it ends whatever it holds.
    pub(crate) fn close(&self) {
        self.connection.close();
    }

    /// The longest lease that it can carry.
    pub(crate) fn ttl(&self) -> Duration {
        lock(&self.terms).ttl
    }

    /// How long a lock still rests.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn rests_for(&self, id: i32) -> Result<Duration> {
        let row = self.client().query_opt("select fencepost.rests_for($1)", &[&id]).await;
        let row = row.map_err(|error| missing_rights(&error))?;
        let left = row.and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or_default();
        Ok(Duration::from_millis(left.max(0).unsigned_abs()))
    }

    /// Whether a lock that is taken has had its holder for a while.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn is_settled(&self, id: i32) -> Result<bool> {
        let row = self.client().query_one("select fencepost.is_settled($1)", &[&id]).await;
        row.map(|row| row.get(0)).map_err(|error| missing_rights(&error))
    }

    /// The id of a lock.
    ///
    /// # Cancel safety
    /// A dropped call may have made the lock's row.
    pub(crate) async fn lock_id(&self, name: &str) -> Result<i32> {
        let row = self.statements.lock_id.first_row(self.client(), &[&name]).await;
        answer_in(row.map_err(|error| missing_rights(&error))?)
    }

    /// Takes the lock if it is free, or waits for it, for less than a second.
    ///
    /// # Cancel safety
    /// A dropped call goes on, and may take it; see [`let_go`](Self::let_go).
    pub(crate) async fn acquire(
        &self,
        request: &Request,
        waits: bool,
        told: Option<&Waits>,
    ) -> Result<Answer> {
        if self.is_new.swap(false, Ordering::Relaxed)
            && let Some(token) = self.take(request).await?
        {
            return Ok(Answer::Granted(token));
        }
        // Who writes down that a session waits or shares removes what others have left there.
        let is_writing = told.is_some() || request.mode == Mode::Shared;
        let cleaning = async { if is_writing { self.clean().await } else { Ok(()) } };
        let registering = async { if waits { self.register(told).await } else { Ok(()) } };
        // All is sent at once, and carried out in this order.
        let (cleaned, registered, answer) = join3(cleaning, registering, self.ask(request, waits)).await;
        cleaned.and(registered).and(answer)
    }

    /// The token of the lock if it is free and nothing else is to be looked after; else the session has nothing of it.
    async fn take(&self, request: &Request) -> Result<Option<i64>> {
        let Request { id, name, who, rest_ms, mode, has_door } = request;
        if *mode == Mode::Shared || *rest_ms > 0 || *has_door {
            return Ok(None);
        }
        let warned = self.connection.warnings();
        let row = match self.statements.take.first_row(self.client(), &[id, name, who]).await {
            // Somebody who is not in the door has the row.
            Err(error) if is(&error, &SqlState::LOCK_NOT_AVAILABLE) => {
                return self.give_up(*id).await.map(|()| None);
            }
            row => row.map_err(|error| missing_rights(&error))?,
        };
        self.check_warnings(warned)?;
        answer_in(row)
    }

    /// A standby that was to have the token may not have it: the wait for it was cut short.
    fn check_warnings(&self, before: u64) -> Result<()> {
        if self.connection.warnings() != before {
            return Err(unavailable("the server warned when it committed the token"));
        }
        Ok(())
    }

    async fn ask(&self, request: &Request, waits: bool) -> Result<Answer> {
        let warned = self.connection.warnings();
        let terms = *lock(&self.terms);
        let idle = |waits| terms.idle_most(waits).as_millis().to_string();
        let Request { id, name, who, rest_ms, mode, has_door } = request;
        let begun = self.limit.begin(*id, waits);
        let (waiting, holding) = (idle(true), begun.ends_it().then(|| idle(false)));
        let client = self.client();
        let answer = match mode {
            Mode::Exclusive => {
                let asked: &[&(dyn ToSql + Sync)] =
                    &[id, name, who, rest_ms, has_door, &waits, &waiting, &holding];
                self.statements.acquire.first_row(client, asked).await
            }
            Mode::Shared => {
                let asked: &[&(dyn ToSql + Sync)] = &[id, name, who, has_door, &waits, &waiting, &holding];
                self.statements.share.first_row(client, asked).await
            }
        };
        let row = match answer {
            // The commit of whoever was granted it before takes a while, and keeps its row.
            Err(error) if is(&error, &SqlState::LOCK_NOT_AVAILABLE) => {
                return self.give_up(*id).await.map(|()| Answer::Busy);
            }
            row => row.map_err(|error| missing_rights(&error))?,
        };
        self.check_warnings(warned)?;
        let said = answer_in::<Option<i64>>(row)?;
        if said != Some(-3) {
            self.limit.stop(*id);
        }
        match said {
            None => Ok(Answer::Busy),
            Some(-1) => Ok(Answer::UnknownRow),
            Some(-2) => Ok(Answer::Rests),
            Some(-3) => Ok(Answer::InDoor),
            Some(waited) if waited < 0 => Ok(Answer::Granted(-3 - waited)),
            Some(token) if token > 0 => {
                self.limit.not_waited(begun);
                Ok(Answer::Granted(token))
            }
            Some(other) => Err(unexpected(format!("it granted the token {other}"))),
        }
    }

    /// Says who waits on this session, or that nobody does any more.
    async fn register(&self, waits: Option<&Waits>) -> Result<()> {
        let changed = match waits {
            None if !self.is_registered.swap(false, Ordering::Relaxed) => return Ok(()),
            None => self.client().execute_typed(UNREGISTER, &[]).await,
            Some(_) if self.is_registered.swap(true, Ordering::Relaxed) => return Ok(()),
            Some(Waits { holder, label, for_ms }) => {
                let values: [(&(dyn ToSql + Sync), Type); 3] =
                    [(holder, Type::TEXT), (label, Type::TEXT), (for_ms, Type::INT8)];
                self.client().execute_typed(REGISTER, &values).await
            }
        };
        changed.map(drop).map_err(|error| missing_rights(&error))
    }

    /// Removes what sessions that are gone have left, and one with the same number. Such rows mean nothing, but would pile up.
    async fn clean(&self) -> Result<()> {
        if self.has_cleaned.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        match self.client().batch_execute(FORGET_OLD_SESSIONS).await {
            // Somebody else removes them.
            Err(error) if is(&error, &SqlState::LOCK_NOT_AVAILABLE) => Ok(()),
            cleaned => cleaned.map_err(|error| missing_rights(&error)),
        }
    }

    /// Whether it is to give a sign of life soon: it has waited, which the server ends when it is idle, and by its wall clock.
    pub(crate) fn may_be_ended(&self) -> bool {
        self.limit.is_set() && lock(&self.terms).idle_most(false).is_zero()
    }

    /// Ends what limits a session that has waited, where a holder has no such limit.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing that the next one does not repair.
    pub(crate) async fn stay(&self) -> Result<()> {
        if !self.may_be_ended() {
            return Ok(());
        }
        // Never prepared: it has to be sent when it is first polled.
        let sending = self.client().batch_execute("set idle_session_timeout = 0");
        self.limit.end(sending).await.map_err(|error| failure(&error))
    }

    /// Whether the session still holds the lock. It also is a sign of life: a session that was limited in its idleness, since a
    /// waiter was, is so no longer where a holder is not.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing that the next one does not repair.
    pub(crate) async fn holds(&self, id: i32) -> Result<bool> {
        let asked: &[&(dyn ToSql + Sync)] = &[&id];
        let asking = self.statements.held_by.first_row(self.client(), asked);
        let (freed, row) = join(self.stay(), asking).await;
        freed?;
        let row = row.map_err(|error| failure(&error))?;
        // Behind a pooler that has exchanged the session it is another process that answers.
        Ok(row.and_then(|row| row.get::<_, Option<i32>>(0)) == Some(self.pid))
    }

    /// Gives the lock back. Whether it was held.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given it back.
    pub(crate) async fn release(&self, id: i32, mode: Mode) -> Result<bool> {
        let statement = match mode {
            Mode::Exclusive => &self.statements.release,
            Mode::Shared => &self.statements.stop_sharing,
        };
        let row = statement.first_row(self.client(), &[&id]).await;
        answer_in(row.map_err(|error| failure(&error))?)
    }

    /// Ends a request for the lock that was given up: cancels it, waits for its end, and gives back what it may have got.
    ///
    /// # Cancel safety
    /// After a dropped call the session is not to be used again.
    pub(crate) async fn let_go(&self, id: i32) -> Result<()> {
        self.connection.cancel().await?;
        self.give_up(id).await
    }

    /// Gives back what the session has of the lock, and its place in the door.
    async fn give_up(&self, id: i32) -> Result<()> {
        let gone = self.client().query_typed(GIVE_UP, &[(&id, Type::INT4)]).await;
        self.limit.stop(id);
        gone.map(drop).map_err(|error| failure(&error))
    }

    /// The client, for statements that are not needed often.
    pub(crate) fn client(&self) -> &Client {
        self.connection.client()
    }
}

/// Who waits, for those who look.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub(crate) holder: String,
    pub(crate) label: String,
    pub(crate) for_ms: i64,
}

const REGISTER: &str = "insert into fencepost.waiter (pid, holder, label, since)
    values (pg_catalog.pg_backend_pid(), $1, $2, pg_catalog.clock_timestamp() - $3::bigint * interval '1 millisecond')
    on conflict (pid) do update set holder = excluded.holder, label = excluded.label, since = excluded.since";

const UNREGISTER: &str = "delete from fencepost.waiter where pid = pg_catalog.pg_backend_pid()";

/// What sessions that are gone have left, and one with the same number.
const FORGET_OLD_SESSIONS: &str = "delete from fencepost.waiter w where pid = pg_catalog.pg_backend_pid()
    or not exists (select from pg_catalog.pg_stat_activity a where a.pid = w.pid);
    delete from fencepost.reader r where pid = pg_catalog.pg_backend_pid()
    or not exists (select from pg_catalog.pg_stat_activity a where a.pid = r.pid)";

const GIVE_UP: &str = "select fencepost.give_up($1, false)";

/// What the server has answered to a question that has one row for an answer.
fn answer_in<T: FromSqlOwned>(row: Option<Row>) -> Result<T> {
    let row = row.ok_or_else(|| unexpected("it has answered nothing"))?;
    Ok(row.get(0))
}

/// How long a request that waits for nothing may take, before the connection counts as broken.
pub(crate) const REPLY_MOST: Duration = Duration::from_secs(2);

/// The answer to a request that waits for nothing.
///
/// # Errors
/// `Unavailable` when none comes; the session is not to be used again then.
pub(crate) async fn answered<T>(clock: &Clock, asking: impl Future<Output = Result<T>>) -> Result<T> {
    let answered_by = Some(clock.now().after(REPLY_MOST));
    until(clock, answered_by, asking).await.unwrap_or_else(|| Err(silent()))
}

pub(crate) fn silent() -> Error {
    unavailable(format!("the server has not answered for {REPLY_MOST:?}"))
}
