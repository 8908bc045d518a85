//! One's own place in a queue: entering, looking who is ahead, settling the token, and leaving.
//!
//! Invariant: a token is settled in a transaction that sees the place as the first of the queue, and is above every offset that
//! was there then. Offsets never fall, so the next one is greater.

use fencepost_core::{FencingToken, Result};

use crate::failure::unexpected;
use crate::generated::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use crate::keys::Keys;
use crate::members::{Failed, Patience};
use crate::record::{Kept, Place, Record, token};
use crate::requests::{
    Done, all, created, delete, get, inner, is_empty, modified, newest_two, put, range, rewrite,
};
use crate::server::Server;

/// A place in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    server: Server,
    keys: Keys,
    pub(crate) key: String,
    pub(crate) created: i64,
    modified: i64,
    /// A revision at which it was seen as the first, once its token is settled.
    pub(crate) first_at: i64,
    pub(crate) record: Record,
}

/// Who is ahead of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    Nobody,
    /// The last of those who came before.
    Somebody(Place),
    /// A foreign key, which says nothing.
    Unknown,
}

/// What is seen of one's own place.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) ahead: Ahead,
    /// The offset of all locks, and that of this one.
    offsets: [Kept; 2],
    /// The wall clock when it was seen.
    wall: i64,
    revision: i64,
}

/// What an attempt to enter a queue came to.
pub(crate) enum Entry {
    In(Box<(Stand, Seen)>),
    /// Somebody is there, and whoever asked does not wait.
    Busy,
    /// Foreign keys are there, which cannot be told from a holder by a comparison.
    Foreign,
    /// The lease that was to keep the place is not there.
    NoLease,
}

/// What was answered to a request to enter, and whether an earlier copy of it may come later.
pub(crate) struct Entered {
    pub(crate) entry: Entry,
    pub(crate) is_late: bool,
}

/// How far a token may lag behind the wall clock: not at all for the first one of a client, so that a lock can move to another
/// backend and back. Later ones may by a second, since each change of the offset costs the other clients a request.
fn lag_most(server: &Server) -> i64 {
    if server.has_acquired() { 1_000_000 } else { 0 }
}

/// How often the offset may be changed by others while a token is settled.
const SETTLE_TRIES: usize = 20;

impl Stand {
    /// Enters the queue, or finds that it has been entered; where `if_free`, only if nobody is there.
    ///
    /// # Cancel safety
    /// A dropped call may still enter it, as long as the lease lives.
    pub(crate) async fn enter(
        server: &Server,
        keys: &Keys,
        mut record: Record,
        lease: i64,
        if_free: bool,
        patience: Patience,
    ) -> Result<Entered, Failed> {
        let key = &*keys.place(lease);
        let known = server.known();
        let general = known.general.unwrap_or_default();
        let wall = wall(server);
        // The place will be newer than what was seen last.
        let needed = wall - known.revision;
        let is_raised = known.general.is_some() && general.offset < needed - lag_most(server);
        record.offset = if is_raised { needed } else { general.offset };
        let mut compare = vec![created(key, 0)];
        compare.extend(if_free.then(|| is_empty(&keys.queue())));
        let mut success = vec![put(key, record.to_json(), lease)];
        success.extend(look(server, keys, newest_two(&keys.queue(), 0)));
        if is_raised {
            // At the front: what is read behind it is what it has written.
            success.insert(1, raise(server, general, record.offset));
        }
        let queue = RangeRequest { keys_only: true, ..all(&keys.queue()) };
        let failure = [vec![get(key)], look(server, keys, queue)].concat();
        let request = TxnRequest { compare, success, failure };
        let answer = match server.txn(&request, patience).await {
            Ok(answer) => answer,
            Err(failed) if failed.failure.is_lease_not_found() => {
                return Ok(Entered { entry: Entry::NoLease, is_late: failed.is_late });
            }
            Err(failed) => return Err(failed),
        };
        let entering = Entering { server, keys, key, record, wall };
        let entry = entering.read(&answer.message, usize::from(is_raised));
        Ok(Entered { entry, is_late: answer.is_late })
    }

    /// The place that somebody else has left to us.
    pub(crate) fn found(server: &Server, keys: Keys, place: Place) -> Option<Self> {
        let key = String::from_utf8(place.key).ok()?;
        let (created, modified, record) = (place.created, place.modified, place.record?);
        Some(Self { server: server.clone(), keys, key, created, modified, first_at: created, record })
    }

    /// Looks who is ahead, by the word of a majority; `None` where the place is gone.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn look(&self, patience: Patience) -> Result<(Option<Seen>, u64), Failed> {
        let success = look(&self.server, &self.keys, newest_two(&self.keys.queue(), self.created));
        let request = TxnRequest { compare: vec![self.is_there()], success, failure: Vec::new() };
        let wall = wall(&self.server);
        let done = self.server.txn(&request, patience).await?.message;
        let raft_term = done.header.raft_term;
        if !done.succeeded {
            return Ok((None, raft_term));
        }
        let mut seen = read(&self.server, &done, 0, wall, &self.key);
        if seen.ahead == Ahead::Unknown {
            seen.ahead = self.search(patience).await?;
            if seen.ahead == Ahead::Nobody {
                return self.look_again(&request, patience).await;
            }
        }
        Ok((Some(seen), raft_term))
    }

    /// The same where nobody is ahead any more: whoever was may have raised the offsets after they were read.
    async fn look_again(
        &self,
        request: &TxnRequest,
        patience: Patience,
    ) -> Result<(Option<Seen>, u64), Failed> {
        let wall = wall(&self.server);
        let done = self.server.txn(request, patience).await?.message;
        let seen = done.succeeded.then(|| read(&self.server, &done, 0, wall, &self.key));
        Ok((seen.map(|seen| Seen { ahead: Ahead::Nobody, ..seen }), done.header.raft_term))
    }

    /// Who is ahead, where foreign keys are in between.
    async fn search(&self, patience: Patience) -> Result<Ahead, Failed> {
        let before = RangeRequest {
            keys_only: true,
            max_create_revision: self.created - 1,
            ..all(&self.keys.queue())
        };
        let found = self.server.read(&before, patience).await?;
        Ok(last_of(&found.kvs))
    }

    /// The token of this place, which is the first: where its offset is too small, another one is written first. `None` where the
    /// place is gone.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have changed the offset.
    pub(crate) async fn settle(
        &mut self,
        mut seen: Seen,
        patience: Patience,
    ) -> Result<Option<FencingToken>> {
        for _ in 0..SETTLE_TRIES {
            self.first_at = seen.revision;
            let [general, own] = seen.offsets;
            let least = general.offset.max(own.offset);
            let needed = seen.wall - self.created;
            let is_raised = least < needed - lag_most(&self.server);
            let offset = if is_raised { needed } else { least };
            if self.record.offset == offset {
                return self.token().map(Some);
            }
            let mut record = self.record.clone();
            record.offset = offset;
            let compare = vec![
                self.is_there(),
                modified(&self.server.offset_key(), general.modified),
                modified(&self.keys.lifted(), own.modified),
            ];
            let mut success = vec![rewrite(&self.key, record.to_json())];
            success.extend(is_raised.then(|| put(&self.server.offset_key(), text(offset), 0)));
            let request = TxnRequest { compare, success, failure: Vec::new() };
            let done = self.server.txn(&request, patience).await.map_err(Failed::error)?.message;
            if done.succeeded {
                self.record = record;
                self.modified = done.header.revision;
                if is_raised {
                    self.server.note_offset(Kept { offset, modified: done.header.revision });
                }
                return self.token().map(Some);
            }
            match self.look(patience).await.map_err(Failed::error)?.0 {
                Some(again) => seen = again,
                None => return Ok(None),
            }
            self.learn_own(patience).await?;
        }
        Err(unexpected("its offset is changed all the time").during("draw a fencing token"))
    }

    /// What is written at the place: a request that was answered too late may have changed it.
    async fn learn_own(&mut self, patience: Patience) -> Result<()> {
        let found =
            self.server.read(&crate::requests::one(&self.key), patience).await.map_err(Failed::error)?;
        if let Some(place) = found.kvs.first().and_then(Place::read) {
            self.modified = place.modified;
            self.record = place.record.unwrap_or_else(|| self.record.clone());
        }
        Ok(())
    }

    fn token(&self) -> Result<FencingToken> {
        let what = "the next token would be above the greatest one";
        token(self.created, self.record.offset).ok_or_else(|| unexpected(what).during("draw a fencing token"))
    }

    /// Writes since when the lock is held, for those who look; not where anything else has been written since.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have written it.
    pub(crate) async fn note_grant(&self, wall_micros: u64, patience: Patience) -> Result<(), Failed> {
        let record = Record { since: wall_micros, ..self.record.clone() };
        let compare = vec![self.is_there(), modified(&self.key, self.modified)];
        let success = vec![rewrite(&self.key, record.to_json())];
        self.server.txn(&TxnRequest { compare, success, failure: Vec::new() }, patience).await.map(drop)
    }

    /// Leaves the queue. Whether the place was there, and whether an earlier try may have left it.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have left it.
    pub(crate) async fn leave(&self, patience: Patience) -> Result<(bool, bool), Failed> {
        self.change(delete(&self.key), patience).await
    }

    /// Leaves the queue, and looks who is ahead of `next` in the same step. Whether both were there, whether an earlier try
    /// may have left it, and what was seen.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have left it.
    pub(crate) async fn leave_to(
        &self,
        next: &Self,
        patience: Patience,
    ) -> Result<(bool, bool, Option<Seen>), Failed> {
        let looking = look(&self.server, &self.keys, newest_two(&self.keys.queue(), next.created));
        let request = TxnRequest {
            compare: vec![self.is_there(), next.is_there()],
            success: [vec![delete(&self.key)], looking].concat(),
            failure: Vec::new(),
        };
        let wall = wall(&self.server);
        let answer = self.server.txn(&request, patience).await?;
        let (done, is_late) = (answer.message, answer.is_late);
        let seen = done.succeeded.then(|| read(&self.server, &done, 1, wall, &next.key));
        Ok((done.succeeded, is_late, seen))
    }

    /// Leaves the place to `lease`, which keeps the lock taken without a holder. Whether the place was there, and whether
    /// an earlier try may have done it.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have left it.
    pub(crate) async fn rest(
        &self,
        lease: i64,
        until: u64,
        patience: Patience,
    ) -> Result<(bool, bool), Failed> {
        let record = Record { rests_until: Some(until), ..self.record.clone() };
        self.change(put(&self.key, record.to_json(), lease), patience).await
    }

    async fn change(&self, change: RequestOp, patience: Patience) -> Result<(bool, bool), Failed> {
        let request =
            TxnRequest { compare: vec![self.is_there()], success: vec![change], failure: Vec::new() };
        let answer = self.server.txn(&request, patience).await?;
        Ok((answer.message.succeeded, answer.is_late))
    }

    fn is_there(&self) -> Compare {
        created(&self.key, self.created)
    }
}

/// What a request to enter was about.
struct Entering<'a> {
    server: &'a Server,
    keys: &'a Keys,
    key: &'a str,
    record: Record,
    wall: i64,
}

impl Entering<'_> {
    /// `raised` is 1 where a part for the offset stands in between.
    fn read(self, done: &Done, raised: usize) -> Entry {
        if done.succeeded {
            let seen = read(self.server, done, 1 + raised, self.wall, self.key);
            let revision = done.header.revision;
            return self.stands(revision, revision, seen);
        }
        let mut seen = read(self.server, done, 1, self.wall, self.key);
        let queue: Vec<Place> = done.found(1).iter().filter_map(Place::read).collect();
        let Some(own) = done.found(0).first() else {
            return if queue.is_empty() { Entry::Foreign } else { Entry::Busy };
        };
        let written = Place::read(own).and_then(|place| place.record);
        if written.as_ref().is_some_and(|record| record.holder != self.record.holder) {
            // Somebody else has used the lease; it is not ours any more.
            return Entry::NoLease;
        }
        // An earlier copy of the request has entered it.
        let mut before = queue.into_iter().filter(|place| place.created < own.create_revision);
        seen.ahead = before.next_back().map_or(Ahead::Nobody, Ahead::Somebody);
        let (created, modified) = (own.create_revision, own.mod_revision);
        let record = written.unwrap_or_else(|| self.record.clone());
        Self { record, ..self }.stands(created, modified, seen)
    }

    fn stands(self, created: i64, modified: i64, seen: Seen) -> Entry {
        let Self { server, keys, key, record, .. } = self;
        let (server, keys, key) = (server.clone(), keys.clone(), key.to_owned());
        Entry::In(Box::new((Stand { server, keys, key, created, modified, first_at: created, record }, seen)))
    }
}

/// The parts that show who is ahead: a part of the queue, and both offsets.
fn look(server: &Server, keys: &Keys, queue: RangeRequest) -> Vec<RequestOp> {
    vec![range(queue), get(&server.offset_key()), get(&keys.lifted())]
}

/// What those parts have shown, the first of which has this number.
fn read(server: &Server, done: &Done, first: usize, wall: i64, key: &str) -> Seen {
    let offsets = [1, 2].map(|part| Kept::read(done.found(first + part).first()));
    server.note_offset(offsets[0]);
    let mut others = done.found(first).iter().filter(|found| found.key != key.as_bytes());
    let ahead = match others.next() {
        None => Ahead::Nobody,
        Some(other) => Place::read(other).map_or(Ahead::Unknown, Ahead::Somebody),
    };
    Seen { ahead, offsets, wall, revision: done.header.revision }
}

/// The last place among keys in the order in which they were made.
fn last_of(found: &[KeyValue]) -> Ahead {
    found.iter().rev().find_map(Place::read).map_or(Ahead::Nobody, Ahead::Somebody)
}

/// Raises the offset of all locks, unless somebody else has changed it.
fn raise(server: &Server, known: Kept, offset: i64) -> RequestOp {
    let key = server.offset_key();
    let compare = vec![modified(&key, known.modified)];
    inner(TxnRequest { compare, success: vec![put(&key, text(offset), 0)], failure: Vec::new() })
}

/// An offset as it is kept.
pub(crate) fn text(offset: i64) -> Vec<u8> {
    offset.to_string().into_bytes()
}

fn wall(server: &Server) -> i64 {
    crate::record::signed(server.clock().wall_micros())
}
