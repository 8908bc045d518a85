//! What is added to ZooKeeper's own numbers so that tokens are on the scale of all backends: microseconds since 1970.
//!
//! The number of the transaction that made a place grows with every write to the ensemble, over the deletion of nodes too. The offset
//! of a lock is in its node; the greatest one that a clock has asked for is in the root as well, so that a node that somebody has
//! deleted begins where it was. Invariant: an offset is never lowered; and no two places of a lock have the same token, though several
//! that share it may come to theirs with different offsets.

use fencepost_core::{Clock, Error, ErrorKind, FencingToken, Result};

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::failure::{fine, garbled, lost_touch, refused};
use crate::nodes;
use crate::protocol::{Answer, Code, Request};
use crate::record::LockRecord;
use crate::seen::Seen;

/// How far tokens may lag behind the wall clock before the offset is raised.
const LAG_MOST_MICROS: u64 = 60_000_000;

/// The token of a place, where the lock's offset is good enough as it is.
pub(crate) fn token(record: &LockRecord, made_by: i64, clock: &Clock) -> Option<FencingToken> {
    record.token(made_by).filter(|token| token.get().saturating_add(LAG_MOST_MICROS) >= clock.wall_micros())
}

/// Whoever needs a greater offset.
#[derive(Clone, Copy)]
pub(crate) struct Need<'a> {
    /// The path of the place, in whose way nobody stands.
    pub(crate) path: &'a str,
    pub(crate) made_by: i64,
    /// What the offset is to be at least, whatever the clock says.
    pub(crate) least: Option<u64>,
}

/// The least offset with which no place gets a token that another one may have with the present offset: `first` is the number of the
/// first place of the queue. Nobody makes so many changes as are added between the look and the raise.
pub(crate) fn beyond(seen: &Seen, first: i64) -> Option<u64> {
    let spread = u64::try_from(seen.last.saturating_sub(first)).ok()?;
    let offset = seen.record.offset?.checked_add(spread)?;
    offset.checked_add(LAG_MOST_MICROS)
}

/// Raises the offset of a lock to the wall clock, for a place in whose way nobody stands. The new token; `None` where something has
/// changed meanwhile, and it is to be looked at again.
///
/// # Cancel safety
/// A dropped call may or may not have raised it.
pub(crate) async fn raise(
    connection: &Connection,
    endpoint: &Endpoint,
    clock: &Clock,
    lock: &str,
    seen: &Seen,
    need: Need<'_>,
) -> Result<Option<FencingToken>> {
    let Need { path, made_by, .. } = need;
    let wall = clock.wall_micros().min(FencingToken::MAX);
    let Some(of_all) = raise_all(connection, &nodes::root(&endpoint.chroot), wall, need).await? else {
        return Ok(None);
    };
    let mut record = seen.record.clone();
    record.offset = record.offset.max(Some(of_all));
    let token = record.token(made_by).ok_or_else(exhausted)?;
    let change = [Request::check(path, -1), Request::set_data(lock, &record.bytes(), seen.version)];
    let answer = connection.call(&Request::all(&change)).await.map_err(|broken| lost_touch(&broken))?;
    Ok(if is_done(&answer)? { Some(token) } else { None })
}

/// The offset of all locks, raised where a place would lag with it.
async fn raise_all(
    connection: &Connection,
    root: &str,
    wall: u64,
    Need { made_by, least, .. }: Need<'_>,
) -> Result<Option<u64>> {
    let number = u64::try_from(made_by).unwrap_or_default();
    let (bytes, stat) = fine(connection.call(&Request::data(root, false)).await)?.data().map_err(garbled)?;
    let mut all = LockRecord::read(&bytes);
    let current = all.offset.unwrap_or_default();
    let lags = current.saturating_add(number).saturating_add(LAG_MOST_MICROS) < wall;
    if !lags && Some(current) >= least {
        return Ok(Some(current));
    }
    let raised = wall.saturating_sub(number).max(current).max(least.unwrap_or_default());
    all.offset = Some(raised);
    let answer = connection.call(&Request::set_data(root, &all.bytes(), stat.version)).await;
    let answer = answer.map_err(|broken| lost_touch(&broken))?;
    match answer.code {
        Code::OK => Ok(Some(raised)),
        Code::BAD_VERSION => Ok(None),
        code => Err(refused(code)),
    }
}

/// Whether a transaction was carried out; if not, since something had changed before it.
///
/// # Errors
/// Where that is not why.
pub(crate) fn is_done(answer: &Answer) -> Result<bool> {
    match answer.failed_part().map_err(garbled)? {
        None => Ok(true),
        Some((_, Code::NO_NODE | Code::BAD_VERSION)) => Ok(false),
        Some((_, code)) => Err(refused(code)),
    }
}

/// The offset with which a place of this number gets a token of at least `to`.
pub(crate) fn reaching(to: FencingToken, number: i64) -> u64 {
    to.get().saturating_sub(u64::try_from(number).unwrap_or_default())
}

fn exhausted() -> Error {
    let what = format!("there is none left: the next one would be above {}", FencingToken::MAX);
    Error::new(ErrorKind::Unexpected, "draw a fencing token", what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn place_that_comes_late_to_a_greater_offset_draws_no_token_of_another(
            offset in 0..2_000_000_000_000_000_u64,
            first in 1..9_000_000_000_i64,
            others in prop::collection::vec(0..9_000_000_000_i64, 1..5),
        ) {
            let numbers: Vec<i64> = others.iter().map(|other| first + other).collect();
            let mut seen = Seen::default();
            seen.last = *numbers.iter().max().unwrap();
            seen.record.offset = Some(offset);
            let before: Vec<_> = numbers.iter().map(|number| seen.record.token(*number).unwrap()).collect();
            seen.record.offset = beyond(&seen, first);
            for late in numbers.iter().chain([&first]) {
                let token = seen.record.token(*late).unwrap();
                prop_assert!(before.iter().all(|before| *before < token));
            }
        }
    }
}
