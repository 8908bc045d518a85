//! Looking at the locks of one cluster, changing nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::{Error, LockName, LockState, NamePrefix, Result, Status, Waiter};
use futures_util::StreamExt;

use crate::generated::{LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest};
use crate::keys::{self, Keys};
use crate::members::Failed;
use crate::record::Place;
use crate::requests::all;
use crate::server::{ONCE, Server};

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

/// The state of one lock.
///
/// # Cancel safety
/// Dropping it changes nothing.
pub(crate) async fn one(server: &Server, name: &LockName) -> Result<LockState> {
    let places = queue(server, name).await?;
    let mut state = state(name.clone(), &places, server.clock().wall_micros());
    if let Some(first) = places.first().filter(|_| state.status == Status::Held) {
        state.remaining = Some(remaining(server, first.lease).await?);
    }
    Ok(state)
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
        let mut state = state(name, &queue, wall);
        if let Some(first) = queue.first().filter(|_| state.status == Status::Held) {
            state.remaining = Some(remaining(server, first.lease).await?);
        }
        Ok::<_, Error>(state)
    });
    let looked: Vec<Result<LockState>> =
        futures_util::stream::iter(looked).buffered(AT_ONCE).collect::<Vec<_>>().await;
    looked.into_iter().collect()
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

fn state(name: LockName, places: &[Place], wall: u64) -> LockState {
    let mut state = LockState::free(name);
    let Some((first, waiting)) = places.split_first() else { return state };
    state.waiters = waiting.iter().map(waiter).collect();
    state.token = first.token();
    let Some(record) = &first.record else { return state };
    if let Some(until) = record.rests_until {
        state.status = Status::Resting;
        state.remaining = Some(Duration::from_micros(until.saturating_sub(wall)));
        return state;
    }
    state.status = Status::Held;
    state.holder = Some(record.holder);
    state.label = Some(record.label.clone());
    state.since_micros = Some(record.since);
    state
}

fn waiter(place: &Place) -> Waiter {
    let record = place.record.as_ref();
    Waiter {
        holder: place.holder(),
        label: record.map(|record| record.label.clone()),
        since_micros: record.map(|record| record.since),
    }
}

/// How long a lease lasts at most if nothing is done: etcd leaves out the parts of a second.
async fn remaining(server: &Server, lease: i64) -> Result<Duration> {
    let request = || LeaseTimeToLiveRequest { id: lease };
    let asking = server.members().call::<_, LeaseTimeToLiveResponse>(TIME_TO_LIVE, request, ONCE);
    let answer = asking.await.map_err(Failed::error)?.message;
    let seconds = (answer.ttl + 1).min(answer.granted_ttl);
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}
