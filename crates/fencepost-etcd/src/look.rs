//! Looking at the locks of one cluster, changing nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::{FencingToken, LockName, LockState, Mode, NamePrefix, Reader, Result, Status, Waiter};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::generated::{LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest};
use crate::grpc::framed;
use crate::keys::{self, Keys};
use crate::members::Failed;
use crate::record::Place;
use crate::requests::all;
use crate::server::{FOR_A_WHILE, ONCE, Server};

const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";

/// How many keys are read at once.
const PAGE: i64 = 5_000;

/// How many leases are asked for at once.
const AT_ONCE: usize = 64;

/// The queue of one lock, in its order.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn queue(server: &Server, name: &LockName) -> Result<Vec<Place>> {
    let queue = Keys::of(server.root(), name).queue();
    let found = server.read(&all(&queue), ONCE).await.map_err(Failed::error)?;
    Ok(found.kvs.iter().filter_map(Place::read).collect())
}

/// The place of whoever holds the lock with this token.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn holder(server: &Server, name: &LockName, token: FencingToken) -> Result<Option<Place>> {
    let mut places = queue(server, name).await?;
    places.truncate(holders(&places));
    Ok(places.into_iter().find(|place| place.token() == Some(token)))
}

/// How many of a queue hold the lock: a writer that is the first, or all readers before the first writer.
fn holders(queue: &[Place]) -> usize {
    let readers = queue.iter().take_while(|place| place.mode == Mode::Shared).count();
    readers.max(queue.len().min(1))
}

/// The state of one lock.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn one(server: &Server, name: &LockName) -> Result<LockState> {
    let places = queue(server, name).await?;
    state(server, name.clone(), places, server.clock().wall_micros()).await
}

/// The states of all locks that are not free.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn list(server: &Server, prefix: &NamePrefix) -> Result<Vec<LockState>> {
    let mut queues: BTreeMap<LockName, Vec<Place>> = BTreeMap::new();
    for place in places(server).await? {
        let Some(name) = place.record.as_ref().map(|record| record.name.clone()) else { continue };
        let is_where_it_says = place.key.starts_with(Keys::of(server.root(), &name).queue().as_bytes());
        if is_where_it_says && prefix.matches(&name) {
            queues.entry(name).or_default().push(place);
        }
    }
    let wall = server.clock().wall_micros();
    let looked = queues.into_iter().map(|(name, mut queue)| async move {
        queue.sort_by_key(|place| place.created);
        state(server, name, queue, wall).await
    });
    stream::iter(looked).buffered(AT_ONCE).try_collect().await
}

/// All places in all queues, as of one revision.
async fn places(server: &Server) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    let mut request = RangeRequest {
        key: server.root().into(),
        range_end: keys::end_of_names(server.root()),
        limit: PAGE,
        ..RangeRequest::default()
    };
    loop {
        let page = server.read(&request, ONCE).await.map_err(Failed::error)?;
        places.extend(page.kvs.iter().filter_map(Place::read));
        let Some(last) = page.kvs.last().filter(|_| page.more) else { return Ok(places) };
        request.key.clone_from(&last.key);
        // The next key is the last one with one byte more.
        request.key.push(0);
        request.revision = page.header.unwrap_or_default().revision.max(request.revision);
    }
}

async fn state(server: &Server, name: LockName, mut queue: Vec<Place>, wall: u64) -> Result<LockState> {
    let mut state = LockState::free(name);
    let waiting = queue.split_off(holders(&queue));
    let Some(first) = queue.first() else { return Ok(state) };
    let mode = first.mode;
    state.waiters = waiting.iter().map(waiter).collect();
    if let Some(until) = first.record.as_ref().and_then(|record| record.rests_until) {
        state.status = Status::Resting;
        state.token = first.token();
        state.remaining = Some(Duration::from_micros(until.saturating_sub(wall)));
        return Ok(state);
    }
    let looked = stream::iter(queue.into_iter().map(|place| reader(server, place))).buffered(AT_ONCE);
    let readers: Vec<Option<Reader>> = looked.try_collect().await?;
    let mut readers: Vec<Reader> = readers.into_iter().flatten().collect();
    readers.sort_by_key(|reader| reader.token);
    if let Some(first) = readers.first() {
        state.status = Status::Held;
        state.holder = Some(first.holder);
        state.label.clone_from(&first.label);
        state.token = Some(first.token);
        state.since_micros = first.since_micros;
        state.remaining = first.remaining;
    }
    if mode == Mode::Shared {
        state.readers = readers;
    }
    Ok(state)
}

/// Whoever has a place that holds the lock; `None` where what is written there cannot be read.
async fn reader(server: &Server, place: Place) -> Result<Option<Reader>> {
    let Some(token) = place.token() else { return Ok(None) };
    let Some(record) = place.record else { return Ok(None) };
    let remaining = Some(remaining(server, place.lease).await?);
    let (label, since_micros) = (Some(record.label), Some(record.since));
    Ok(Some(Reader { holder: record.holder, label, token, since_micros, remaining }))
}

fn waiter(place: &Place) -> Waiter {
    let record = place.record.as_ref();
    Waiter {
        holder: place.holder(),
        label: record.map(|record| record.label.clone()),
        since_micros: record.map(|record| record.since),
    }
}

/// How long a lease lasts at most if nothing is done: etcd leaves out the parts of a second. The server has just answered, and one
/// answer of thousands that is late is no reason to give none.
async fn remaining(server: &Server, lease: i64) -> Result<Duration> {
    let request = || framed(&LeaseTimeToLiveRequest { id: lease });
    let asking = server.members().call::<LeaseTimeToLiveResponse>(TIME_TO_LIVE, request, FOR_A_WHILE);
    let answer = asking.await.map_err(Failed::error)?.message;
    let seconds = (answer.ttl + 1).min(answer.granted_ttl);
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}
