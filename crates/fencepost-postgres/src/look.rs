//! Looking at locks, changing nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::{
    FencingToken, HolderId, LockName, LockState, NamePrefix, Reader, Result, Status, Waiter,
};
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
    /// The last grant to somebody who had it alone; it is told of where nobody holds it.
    last: Option<Grant>,
    rests: Duration,
    /// One who holds it alone, or all who share it.
    holding: Vec<Holding>,
    waiters: Vec<Waiter>,
}

/// A session that holds a lock.
struct Holding {
    shares: bool,
    /// How long it has been idle.
    idle: Option<Duration>,
    /// What is written of its grant, where something is.
    grant: Option<Grant>,
}

/// What is written of a grant.
#[derive(Clone)]
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
            holding: Vec::new(),
            waiters: Vec::new(),
        });
        match (row.get::<_, Option<i32>>("pid"), row.get::<_, Option<bool>>("holds")) {
            (Some(pid), Some(true)) => seen.holding.push(Holding {
                shares: row.get::<_, Option<bool>>("shares") == Some(true),
                idle: millis(row.get("idle_ms")),
                grant: Grant::read(row).filter(|grant| grant.pid == pid),
            }),
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

impl Holding {
    /// How long until it ends if nothing is done. Only a session that is ended when it is idle runs out.
    fn remaining(&self) -> Option<Duration> {
        let ttl = self.grant.as_ref().map(|grant| grant.ttl).filter(|ttl| !ttl.is_zero());
        Some(ttl?.saturating_sub(self.idle?))
    }

    fn reader(&self) -> Option<Reader> {
        let Grant { token, holder, label, since_micros, .. } = self.grant.clone()?;
        let remaining = self.remaining();
        Some(Reader { holder: holder?, label: Some(label), token: token?, since_micros, remaining })
    }
}

impl Seen {
    /// Whether what is written and the lock table speak of the same grants.
    fn is_settled(&self) -> bool {
        self.holding.iter().all(|holding| holding.grant.is_some())
    }

    fn state(mut self) -> LockState {
        let mut state = LockState::free(self.name);
        state.waiters = self.waiters;
        self.holding.sort_by_key(|holding| holding.grant.as_ref().map(|grant| grant.token));
        if self.holding.iter().any(|holding| holding.shares) {
            state.readers = self.holding.iter().filter_map(Holding::reader).collect();
        }
        if !self.holding.is_empty() {
            state.status = Status::Held;
            if let Some(first) = self.holding.iter().find(|holding| holding.grant.is_some()) {
                let grant = first.grant.as_ref();
                state.remaining = first.remaining();
                state.token = grant.and_then(|grant| grant.token);
                state.holder = grant.and_then(|grant| grant.holder);
                state.label = grant.map(|grant| grant.label.clone());
                state.since_micros = grant.and_then(|grant| grant.since_micros);
            }
        } else if !self.rests.is_zero() {
            state.status = Status::Resting;
            state.token = self.last.and_then(|last| last.token);
            state.remaining = Some(self.rests);
        }
        state
    }
}
