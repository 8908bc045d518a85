//! A session on the server: what a lock lasts as long as.
//!
//! Invariant: a session is used only where it was seen to be one of its own on a primary whose incarnation grants: everything that
//! loses the server's locks ends every session too, so what was seen at the beginning holds to the end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::{Clock, Error, ErrorKind, Mode, Moment, Result, lock, until};
use futures_util::future::{join, join4};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::connection::Connection;
use crate::endpoint::{Endpoint, Host, Options};
use crate::failure::{failure, is, unavailable, unexpected};
use crate::pooler;
use crate::schema::{self, missing_rights};
use crate::settings::{self, Terms};
use crate::statements::Statements;

/// How long a server that has let us in may take to set a session up, which once includes making the schema.
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
    /// From when on the server may grant, for a session that was opened before; it is used for nothing but looking.
    pub(crate) ready_at: Option<Moment>,
    deadlock_timeout: Duration,
    terms: Mutex<Terms>,
    /// How many use it: each holds a lock, or asks for one.
    users: AtomicUsize,
    /// Whether the server ends it when it is idle, because it has waited.
    is_limited: AtomicBool,
    /// Whether somebody waits on it, in a request or in the door of a lock: its limit stays for as long.
    is_waiting: AtomicBool,
    /// Whether it has said who waits on it.
    is_registered: AtomicBool,
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
    /// Opens a session on the first host that is a primary.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(crate) async fn open(
        clock: &Clock,
        endpoint: &Endpoint,
        options: &Options,
        ttl: Duration,
    ) -> Result<Self> {
        let terms = Terms { ttl, on_pause: options.on_pause };
        let mut last = unavailable("no host is named");
        for host in &endpoint.hosts {
            match Self::open_at(clock, endpoint, host, options, terms).await {
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
    ) -> Result<Self> {
        let connection = pooler::connect(clock, endpoint, host, options, terms).await?;
        let give_up_at = Some(clock.now().after(SET_UP_MOST));
        let set_up =
            until(clock, give_up_at, Box::pin(Self::set_up(clock, connection, host, options, terms))).await;
        let unanswered = || unavailable(format!("{host} has not answered for {SET_UP_MOST:?}"));
        let session = set_up.unwrap_or_else(|| Err(unanswered()))?;
        Ok(Self { warning: endpoint.tls.warning.clone(), ..session })
    }

    async fn set_up(
        clock: &Clock,
        connection: Connection,
        host: &Host,
        options: &Options,
        terms: Terms,
    ) -> Result<Self> {
        let client = connection.client();
        let facts = Facts::read(client).await?;
        facts.check(host, terms)?;
        schema::ensure(client, facts.has_schema).await?;
        // Also without a quarantine of its own: the longest lease counts in that of the others.
        let asking = ready_at(clock, client, options.max_ttl);
        // All is sent at once.
        let forgetting = client.batch_execute(FORGET_OLD_SESSIONS);
        let wait_most =
            format!("set lock_timeout = {}", terms.lock_timeout(facts.deadlock_timeout).as_millis());
        let limiting = client.batch_execute(&wait_most);
        let (ready_at, forgotten, statements, limited) =
            join4(asking, forgetting, Statements::prepare(client), limiting).await;
        forgotten.and(limited).map_err(|error| missing_rights(&error))?;
        let (ready_at, statements) = (ready_at?.filter(|_| options.has_quarantine), statements?);
        Ok(Self {
            statements,
            pid: facts.pid,
            ready_at,
            warning: None,
            deadlock_timeout: facts.deadlock_timeout,
            terms: Mutex::new(terms),
            users: AtomicUsize::new(0),
            is_limited: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            is_registered: AtomicBool::new(false),
            connection,
        })
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
        self.is_limited.store(false, Ordering::Relaxed);
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
        let row = self.client().query_one(&self.statements.lock_id, &[&name]).await;
        row.map(|row| row.get(0)).map_err(|error| missing_rights(&error))
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
        let registering = async { if waits { self.register(told).await } else { Ok(()) } };
        // All is sent at once, and carried out in this order.
        let (registered, answer) = join(registering, self.ask(request, waits)).await;
        registered.and(answer)
    }

    async fn ask(&self, request: &Request, waits: bool) -> Result<Answer> {
        let warned = self.connection.warnings();
        let terms = *lock(&self.terms);
        let idle = |waits| terms.idle_most(waits).as_millis().to_string();
        let (waiting, holding) = (idle(true), self.is_limited.load(Ordering::Relaxed).then(|| idle(false)));
        // Until it has answered otherwise.
        self.is_limited.fetch_or(waits, Ordering::Relaxed);
        self.is_waiting.store(waits, Ordering::Relaxed);
        let Request { id, name, who, rest_ms, mode, has_door } = request;
        let client = self.client();
        let answer = match mode {
            Mode::Exclusive => {
                let asked: &[&(dyn ToSql + Sync)] =
                    &[id, name, who, rest_ms, has_door, &waits, &waiting, &holding];
                client.query_one(&self.statements.acquire, asked).await
            }
            Mode::Shared => {
                let asked: &[&(dyn ToSql + Sync)] = &[id, name, who, has_door, &waits, &waiting, &holding];
                client.query_one(&self.statements.share, asked).await
            }
        };
        let row = match answer {
            // The commit of whoever was granted it before takes a while, and keeps its row.
            Err(error) if is(&error, &SqlState::LOCK_NOT_AVAILABLE) => {
                return self.give_up(*id).await.map(|()| Answer::Busy);
            }
            row => row.map_err(|error| missing_rights(&error))?,
        };
        // A standby that was to have the token may not have it: the wait for it was cut short.
        if self.connection.warnings() != warned {
            return Err(unavailable("the server warned when it committed the token"));
        }
        let said = row.get::<_, Option<i64>>(0);
        self.is_waiting.store(said == Some(-3), Ordering::Relaxed);
        match said {
            None => Ok(Answer::Busy),
            Some(-1) => Ok(Answer::UnknownRow),
            Some(-2) => Ok(Answer::Rests),
            Some(-3) => Ok(Answer::InDoor),
            Some(waited) if waited < 0 => {
                self.is_limited.store(true, Ordering::Relaxed);
                Ok(Answer::Granted(-3 - waited))
            }
            Some(token) if token > 0 => {
                self.is_limited.store(false, Ordering::Relaxed);
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

    async fn limit_idleness(&self, most: Duration) -> Result<()> {
        let most = most.as_millis().to_string();
        let limited = self.client().query_one(&self.statements.limit, &[&most]).await;
        limited.map(drop).map_err(|error| failure(&error))
    }

    /// Whether the session still holds the lock. It also is a sign of life: a session that was limited in its idleness, since a
    /// waiter was, is so no longer where a holder is not.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing that the next one does not repair.
    pub(crate) async fn holds(&self, id: i32) -> Result<bool> {
        let idle_most = lock(&self.terms).idle_most(false);
        let freeing = async {
            // Not while somebody waits on it, who would be unlimited afterwards; and noted before it is sent, since a wait that is sent
            // behind it limits the session again, and says so.
            let stays = !idle_most.is_zero() || self.is_waiting.load(Ordering::Relaxed);
            if !stays && self.is_limited.swap(false, Ordering::Relaxed) {
                self.limit_idleness(idle_most).await?;
            }
            Ok(())
        };
        let asked: &[&(dyn ToSql + Sync)] = &[&id];
        let asking = self.client().query_opt(&self.statements.held_by, asked);
        let (freed, row) = join(freeing, asking).await;
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
        let row = self.client().query_one(statement, &[&id]).await;
        row.map(|row| row.get(0)).map_err(|error| failure(&error))
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
        let gone = self.client().query(&self.statements.give_up, &[&id]).await;
        self.is_waiting.store(false, Ordering::Relaxed);
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

/// From when on the server grants; `None` where it does already.
async fn ready_at(clock: &Clock, client: &Client, max_ttl: Duration) -> Result<Option<Moment>> {
    let max_ttl = i64::try_from(max_ttl.as_millis()).unwrap_or(i64::MAX);
    // Sent at once, without being prepared first.
    let rows = client.query_typed("select fencepost.ready_in($1)", &[(&max_ttl, Type::INT8)]).await;
    let rows = rows.map_err(|error| missing_rights(&error))?;
    let left: i64 = rows.first().map_or(0, |row| row.get(0));
    let left = u64::try_from(left).ok().filter(|left| *left > 0);
    Ok(left.map(|left| clock.now().after(Duration::from_millis(left + left / 1_000))))
}

/// Whether a session works by the settings that `terms` ask for.
///
/// # Errors
/// `Unsupported` that names the setting.
pub(crate) async fn check_settings(client: &Client, host: &Host, terms: Terms) -> Result<()> {
    Facts::read(client).await?.check(host, terms)
}

/// What a server says of itself and of the session.
struct Facts {
    pid: i32,
    is_standby: bool,
    has_schema: bool,
    deadlock_timeout: Duration,
    settings: SimpleQueryRow,
}

impl Facts {
    async fn read(client: &Client) -> Result<Self> {
        // All in one look: the view makes all of the server's settings for each.
        let settings = settings::names()
            .into_iter()
            .map(|name| format!("pg_catalog.max(setting) filter (where name = '{name}') as {name}"));
        let sql = format!(
            "select pg_catalog.pg_backend_pid() as pid, pg_catalog.pg_is_in_recovery() as is_standby,
                pg_catalog.to_regclass('fencepost.installation') is not null as has_schema, {}
                from pg_catalog.pg_settings",
            settings.collect::<Vec<_>>().join(", ")
        );
        // Without the right to use the schema nobody is even told whether it is there.
        let messages = client.simple_query(&sql).await.map_err(|error| missing_rights(&error))?;
        let row = messages.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let settings = row.ok_or_else(|| unexpected("it says nothing of itself"))?;
        let number = |name: &str| settings.get(name).and_then(|text| text.parse::<i64>().ok());
        let is = |name: &str| settings.get(name) == Some("t");
        let deadlock_timeout = number("deadlock_timeout").and_then(|ms| u64::try_from(ms).ok());
        Ok(Self {
            pid: number("pid").and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default(),
            is_standby: is("is_standby"),
            has_schema: is("has_schema"),
            deadlock_timeout: Duration::from_millis(deadlock_timeout.unwrap_or(1_000)),
            settings,
        })
    }

    fn check(&self, host: &Host, terms: Terms) -> Result<()> {
        if self.is_standby {
            let hint = "name the primary, or all hosts: postgres://h1,h2/db takes the one that is";
            return Err(
                unavailable(format!("{host} is a standby, and only a primary can hold a lock")).hint(hint)
            );
        }
        settings::check(terms, |name| self.settings.get(name).map(ToOwned::to_owned))
    }
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
