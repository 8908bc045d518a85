//! One's own place in a queue: entering, looking who is ahead, settling the token, and leaving.
//!
//! Invariant: a token is settled in a transaction that sees nobody whom the place waits for, with an offset that is at least every
//! one that was there then. Offsets never fall, so whoever waited for this one has a greater token.
//!
//! Readers settle theirs beside each other, a newer one perhaps before an older one. Where the offset was raised in between, the
//! older one looks at the tokens of the newer ones, so that no two are the same.

use std::sync::Arc;

use fencepost_core::{FencingToken, Mode, Result};

use crate::failure::unexpected;
use crate::generated::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use crate::keys::Keys;
use crate::members::{Failed, Patience};
use crate::record::{Kept, Place, Record, signed, token};
use crate::requests::{
    Done, all, created, delete, get, inner, is_empty, modified, newest_two, none_newer, put, range, rewrite,
};
use crate::server::Server;

/// A place in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    server: Server,
    keys: Keys,
    /// Beside whom it holds the lock.
    pub(crate) mode: Mode,
    pub(crate) key: Arc<str>,
    pub(crate) created: i64,
    modified: i64,
    /// The offsets when it was made, where they were seen in that moment.
    offsets: Option<[Kept; 2]>,
    /// A revision at which it was its turn, once its token is settled.
    pub(crate) first_at: i64,
    pub(crate) record: Record,
}

/// Who is ahead of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// Nobody whom it waits for.
    Nobody,
    /// The last of those who came before and whom it waits for.
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
    /// Enters the queue, or finds that it has been entered; where `if_free`, only if nobody is there whom it would wait for.
    ///
    /// # Cancel safety
    /// A dropped call may still enter it, as long as the lease lives.
    pub(crate) async fn enter(
        server: &Server,
        keys: &Keys,
        mut record: Record,
        (mode, lease): (Mode, i64),
        if_free: bool,
        patience: Patience,
    ) -> Result<Entered, Failed> {
        let (key, ahead) = (&*keys.place(mode, lease), keys.ahead_of(mode));
        let known = server.known();
        let general = known.general.unwrap_or_default();
        let wall = wall(server);
        // The place will be newer than what was seen last.
        let needed = wall - known.revision;
        let is_raised = known.general.is_some() && general.offset < needed - lag_most(server);
        record.offset = if is_raised { needed } else { general.offset };
        let mut compare = vec![created(key, 0)];
        compare.extend(if_free.then(|| is_empty(&ahead)));
        let mut success = vec![put(key, record.to_json(), lease)];
        success.extend(look(server, keys, newest_two(&ahead, 0)));
        if is_raised {
            // At the front: what is read behind it is what it has written.
            success.insert(1, raise(server, general, record.offset));
        }
        let before = RangeRequest { keys_only: true, ..all(&ahead) };
        let failure = [vec![get(key)], look(server, keys, before)].concat();
        let request = TxnRequest { compare, success, failure };
        let answer = match server.txn(&request, patience).await {
            Ok(answer) => answer,
            Err(failed) if failed.failure.is_lease_not_found() => {
                return Ok(Entered { entry: Entry::NoLease, is_late: failed.is_late });
            }
            Err(failed) => return Err(failed),
        };
        let entering = Entering { server, keys, mode, key, record, wall };
        let entry = entering.read(&answer.message, usize::from(is_raised));
        Ok(Entered { entry, is_late: answer.is_late })
    }

    /// The place that somebody else has left to us.
    pub(crate) fn found(server: &Server, keys: Keys, place: Place) -> Option<Self> {
        let key = String::from_utf8(place.key).ok()?.into();
        let Place { mode, created, modified, record, .. } = place;
        let (server, offsets, first_at, record) = (server.clone(), None, created, record?);
        Some(Self { server, keys, mode, key, created, modified, offsets, first_at, record })
    }

    /// Looks who is ahead, by the word of a majority; `None` where the place is gone.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn look(&self, patience: Patience) -> Result<(Option<Seen>, u64), Failed> {
        let success = self.looking();
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
            ..all(&self.keys.ahead_of(self.mode))
        };
        let found = self.server.read(&before, patience).await?;
        Ok(last_of(&found.kvs))
    }

    /// The token of this place, whose turn it is: where its offset is too small, another one is written first. `None` where the
    /// place is gone.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have changed the offset.
    pub(crate) async fn settle(
        &mut self,
        mut seen: Seen,
        patience: Patience,
    ) -> Result<Option<FencingToken>> {
        // That of the first look counts, so that many who settle at once do not raise the offset in turn for ever.
        let wall = seen.wall;
        for _ in 0..SETTLE_TRIES {
            self.first_at = seen.revision;
            let [general, own] = seen.offsets;
            let least = general.offset.max(own.offset);
            let needed = wall - self.created;
            let is_lagging = least < needed - lag_most(&self.server);
            let offset = if is_lagging { needed } else { least };
            let beside = self.readers_beside(&seen, offset > least, patience).await?;
            let offset = beside.offset_apart(self.created, offset);
            let is_raised = offset > least;
            if self.record.offset == offset && !is_raised {
                return self.token().map(Some);
            }
            let mut record = self.record.clone();
            record.offset = offset;
            let mut compare = vec![
                self.is_there(),
                modified(&self.server.offset_key(), general.modified),
                modified(&self.keys.lifted(), own.modified),
            ];
            // One that has come since would have a token by the lower offset, which may be this one's by the higher one.
            let newest = beside.newest.filter(|_| is_raised);
            compare.extend(newest.map(|newest| none_newer(&self.keys.readers(), newest)));
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

    /// The readers whose tokens may be that of this one, which is a reader, too.
    async fn readers_beside(&self, seen: &Seen, is_raised: bool, patience: Patience) -> Result<Beside> {
        // As long as all have the same offset, the revisions that made them tell their tokens apart.
        let have_all_the_same = self.offsets == Some(seen.offsets) && !is_raised;
        if self.mode == Mode::Exclusive || have_all_the_same {
            return Ok(Beside::default());
        }
        let found = self.server.read(&all(&self.keys.readers()), patience).await.map_err(Failed::error)?;
        let newest = found.kvs.iter().map(|found| found.create_revision).max();
        let places = found.kvs.iter().filter_map(Place::read);
        let tokens = places.filter(|place| place.created > self.created).filter_map(|place| place.token());
        Ok(Beside { newest, tokens: tokens.map(FencingToken::get).collect() })
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
        let looking = next.looking();
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

    /// The parts that show who is ahead of it.
    fn looking(&self) -> Vec<RequestOp> {
        look(&self.server, &self.keys, newest_two(&self.keys.ahead_of(self.mode), self.created))
    }

    fn is_there(&self) -> Compare {
        created(&self.key, self.created)
    }
}

/// The readers that are newer than one of them.
#[derive(Debug, Default)]
struct Beside {
    /// The revision that made the newest key among all readers.
    newest: Option<i64>,
    tokens: Vec<u64>,
}

impl Beside {
    /// The least offset from this one on that makes a token which none of them has.
    fn offset_apart(&self, created: i64, offset: i64) -> i64 {
        let is_theirs = token(created, offset).is_some_and(|token| self.tokens.contains(&token.get()));
        let greatest = self.tokens.iter().max().filter(|_| is_theirs);
        greatest.map_or(offset, |greatest| signed(*greatest).saturating_add(1).saturating_sub(created))
    }
}

/// What a request to enter was about.
struct Entering<'a> {
    server: &'a Server,
    keys: &'a Keys,
    mode: Mode,
    key: &'a str,
    record: Record,
    wall: i64,
}

impl Entering<'_> {
    /// `raised` is 1 where a part for the offset stands in between.
    fn read(self, done: &Done, raised: usize) -> Entry {
        if done.succeeded {
            let seen = read(self.server, done, 1 + raised, self.wall, self.key);
            let (revision, offsets) = (done.header.revision, Some(seen.offsets));
            return self.stands(revision, revision, offsets, seen);
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
        Self { record, ..self }.stands(created, modified, None, seen)
    }

    fn stands(self, created: i64, modified: i64, offsets: Option<[Kept; 2]>, seen: Seen) -> Entry {
        let Self { server, keys, mode, key, record, .. } = self;
        let (server, keys, key, first_at) = (server.clone(), keys.clone(), key.into(), created);
        let stand = Stand { server, keys, mode, key, created, modified, offsets, first_at, record };
        Entry::In(Box::new((stand, seen)))
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
    signed(server.clock().wall_micros())
}
