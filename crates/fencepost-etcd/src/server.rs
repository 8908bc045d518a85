//! The cluster as the locks of this process see it: what is known of its offset, and the sessions that are free for use.
//!
//! Invariant: a session here has no key, and no request that could make one is under way; so whoever takes it is its only user.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fencepost_core::{Clock, Error, LossReason, Moment, Result, lock, until};

use crate::crowd::Crowd;
use crate::endpoint::Endpoint;
use crate::generated::{RangeRequest, RangeResponse, ResponseHeader, TxnRequest, TxnResponse};
use crate::grpc::framed;
use crate::keys;
use crate::members::{Answer, Failed, Members, Patience};
use crate::record::Kept;
use crate::renewals::Renewals;
use crate::requests::{Done, RANGE, TXN, one};
use crate::session::{Idle, Session, is_lost};

/// How long one member may take to answer a request that waits for nothing.
pub(crate) const TRY_MOST: Duration = Duration::from_millis(500);

/// How long the reason of a loss is asked for.
const REASON_MOST: Duration = Duration::from_millis(100);

/// How long a cluster that broke off is tried to be reached before a wait ends.
pub(crate) const RECONNECT_MOST: Duration = Duration::from_secs(5);

/// Every member once.
pub(crate) const ONCE: Patience = Patience { each: TRY_MOST, most: Duration::ZERO };

/// As long as a wait lasts without a server.
pub(crate) const FOR_A_WHILE: Patience = Patience { each: TRY_MOST, most: RECONNECT_MOST };

/// Until whoever asks gives up.
pub(crate) const FOR_EVER: Patience = Patience { each: TRY_MOST, most: Duration::MAX };

/// How many sessions are kept for the next acquisition, and how long.
const IDLE_MOST: usize = 256;
const IDLE_FOR: Duration = Duration::from_secs(5);

/// What the backend and its claims share.
#[derive(Clone, Debug)]
pub(crate) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    members: Members,
    known: Mutex<Known>,
    idle: Mutex<Sessions>,
    acquired: AtomicU64,
    crowd: Crowd,
    renewals: Renewals,
}

/// What the last answers have said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// The offset of all locks, if it was read.
    pub(crate) general: Option<Kept>,
    pub(crate) revision: i64,
}

#[derive(Debug, Default)]
struct Sessions {
    idle: Vec<Idle>,
    /// Whether somebody ends those that are old.
    is_swept: bool,
}

impl Server {
    pub(crate) fn new(clock: Clock, endpoint: Endpoint) -> Self {
        let (known, idle, acquired, crowd, renewals) = Default::default();
        let members = Members::new(clock, endpoint);
        Self(Arc::new(Shared { members, known, idle, acquired, crowd, renewals }))
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.0.members.clock()
    }

    pub(crate) fn members(&self) -> &Members {
        &self.0.members
    }

    /// The places of this process.
    pub(crate) fn crowd(&self) -> &Crowd {
        &self.0.crowd
    }

    /// The renewals that are due.
    pub(crate) fn renewals(&self) -> &Renewals {
        &self.0.renewals
    }

    pub(crate) fn root(&self) -> &str {
        &self.0.members.endpoint().root
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        self.0.members.endpoint().max_ttl
    }

    /// The key of the offset of all locks.
    pub(crate) fn offset_key(&self) -> String {
        keys::offset(self.root())
    }

    /// Runs a transaction.
    ///
    /// # Cancel safety
    /// A dropped call may or may not be carried out, also much later.
    pub(crate) async fn txn(&self, request: &TxnRequest, patience: Patience) -> Result<Answer<Done>, Failed> {
        let frame = framed(request);
        let asking = self.0.members.call::<TxnResponse>(TXN, || frame.clone(), patience);
        let Answer { message, member, sent, is_late } = asking.await?;
        let done = Done::from(message);
        self.note(done.header);
        Ok(Answer { message: done, member, sent, is_late })
    }

    /// Reads keys as they are now, by the word of a majority.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn read(
        &self,
        request: &RangeRequest,
        patience: Patience,
    ) -> Result<RangeResponse, Failed> {
        let frame = framed(request);
        let asking = self.0.members.call::<RangeResponse>(RANGE, || frame.clone(), patience);
        let answer = asking.await?.message;
        self.note(answer.header.unwrap_or_default());
        Ok(answer)
    }

    /// Reads the offset of all locks; gives the term of the leader who was in office then, too.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn learn_offset(&self, patience: Patience) -> Result<u64, Failed> {
        let answer = self.read(&one(&self.offset_key()), patience).await?;
        self.note_offset(Kept::read(answer.kvs.first()));
        Ok(answer.header.unwrap_or_default().raft_term)
    }

    pub(crate) fn known(&self) -> Known {
        *lock(&self.0.known)
    }

    pub(crate) fn note_offset(&self, general: Kept) {
        lock(&self.0.known).general = Some(general);
    }

    fn note(&self, header: ResponseHeader) {
        lock(&self.0.known).revision = header.revision;
    }

    /// Why the lease of a place that is not there any more is gone; `key` is where a reason would be.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn why_gone(&self, key: &str) -> Error {
        // It is gone for certain: whoever believes in it is not kept waiting for a reason.
        let soon = Some(self.clock().now().after(REASON_MOST));
        let found = until(self.clock(), soon, Box::pin(self.read(&one(key), ONCE))).await;
        match found.as_ref().and_then(|found| found.as_ref().ok()?.kvs.first()) {
            Some(reason) => {
                let reason = String::from_utf8_lossy(&reason.value);
                Error::lost(LossReason::Revoked, format!("it was taken away: {reason}"))
            }
            None => gone(),
        }
    }

    /// A session that has no key: one that is kept, or a new one.
    ///
    /// # Cancel safety
    /// Dropping it leaves a lease without keys, which ends with its ttl.
    pub(crate) async fn session(&self, ttl: Duration, patience: Patience) -> Result<Session> {
        let seconds = whole_seconds(ttl);
        while let Some(idle) = self.take_idle(seconds) {
            let mut session = Session::take(self, idle);
            if session.is_fresh() {
                return Ok(session);
            }
            match session.renew_unused(patience).await {
                Ok(()) => return Ok(session),
                Err(error) if is_lost(&error) => {}
                // Where nobody answers for one, nobody does for the next one either.
                Err(error) => return Err(error),
            }
        }
        Session::grant(self, seconds, patience).await.map_err(Failed::error)
    }

    /// A session that is kept and was asked for with so many seconds, if there is one.
    pub(crate) fn take_idle(&self, seconds: i64) -> Option<Idle> {
        let now = self.clock().now();
        let mut sessions = lock(&self.0.idle);
        let found = sessions.idle.iter().rposition(|idle| idle.seconds == seconds && idle.lasts_at(now))?;
        Some(sessions.idle.swap_remove(found))
    }

    /// Whether this process has acquired more than once: one that acquires once and ends needs no session any more.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.acquired.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn has_acquired(&self) -> bool {
        self.0.acquired.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn note_acquisition(&self) {
        self.0.acquired.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a session that has no key for the next acquisition, or gives it back where there are enough.
    pub(crate) fn keep(&self, idle: Idle) -> Option<Idle> {
        let mut sessions = lock(&self.0.idle);
        if sessions.idle.len() >= IDLE_MOST {
            return Some(idle);
        }
        sessions.idle.push(idle);
        let is_swept = std::mem::replace(&mut sessions.is_swept, true);
        drop(sessions);
        if !is_swept {
            self.clock().serve(end_idle(Arc::downgrade(&self.0), self.clock().clone()));
        }
        None
    }
}

/// Ends sessions that nobody has used for a while, until none is left.
async fn end_idle(shared: Weak<Shared>, clock: Clock) {
    loop {
        clock.sleep(IDLE_FOR / 2).await;
        let Some(shared) = shared.upgrade() else { return };
        let old = clock.now().before(IDLE_FOR);
        let mut sessions = lock(&shared.idle);
        let idle = std::mem::take(&mut sessions.idle);
        let (ended, kept): (Vec<_>, Vec<_>) = idle.into_iter().partition(|idle| idle.since <= old);
        sessions.idle = kept;
        let is_last = sessions.idle.is_empty();
        sessions.is_swept = !is_last;
        drop(sessions);
        let server = Server(shared);
        for idle in ended {
            // Dropped, it is ended.
            drop(Session::take(&server, idle));
        }
        if is_last {
            return;
        }
    }
}

/// The lease is not there any more.
pub(crate) fn gone() -> Error {
    Error::lost(LossReason::Expired, "etcd does not know it any more")
}

/// etcd counts in seconds.
fn whole_seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Whether `since` is longer ago than a share of `ttl`.
pub(crate) fn is_older(since: Moment, now: Moment, ttl: Duration, share: u32) -> bool {
    now.since(since) > ttl / share
}
