//! One lock as one look at it shows it: who stands in its queue, and what its node says.
//!
//! Invariant: queue and record are of the same moment, so that nobody is taken for the first who comes before a rest that its
//! predecessor has left, and no token is counted with an offset from after its grant.

use fencepost_core::Result;

use crate::connection::{Batch, Broken, Call, Connection};
use crate::failure::{garbled, lost_touch, refused};
use crate::nodes::{self, Place};
use crate::protocol::{Answer, Code, Request};
use crate::record::{LockRecord, Rest};

/// A look at a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Who stands in the queue, the holder first.
    pub(crate) queue: Vec<Place>,
    pub(crate) record: LockRecord,
    /// The version of the record, and the transaction that made the lock's node.
    pub(crate) version: i32,
    made_by: i64,
    /// The last transaction that the server had seen.
    pub(crate) last: i64,
    /// The watch that the record was read behind, where it was.
    pub(crate) vigil: Option<u64>,
}

/// A record that was seen before, which need not be asked for again while the node has the same version.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    record: LockRecord,
    version: i32,
    made_by: i64,
}

/// A look that is under way.
pub(crate) struct Look {
    children: Call,
    record: Source,
    vigil: Option<u64>,
}

/// Where the record comes from.
enum Source {
    Asked(Call),
    Known(Known),
}

impl Look {
    pub(crate) fn begin(batch: &mut Batch<'_>, lock: &str) -> Self {
        let children = batch.call(&Request::children(lock));
        Self { children, record: Source::Asked(batch.call(&Request::data(lock, false))), vigil: None }
    }

    /// The same, with what is known of the record, or where nothing is with a watch over it.
    pub(crate) fn begin_with(
        batch: &mut Batch<'_>,
        lock: &str,
        known: std::result::Result<Known, u64>,
    ) -> Self {
        let children = batch.call(&Request::children(lock));
        match known {
            Ok(known) => Self { children, record: Source::Known(known), vigil: None },
            Err(vigil) => {
                let record = Source::Asked(batch.call(&Request::data(lock, true)));
                Self { children, record, vigil: Some(vigil) }
            }
        }
    }

    /// What is seen; `None` where the lock has no node.
    pub(crate) async fn end(self, connection: &Connection, lock: &str) -> Result<Option<Seen>> {
        let mut under_way = self;
        loop {
            let Self { children, record, vigil } = under_way;
            let children = children.await.map_err(|broken| lost_touch(&broken))?;
            let known = match record {
                Source::Known(known) => Some(known),
                Source::Asked(call) => answered(call.await)?,
            };
            match children.code {
                Code::OK => {}
                Code::NO_NODE => return Ok(None),
                code => return Err(refused(code)),
            }
            let (names, stat) = children.children().map_err(garbled)?;
            let is_same = |known: &Known| (known.version, known.made_by) == (stat.version, stat.made_by);
            if let Some(Known { record, version, made_by }) = known.filter(is_same) {
                let queue = nodes::queue(&names);
                return Ok(Some(Seen { queue, record, version, made_by, last: children.seen, vigil }));
            }
            // Somebody has written between the two, or since it was known.
            under_way = Self::begin(&mut connection.batch(), lock);
        }
    }
}

/// The record in an answer; `None` where there is no node.
fn answered(answer: Result<Answer, Broken>) -> Result<Option<Known>> {
    let answer = answer.map_err(|broken| lost_touch(&broken))?;
    match answer.code {
        Code::OK => {
            let (bytes, stat) = answer.data().map_err(garbled)?;
            let (version, made_by) = (stat.version, stat.made_by);
            Ok(Some(Known { record: LockRecord::read(&bytes), version, made_by }))
        }
        Code::NO_NODE => Ok(None),
        code => Err(refused(code)),
    }
}

impl Known {
    /// The transaction that made the lock's node.
    pub(crate) fn made_by(&self) -> i64 {
        self.made_by
    }

    /// What a look shows that finds this queue, at the time of the transaction `last`. What is behind in it need not be there.
    pub(crate) fn seen_with(self, queue: Vec<Place>, last: i64) -> Seen {
        let Self { record, version, made_by } = self;
        Seen { queue, record, version, made_by, last, vigil: None }
    }
}

impl Seen {
    /// The transaction that made the lock's node.
    pub(crate) fn lock_made_by(&self) -> i64 {
        self.made_by
    }

    /// What is known of the record from now on.
    pub(crate) fn known(&self) -> Known {
        Known { record: self.record.clone(), version: self.version, made_by: self.made_by }
    }

    /// Looks at a lock, after the server has caught up with the leader.
    pub(crate) async fn anew(connection: &Connection, lock: &str) -> Result<Option<Self>> {
        let (synced, under_way) = {
            let mut batch = connection.batch();
            (batch.call(&Request::sync(lock)), Look::begin(&mut batch, lock))
        };
        synced.await.map_err(|broken| lost_touch(&broken))?;
        under_way.end(connection, lock).await
    }

    /// That the lock rests, at this moment of the wall clock.
    pub(crate) fn rest(&self, now_micros: u64) -> Option<&Rest> {
        self.record.rest.as_ref().filter(|rest| rest.until_micros > now_micros)
    }
}
