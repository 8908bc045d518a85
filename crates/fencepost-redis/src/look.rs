//! Looking at the locks of one server, changing nothing.

use std::time::Duration;

use fencepost_core::{LockName, LockState, NamePrefix, Reader, Result, Status, Waiter};

use crate::failure::{lost_touch, refuse, unexpected};
use crate::keys::{self, LockKey};
use crate::record::{Record, State, read_waiter};
use crate::resp::Reply;
use crate::script;
use crate::server::Server;
use crate::session::Session;

/// How many locks are looked at in one script.
pub(crate) const BATCH: usize = 200;

/// The states of locks, in the order of `names`.
pub(crate) async fn look(server: &Server, session: &Session, names: &[LockName]) -> Result<Vec<LockState>> {
    let all: Vec<LockKey> = names.iter().map(LockKey::of).collect();
    let mut keys = vec![keys::INCARNATION];
    keys.extend(all.iter().map(|key| &**key));
    let reply = session.connection.run(&script::INSPECT, &keys, &[]).await;
    let reply = reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
    let [now, record, locks @ ..] = reply.list() else { return Err(unexpected("inspect.lua", &reply)) };
    let quarantine = quarantine(server, session, now.number().unwrap_or_default(), record.text());
    Ok(names.iter().zip(locks).map(|(name, lock)| state(name, lock.list(), quarantine)).collect())
}

/// The names of all locks that have a record.
pub(crate) async fn names(session: &Session, prefix: &NamePrefix) -> Result<Vec<LockName>> {
    let mut names = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let scan: [&[u8]; 6] =
            [b"SCAN", cursor.as_bytes(), b"MATCH", keys::ALL_LOCKS.as_bytes(), b"COUNT", b"1000"];
        let reply =
            session.connection.call(&scan).await.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
        let [next, found] = reply.list() else { return Err(unexpected("SCAN", &reply)) };
        let mut get: Vec<&[u8]> = vec![b"MGET"];
        get.extend(found.list().iter().filter_map(Reply::text).map(str::as_bytes));
        if get.len() > 1 {
            let records = session.connection.call(&get).await;
            let records = records.map_err(|broken| lost_touch(&broken)).and_then(refuse)?;
            let owners = records.list().iter().filter_map(|record| Record::read(record.text()?)?.owner);
            names.extend(owners.map(|owner| owner.name).filter(|name| prefix.matches(name)));
        }
        next.text().unwrap_or("0").clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// The server grants nothing.
#[derive(Clone, Copy)]
struct Quarantine {
    /// For how long, where that is known.
    left: Option<Duration>,
}

/// Whether the server is in quarantine. Where its record is not the one that was learned, whoever acquires next begins one.
fn quarantine(server: &Server, session: &Session, now: i64, record: Option<&str>) -> Option<Quarantine> {
    if !server.options().has_quarantine {
        return None;
    }
    if record != Some(&session.incarnation.record) {
        return Some(Quarantine { left: None });
    }
    let left = session.incarnation.ready_at_ms - now;
    if server.options().is_node && session.incarnation.is_unseeded() && left <= 0 {
        return Some(Quarantine { left: None });
    }
    (left > 0).then(|| Quarantine { left: Some(Duration::from_millis(left.unsigned_abs())) })
}

fn state(name: &LockName, seen: &[Reply], quarantine: Option<Quarantine>) -> LockState {
    let mut state = LockState::free(name.clone());
    let [record, left, waiters, readers] = seen else { return state };
    state.waiters = waiters.list().chunks_exact(2).map(waiter).collect();
    let record = record.text().and_then(Record::read);
    state.readers = readers.list().chunks_exact(2).filter_map(reader).collect();
    state.readers.sort_by_key(|reader| reader.token);
    let is_held = |record: &Record| match record.state {
        State::Held | State::Rests => true,
        State::Shared => !state.readers.is_empty(),
        State::Reserved => false,
    };
    let Some(record) = record.filter(is_held) else {
        if let Some(Quarantine { left }) = quarantine {
            state.status = Status::Quarantined;
            state.remaining = left;
        }
        return state;
    };
    if let Some(first) = state.readers.first().cloned() {
        state.status = Status::Held;
        state.holder = Some(first.holder);
        state.label = first.label;
        state.token = Some(first.token);
        state.since_micros = first.since_micros;
        state.remaining = duration(left);
        return state;
    }
    state.status = if record.state == State::Rests { Status::Resting } else { Status::Held };
    state.token = record.token;
    state.remaining = duration(left);
    if state.status == Status::Held {
        state.holder = record.holder;
        state.since_micros = record.since_micros;
        state.label = record.owner.map(|owner| owner.label);
    }
    state
}

fn duration(ms: &Reply) -> Option<Duration> {
    ms.number().and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
}

/// One who shares the lock; nothing where it is only reserved for it.
fn reader(seen: &[Reply]) -> Option<Reader> {
    let record = seen[0].text().and_then(Record::read).filter(|record| record.state == State::Held)?;
    Some(Reader {
        holder: record.holder?,
        label: record.owner.map(|owner| owner.label),
        token: record.token?,
        since_micros: record.since_micros,
        remaining: duration(&seen[1]),
    })
}

fn waiter(seen: &[Reply]) -> Waiter {
    let known = seen[1].text().and_then(read_waiter);
    let (since_micros, owner) = known.unzip();
    Waiter {
        holder: seen[0].text().and_then(|holder| holder.parse().ok()),
        label: owner.map(|owner| owner.label),
        since_micros,
    }
}
