//! Looking at locks, changing nothing.

use std::time::Duration;

use fencepost_core::{FencingToken, LockName, LockState, Mode, NamePrefix, Reader, Result, Status, Waiter};

use crate::connection::{Call, Connection};
use crate::failure::{fine, garbled, lost_touch, refused};
use crate::nodes::{self, Place};
use crate::protocol::{Code, Request, Stat};
use crate::record::PlaceRecord;
use crate::seen::{Look, Seen};

/// How many locks are looked at at once.
const BATCH: usize = 250;

/// A place as its node shows it.
pub(crate) struct Standing {
    pub(crate) place: Place,
    pub(crate) record: PlaceRecord,
    pub(crate) stat: Stat,
}

/// The state of one lock.
pub(crate) async fn look_at(
    connection: &Connection,
    chroot: &str,
    name: &LockName,
    now_micros: u64,
) -> Result<LockState> {
    let lock = nodes::lock(chroot, name);
    let Some(seen) = Seen::anew(connection, &lock).await? else { return Ok(LockState::free(name.clone())) };
    let standing = begin(connection, &lock, &seen);
    Ok(state(name.clone(), &seen, &end(standing).await?, now_micros))
}

/// The states of all locks whose names begin with `prefix` and that are not free, in the order of their names.
pub(crate) async fn look_at_all(
    connection: &Connection,
    chroot: &str,
    prefix: &NamePrefix,
    now_micros: u64,
) -> Result<Vec<LockState>> {
    let root = nodes::root(chroot);
    let (synced, children) = {
        let mut batch = connection.batch();
        (batch.call(&Request::sync(&root)), batch.call(&Request::children(&root)))
    };
    synced.await.map_err(|broken| lost_touch(&broken))?;
    let answer = children.await.map_err(|broken| lost_touch(&broken))?;
    let names = match answer.code {
        Code::OK => answer.children().map_err(garbled)?.0,
        Code::NO_NODE => Vec::new(),
        code => return Err(refused(code)),
    };
    let mut states = Vec::new();
    for names in names.chunks(BATCH) {
        states.extend(look_at_batch(connection, &root, names, prefix, now_micros).await?);
    }
    states.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(states)
}

async fn look_at_batch(
    connection: &Connection,
    root: &str,
    names: &[String],
    prefix: &NamePrefix,
    now_micros: u64,
) -> Result<Vec<LockState>> {
    let locks: Vec<String> = names.iter().map(|name| format!("{root}/{name}")).collect();
    let under_way: Vec<Look> = {
        let mut batch = connection.batch();
        locks.iter().map(|lock| Look::begin(&mut batch, lock)).collect()
    };
    let mut found = Vec::new();
    for ((one, lock), spelled) in under_way.into_iter().zip(&locks).zip(names) {
        let Some(seen) = one.end(connection, lock).await? else { continue };
        let Some(name) = name_of(&seen, spelled).filter(|name| prefix.matches(name)) else { continue };
        if !seen.queue.is_empty() || seen.rest(now_micros).is_some() {
            let standing = begin(connection, lock, &seen);
            found.push((name, seen, standing));
        }
    }
    let mut states = Vec::with_capacity(found.len());
    for (name, seen, standing) in found {
        states.push(state(name, &seen, &end(standing).await?, now_micros));
    }
    states.retain(|state| matches!(state.status, Status::Held | Status::Resting));
    Ok(states)
}

/// The name of a lock, as it was given where that is known.
fn name_of(seen: &Seen, spelled: &str) -> Option<LockName> {
    let given = seen.record.name.clone().filter(|name| name.canonical() == spelled);
    given.or_else(|| nodes::name(spelled))
}

fn begin(connection: &Connection, lock: &str, seen: &Seen) -> Vec<(Place, Call)> {
    let mut batch = connection.batch();
    let ask = |place: &Place| {
        let path = format!("{lock}/{}", place.node);
        (place.clone(), batch.call(&Request::data(&path, false)))
    };
    seen.queue.iter().map(ask).collect()
}

async fn end(asked: Vec<(Place, Call)>) -> Result<Vec<Standing>> {
    let mut all = Vec::with_capacity(asked.len());
    for (place, call) in asked {
        match call.await.map_err(|broken| lost_touch(&broken))? {
            // It has gone meanwhile.
            answer if answer.code == Code::NO_NODE => {}
            answer => {
                let (bytes, stat) = fine(Ok(answer))?.data().map_err(garbled)?;
                all.push(Standing { place, record: PlaceRecord::read(&bytes), stat });
            }
        }
    }
    Ok(all)
}

/// Those who stand in a queue, the holder first.
pub(crate) async fn standing(connection: &Connection, lock: &str, seen: &Seen) -> Result<Vec<Standing>> {
    end(begin(connection, lock, seen)).await
}

/// Those of a queue who hold the lock; of several with the smallest number first. Whoever has been granted it by its own clock holds it,
/// whatever ours says of the rest before.
pub(crate) fn holders<'q>(seen: &Seen, queue: &'q [Standing], now_micros: u64) -> Vec<&'q Standing> {
    let rests = seen.rest(now_micros).is_some();
    let head = nodes::head(queue.iter().map(|standing| &standing.place));
    queue[..head].iter().filter(|standing| !rests || standing.record.granted.is_some()).collect()
}

/// The token of somebody who holds the lock. It is that of the present offset, until it has written it down.
pub(crate) fn token_of(seen: &Seen, holder: &Standing) -> Option<FencingToken> {
    let written = holder.record.granted.map(|granted| granted.token);
    written.or_else(|| seen.record.token(holder.stat.made_by))
}

fn state(name: LockName, seen: &Seen, queue: &[Standing], now_micros: u64) -> LockState {
    let mut state = LockState::free(name);
    let mut holders = holders(seen, queue, now_micros);
    holders.sort_by_key(|holder| token_of(seen, holder));
    let waits = |one: &&Standing| !holders.iter().any(|holder| holder.place == one.place);
    state.waiters = queue.iter().filter(waits).map(waiter).collect();
    if let Some(first) = holders.first() {
        state.status = Status::Held;
        state.holder = Some(first.place.holder);
        state.label = Some(first.record.label.clone());
        state.token = token_of(seen, first);
        state.since_micros = since(first);
        state.remaining = Some(remaining(first));
    } else if let Some(rest) = seen.rest(now_micros) {
        state.status = Status::Resting;
        state.token = Some(rest.token);
        state.remaining = Some(Duration::from_micros(rest.until_micros - now_micros));
    }
    let readers = holders.iter().filter(|holder| holder.place.mode == Mode::Shared);
    state.readers = readers.filter_map(|holder| reader(seen, holder)).collect();
    state
}

fn reader(seen: &Seen, holder: &Standing) -> Option<Reader> {
    Some(Reader {
        holder: holder.place.holder,
        label: Some(holder.record.label.clone()),
        token: token_of(seen, holder)?,
        since_micros: since(holder),
        remaining: Some(remaining(holder)),
    })
}

fn since(holder: &Standing) -> Option<u64> {
    let granted = holder.record.granted.map(|granted| granted.at_micros);
    granted.or_else(|| micros(holder.stat.made_at_ms))
}

fn remaining(holder: &Standing) -> Duration {
    Duration::from_millis(holder.record.ttl_ms)
}

fn waiter(standing: &Standing) -> Waiter {
    let Standing { place, record, .. } = standing;
    Waiter { holder: Some(place.holder), label: Some(record.label.clone()), since_micros: Some(record.asked) }
}

fn micros(ms: i64) -> Option<u64> {
    u64::try_from(ms).ok()?.checked_mul(1_000)
}
