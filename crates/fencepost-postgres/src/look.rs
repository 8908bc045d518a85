//! Looking at locks, changing nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::{FencingToken, HolderId, LockName, LockState, NamePrefix, Result, Status, Waiter};
use tokio_postgres::Row;

use crate::schema::missing_rights;
use crate::session::Session;

const LOOK: &str = include_str!("../sql/look.sql");

/// How often it is looked again where a lock changes hands in that moment.
const LOOKS: usize = 5;

/// Which locks to look at.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    One(&'a LockName),
    All(&'a NamePrefix),
}

/// The states of locks that are known, in the order of their names.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn look(session: &Session, wanted: Wanted<'_>) -> Result<Vec<LockState>> {
    let (names, prefix) = match wanted {
        Wanted::One(name) => (Some(vec![name.as_str()]), ""),
        Wanted::All(prefix) => (None, prefix.as_str()),
    };
    for last in (0..LOOKS).rev() {
        let rows = session.client().query(LOOK, &[&names, &prefix]).await;
        let seen = read(&rows.map_err(|error| missing_rights(&error))?);
        if last == 0 || seen.iter().all(Seen::is_settled) {
            return Ok(seen.into_iter().map(Seen::state).collect());
        }
    }
    Ok(Vec::new())
}

/// What is seen of one lock.
struct Seen {
    name: LockName,
    last: Option<Grant>,
    rests: Duration,
    /// The server's process that holds it, and how long its session has been idle.
    holding: Option<(i32, Option<Duration>)>,
    waiters: Vec<Waiter>,
}

/// What the row of a lock says of its last grant.
struct Grant {
    pid: i32,
    token: Option<FencingToken>,
    since_micros: Option<u64>,
    ttl: Duration,
    holder: Option<HolderId>,
    label: String,
}

impl Grant {
    fn read(row: &Row) -> Option<Self> {
        let unsigned = |name| row.get::<_, Option<i64>>(name).and_then(|number| u64::try_from(number).ok());
        let mut parts = row.get::<_, Option<&str>>("who")?.splitn(3, ' ');
        let mut next = || parts.next();
        Some(Self {
            pid: row.get::<_, Option<i32>>("last_pid")?,
            token: unsigned("held").and_then(|token| token.try_into().ok()),
            since_micros: unsigned("held_since"),
            ttl: Duration::from_millis(next()?.parse().ok()?),
            holder: next()?.parse().ok(),
            label: next()?.to_owned(),
        })
    }
}

fn read(rows: &[Row]) -> Vec<Seen> {
    let mut all: BTreeMap<LockName, Seen> = BTreeMap::new();
    for row in rows {
        let Ok(name) = row.get::<_, &str>("name").parse::<LockName>() else { continue };
        let seen = all.entry(name).or_insert_with_key(|name| Seen {
            name: name.clone(),
            last: Grant::read(row),
            rests: millis(row.get("rests")).unwrap_or_default(),
            holding: None,
            waiters: Vec::new(),
        });
        match (row.get::<_, Option<i32>>("pid"), row.get::<_, Option<bool>>("holds")) {
            (Some(pid), Some(true)) => seen.holding = Some((pid, millis(row.get("idle_ms")))),
            (Some(_), _) => seen.waiters.push(waiter(row)),
            (None, _) => {}
        }
    }
    all.into_values().collect()
}

fn waiter(row: &Row) -> Waiter {
    Waiter {
        holder: row.get::<_, Option<&str>>("holder").and_then(|holder| holder.parse().ok()),
        label: row.get("label"),
        since_micros: row.get::<_, Option<i64>>("waits_since").and_then(|since| u64::try_from(since).ok()),
    }
}

fn millis(ms: Option<i64>) -> Option<Duration> {
    ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()))
}

impl Seen {
    /// Whether the row and the lock table speak of one grant.
    fn is_settled(&self) -> bool {
        match (&self.holding, &self.last) {
            (Some((pid, _)), Some(last)) => last.pid == *pid,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    fn state(self) -> LockState {
        let is_settled = self.is_settled();
        let mut state = LockState::free(self.name);
        state.waiters = self.waiters;
        if let Some((_, idle)) = self.holding {
            state.status = Status::Held;
            if let Some(last) = self.last.filter(|_| is_settled) {
                state.token = last.token;
                state.holder = last.holder;
                state.label = Some(last.label);
                state.since_micros = last.since_micros;
                // Only a session that is ended when it is idle runs out.
                state.remaining =
                    idle.filter(|_| !last.ttl.is_zero()).map(|idle| last.ttl.saturating_sub(idle));
            }
        } else if !self.rests.is_zero() {
            state.status = Status::Resting;
            state.token = self.last.and_then(|last| last.token);
            state.remaining = Some(self.rests);
        }
        state
    }
}
