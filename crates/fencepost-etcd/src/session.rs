//! A session: a lease of etcd, which keeps the key of one acquisition at a time and removes it when it ends.
//!
//! Each lock that is held has a session of its own, so that the loss of one is not that of all; a session is used again when
//! nothing of the acquisition before can come any more. Invariant: a session that is dropped is ended on the server, which is
//! what makes giving up final: a request that arrives later finds no lease.

use std::time::Duration;

use bytes::BytesMut;
use fencepost_core::{Error, ErrorKind, Moment, Renewal, Result, until};

use crate::failure::{Failure, unavailable};
use crate::generated::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    LeaseRevokeResponse,
};
use crate::grpc::framed;
use crate::members::{Answer, Failed, Patience};
use crate::server::{FOR_EVER, Server, TRY_MOST, gone, is_older};

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// A session in use.
#[derive(Debug)]
pub(crate) struct Session {
    server: Server,
    id: i64,
    seconds: i64,
    ttl: Duration,
    counted_from: Moment,
    /// Whether a request that makes a key may still be on its way.
    is_late: bool,
    /// Whether it has ended, or somebody else has it now.
    is_over: bool,
}

/// A session that nobody uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    id: i64,
    /// What was asked for.
    pub(crate) seconds: i64,
    ttl: Duration,
    counted_from: Moment,
    /// Since when nobody uses it.
    pub(crate) since: Moment,
}

impl Idle {
    /// Whether it is worth a renewal.
    pub(crate) fn lasts_at(&self, now: Moment) -> bool {
        !is_older(self.counted_from, now, self.ttl, 2)
    }
}

/// What a keep-alive has given: a term that counts only if the same leader is seen in office afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptAlive {
    pub(crate) renewal: Renewal,
    pub(crate) raft_term: u64,
    /// Which member has given it.
    pub(crate) member: usize,
}

/// Asks for another term of several leases, in one call; `None` for those that the server does not know any more.
///
/// # Cancel safety
/// A dropped call may or may not have been carried out.
pub(crate) async fn keep_alive(
    server: &Server,
    leases: &[i64],
    patience: Patience,
) -> Result<Vec<Option<KeptAlive>>, Failed> {
    let mut frames = BytesMut::new();
    for id in leases {
        frames.extend_from_slice(&framed(&LeaseKeepAliveRequest { id: *id }));
    }
    let frames = frames.freeze();
    let asking = server.members().call_all(KEEP_ALIVE, (|| frames.clone(), leases.len()), patience);
    let Answer { message: answers, member, sent, is_late } = asking.await?;
    let is_for = |(id, answer): (&i64, &LeaseKeepAliveResponse)| answer.id == *id;
    if !leases.iter().zip(&answers).all(is_for) {
        let what = format!("{} answers for another lease", server.members().address(member));
        return Err(Failed { failure: Failure::Broken(what), is_late });
    }
    let kept = |answer: LeaseKeepAliveResponse| {
        // A lease that is gone is no error to the server.
        let seconds = u64::try_from(answer.ttl).ok().filter(|seconds| *seconds > 0)?;
        let renewal = Renewal { ttl: Some(Duration::from_secs(seconds)), counted_from: sent };
        Some(KeptAlive { renewal, raft_term: answer.header.unwrap_or_default().raft_term, member })
    };
    Ok(answers.into_iter().map(kept).collect())
}

/// How long to try the renewal of a lease: one member no longer than leaves time for the others. Where there is no other one, it is
/// better waited for than asked again.
pub(crate) fn patience_for(server: &Server, ttl: Duration) -> Patience {
    let each = match server.members().count() {
        1 => (ttl / TRIES_OF_ONE_MEMBER).max(RENEW_LEAST),
        _ => (ttl / TRIES_IN_A_TTL).clamp(RENEW_LEAST, TRY_MOST),
    };
    Patience { each, most: ttl }
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) id: i64,
    pub(crate) ttl: Duration,
    pub(crate) sent: Moment,
}

/// Grants a lease. A try whose answer is lost is never repeated with the same id: what then comes of it is a lease without keys,
/// which ends with its ttl.
///
/// # Cancel safety
/// Dropping it leaves such a lease at most.
pub(crate) async fn grant(server: &Server, seconds: i64, patience: Patience) -> Result<Granted, Failed> {
    loop {
        let frame = || framed(&LeaseGrantRequest { ttl: seconds, id: random_id(server) });
        let answer = server.members().call::<LeaseGrantResponse>(GRANT, frame, patience).await;
        match answer {
            Ok(Answer { message, sent, .. }) => {
                let ttl = Duration::from_secs(u64::try_from(message.ttl).unwrap_or_default());
                return Ok(Granted { id: message.id, ttl, sent });
            }
            Err(failed) if failed.failure.is_lease_taken() => {}
            Err(failed) => return Err(failed),
        }
    }
}

fn random_id(server: &Server) -> i64 {
    (server.clock().random() & i64::MAX.unsigned_abs()).cast_signed().max(1)
}

/// Ends a lease on the server, and with it every key that it has.
///
/// # Cancel safety
/// A dropped call may or may not have ended it.
pub(crate) async fn end(server: &Server, id: i64, patience: Patience) -> Result<()> {
    let request = || framed(&LeaseRevokeRequest { id });
    match server.members().call::<LeaseRevokeResponse>(REVOKE, request, patience).await {
        Ok(_) => Ok(()),
        Err(failed) if failed.failure.is_lease_not_found() => Ok(()),
        Err(failed) => Err(failed.error()),
    }
}

impl Session {
    /// A new session.
    ///
    /// # Cancel safety
    /// As [`grant`].
    pub(crate) async fn grant(server: &Server, seconds: i64, patience: Patience) -> Result<Self, Failed> {
        // What is not known of the offset yet is learned beside it.
        let learning = async {
            if server.known().general.is_none() {
                // Where it fails, the offset is settled later.
                drop(server.learn_offset(patience).await);
            }
        };
        let granting = Box::pin(grant(server, seconds, patience));
        let (granted, ()) = futures_util::future::join(granting, Box::pin(learning)).await;
        let Granted { id, ttl, sent } = granted?;
        Ok(Self {
            server: server.clone(),
            id,
            seconds,
            ttl,
            counted_from: sent,
            is_late: false,
            is_over: false,
        })
    }

    /// One that was kept.
    pub(crate) fn take(server: &Server, idle: Idle) -> Self {
        let Idle { id, seconds, ttl, counted_from, .. } = idle;
        Self { server: server.clone(), id, seconds, ttl, counted_from, is_late: false, is_over: false }
    }

    /// The session of a process that is gone. This one does not end it.
    pub(crate) fn of_another(server: &Server, id: i64, ttl: Duration) -> Self {
        let counted_from = server.clock().now();
        Self { server: server.clone(), id, seconds: 0, ttl, counted_from, is_over: true, is_late: true }
    }

    /// Lets go of it: it ends with its ttl unless others renew it.
    pub(crate) fn leave(mut self) {
        self.is_over = true;
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// What the server gives.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// When the request that earned the present term was sent.
    pub(crate) fn counted_from(&self) -> Moment {
        self.counted_from
    }

    /// Whether nearly the whole ttl is left.
    pub(crate) fn is_fresh(&self) -> bool {
        !is_older(self.counted_from, self.server.clock().now(), self.ttl, FRESH_SHARE)
    }

    /// How long to try a renewal.
    pub(crate) fn patience(&self) -> Patience {
        patience_for(&self.server, self.ttl)
    }

    /// Asks for another term.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out.
    ///
    /// # Errors
    /// `Lost` when the server does not know the lease any more.
    pub(crate) async fn keep_alive(&self, patience: Patience) -> Result<KeptAlive> {
        match keep_alive(&self.server, &[self.id], patience).await {
            Ok(mut kept) => kept.pop().flatten().ok_or_else(gone),
            Err(failed) if failed.failure.is_lease_not_found() => Err(gone()),
            Err(failed) => Err(failed.error()),
        }
    }

    /// Takes a new term over, if the leader who gave it was still in office when a majority was asked afterwards: a former one
    /// goes on saying yes. Otherwise the member that gave it is not asked any more.
    pub(crate) fn confirm(&mut self, kept: KeptAlive, raft_term: u64) -> Option<Renewal> {
        if kept.raft_term != raft_term {
            self.server.members().leave(kept.member);
            return None;
        }
        self.begin_term(kept.renewal);
        Some(kept.renewal)
    }

    /// Takes a term over that is certain.
    pub(crate) fn begin_term(&mut self, renewal: Renewal) {
        self.ttl = renewal.ttl.unwrap_or(self.ttl);
        self.counted_from = renewal.counted_from;
    }

    /// Renews a session that has no key.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out.
    pub(crate) async fn renew_unused(&mut self, patience: Patience) -> Result<()> {
        for _ in 0..=self.server.members().count() {
            let kept = self.keep_alive(patience).await?;
            let raft_term = self.server.learn_offset(patience).await.map_err(Failed::error)?;
            if self.confirm(kept, raft_term).is_some() {
                return Ok(());
            }
        }
        Err(changing())
    }

    /// A request of it may be carried out later than it was answered.
    pub(crate) fn note_late(&mut self, is_late: bool) {
        self.is_late |= is_late;
    }

    /// Leaves it to the next acquisition, now that it has no key; not where a request is under way that could make one.
    pub(crate) fn keep(mut self) {
        if self.is_late || !self.server.is_busy() {
            return;
        }
        let Self { id, seconds, ttl, counted_from, .. } = self;
        let idle = Idle { id, seconds, ttl, counted_from, since: self.server.clock().now() };
        self.is_over = self.server.keep(idle).is_none();
    }

    /// Ends it.
    ///
    /// # Cancel safety
    /// Dropping it goes on in the background.
    pub(crate) async fn end(mut self) {
        let ended = end(&self.server, self.id, FOR_EVER).await;
        self.is_over = ended.is_ok();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (server, id, clock) = (self.server.clone(), self.id, self.server.clock().clone());
        // By then it has ended by itself.
        let give_up_at = clock.now().after(self.ttl * 2);
        self.server.clock().spawn(async move {
            // Nobody is left who could be told.
            drop(until(&clock, Some(give_up_at), Box::pin(end(&server, id, FOR_EVER))).await);
        });
    }
}

/// The cluster has no leader who stays in office.
pub(crate) fn changing() -> Error {
    unavailable("etcd is changing its leader").during("renew the lease")
}

/// Whether an error says that the lease is gone.
pub(crate) fn is_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost
}

/// How old a term may be that counts as a whole one, as a share of the ttl.
const FRESH_SHARE: u32 = 8;

/// How many members can be tried in one ttl. A try of the core is a tenth of it, and a sixteenth where half of it is left for the work
/// to end.
const TRIES_IN_A_TTL: u32 = 24;

/// How often the only member can be tried in one ttl: within a try of the core, gathering included, for a connection that has died
/// would not be noticed otherwise.
const TRIES_OF_ONE_MEMBER: u32 = 20;

/// Less would give up a member that is merely busy.
const RENEW_LEAST: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use fencepost_core::Clock;

    fn session(counted_from: Moment) -> Session {
        let endpoint = Endpoint::of(&"etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3".parse().unwrap()).unwrap();
        let server = Server::new(Clock::system(), endpoint);
        let ttl = Duration::from_secs(10);
        Session { server, id: 7, seconds: 10, ttl, counted_from, is_late: false, is_over: true }
    }

    #[test]
    fn keep_alive_of_a_former_leader_does_not_count() {
        let (before, later) = (Moment::from_nanos(1_000), Moment::from_nanos(2_000));
        let renewal = Renewal { ttl: Some(Duration::from_secs(20)), counted_from: later };
        let mut session = session(before);
        let kept = KeptAlive { renewal, raft_term: 2, member: 0 };
        assert!(session.confirm(kept, 3).is_none());
        assert_eq!((session.counted_from(), session.ttl()), (before, Duration::from_secs(10)));
        assert!(session.confirm(kept, 2).is_some());
        assert_eq!((session.counted_from(), session.ttl()), (later, Duration::from_secs(20)));
    }

    /// Another one may have been asked for the confirmation, since this one had failed.
    #[test]
    fn member_whose_keep_alive_does_not_count_is_left_and_no_other() {
        let mut session = session(Moment::from_nanos(1_000));
        let renewal = Renewal { ttl: None, counted_from: Moment::from_nanos(2_000) };
        let current = |session: &Session| session.server.members().current();
        for (member, next) in [(1, 0), (0, 1), (0, 1), (1, 2), (2, 0)] {
            assert!(session.confirm(KeptAlive { renewal, raft_term: 2, member }, 3).is_none());
            assert_eq!(current(&session), next, "after {member} was left");
        }
    }

    #[test]
    fn only_member_is_waited_for_and_one_of_several_leaves_time_for_the_others() {
        for (url, each) in
            [("etcd://127.0.0.1:1", 1_500), ("etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", 500)]
        {
            let server = Server::new(Clock::system(), Endpoint::of(&url.parse().unwrap()).unwrap());
            let ttl = Duration::from_secs(30);
            assert_eq!(patience_for(&server, ttl).each, Duration::from_millis(each), "{url}");
        }
    }

    #[test]
    fn session_with_a_request_under_way_is_not_used_again() {
        for (is_late, is_kept) in [(false, true), (true, false)] {
            let mut session = session(Clock::system().now());
            let server = session.server.clone();
            // A process that acquires more than once.
            server.note_acquisition();
            server.note_acquisition();
            session.note_late(is_late);
            session.keep();
            assert_eq!(server.take_idle(10).is_some(), is_kept);
        }
    }
}
