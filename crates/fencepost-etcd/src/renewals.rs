//! Renewals that come due together: one call keeps all those leases alive, and then a majority is asked once for all of them.
//!
//! Leases of another ttl have another pace, and are never kept waiting. Invariant: a new term counts only if the leader who gave it was
//! still in office when a majority was asked afterwards, which has seen the holder's key.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use fencepost_core::{Raced, Renewal, Result, lock, race};
use futures_channel::oneshot;

use crate::failure::unavailable;
use crate::generated::{RangeRequest, TxnRequest};
use crate::members::{Failed, Patience};
use crate::record::Kept;
use crate::requests::{get, one, range};
use crate::server::Server;
use crate::session::{KeptAlive, changing, keep_alive, patience_for};
use crate::stand::Stand;

/// How many renewals go together at most. A follower passes keep-alives on to the leader one by one, some of them in a millisecond; a
/// transaction may have four times as many parts.
const BATCH: usize = 32;
const MOST_HALVED: u32 = BATCH.ilog2();

/// How long renewals gather at most, and the part of a ttl that they do.
const GATHER_MOST: Duration = Duration::from_millis(10);
const GATHER_PART: u32 = 256;

/// The renewals that are due.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    /// By the ttl of their leases.
    due: Mutex<HashMap<Duration, Vec<Due>>>,
    /// How often a batch was halved, since a whole one takes too long on the way from this follower to its leader.
    halved: AtomicU32,
}

#[derive(Debug)]
struct Due {
    lease: i64,
    stand: Arc<Stand>,
    outcome: oneshot::Sender<Outcome>,
}

/// `None` where the lease or its key is gone.
type Outcome = Result<Option<Renewal>>;

impl Server {
    /// Renews a lease, together with others that are due, and sees that its key is still there; `None` where one of them is gone.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have renewed it.
    pub(crate) async fn renew(&self, lease: i64, ttl: Duration, stand: Arc<Stand>) -> Outcome {
        let (sender, outcome) = oneshot::channel();
        self.gather(Due { lease, stand, outcome: sender }, ttl);
        outcome.await.unwrap_or_else(|_| Err(unavailable("the renewal has ended")))
    }

    fn gather(&self, due: Due, ttl: Duration) {
        let mut all = lock(&self.renewals().due);
        let gathered = all.entry(ttl).or_default();
        gathered.push(due);
        if gathered.len() == 1 {
            let server = self.clone();
            self.clock().serve(async move {
                server.clock().sleep((ttl / GATHER_PART).min(GATHER_MOST)).await;
                server.renew_gathered(ttl);
            });
        }
    }

    fn renew_gathered(&self, ttl: Duration) {
        let mut due = lock(&self.renewals().due).remove(&ttl).unwrap_or_default();
        let most = self.renewals().most();
        while !due.is_empty() {
            let batch = due.split_off(due.len().saturating_sub(most));
            let server = self.clone();
            self.clock().serve(async move { server.renew_batch(batch, patience_for(&server, ttl)).await });
        }
    }

    async fn renew_batch(&self, mut batch: Vec<Due>, patience: Patience) {
        for _ in 0..=self.members().count() {
            let leases: Vec<_> = batch.iter().map(|due| (due.lease, Arc::clone(&due.stand))).collect();
            let began = self.clock().now();
            let asking = Box::pin(self.ask_for(&leases, patience));
            // Whoever has given up asks again.
            let given_up = poll_fn(|context| given_up(&mut batch, context));
            let outcome = race(asking, given_up).await;
            self.renewals().note(leases.len(), self.clock().now().since(began), patience.each);
            let Raced::First(answers) = outcome else { return };
            let Answers { kept, there, raft_term } = match answers {
                Ok(answers) => answers,
                // Perhaps one of them alone is to blame, or there are too many for this server.
                Err(failed) if leases.len() > 1 && failed.failure.is_refusal() => {
                    return self.renew_one_by_one(batch, patience);
                }
                Err(failed) if failed.failure.is_lease_not_found() => return answer_all(batch, &Ok(None)),
                Err(failed) => return answer_all(batch, &Err(failed.error())),
            };
            let member = kept.iter().flatten().map(|kept| kept.member).next();
            let judged = kept.into_iter().zip(there).map(|(kept, is_there)| judge(kept, is_there, raft_term));
            batch = batch.into_iter().zip(judged).filter_map(|(due, verdict)| due.hear(verdict)).collect();
            if batch.is_empty() {
                return;
            }
            member.inspect(|member| self.members().leave(*member));
        }
        answer_all(batch, &Err(changing()));
    }

    fn renew_one_by_one(&self, batch: Vec<Due>, patience: Patience) {
        for due in batch {
            let server = self.clone();
            self.clock().serve(async move { server.renew_batch(vec![due], patience).await });
        }
    }

    /// Has the leases kept alive, and then looks which keys are there, and in whose term.
    async fn ask_for(&self, leases: &[(i64, Arc<Stand>)], patience: Patience) -> Result<Answers, Failed> {
        let ids: Vec<i64> = leases.iter().map(|(id, _)| *id).collect();
        let kept = keep_alive(self, &ids, patience).await?;
        let of_key = |stand: &Stand| range(RangeRequest { keys_only: true, ..one(&stand.key) });
        let mut success = vec![get(&self.offset_key())];
        success.extend(leases.iter().map(|(_, stand)| of_key(stand)));
        let looking = TxnRequest { success, ..TxnRequest::default() };
        let done = self.txn(&looking, patience).await?.message;
        self.note_offset(Kept::read(done.found(0).first()));
        let is_there = |(part, (_, stand)): (usize, &(i64, Arc<Stand>))| {
            done.found(part).first().is_some_and(|key| key.create_revision == stand.created)
        };
        let there = (1..).zip(leases).map(is_there).collect();
        Ok(Answers { kept, there, raft_term: done.header.raft_term })
    }
}

impl Renewals {
    /// How many go together now.
    fn most(&self) -> usize {
        BATCH >> self.halved.load(Ordering::Relaxed).min(MOST_HALVED)
    }

    /// So many have taken so long together, of the time that a member has. More of them go together where twice as many would still
    /// leave half of it.
    fn note(&self, count: usize, took: Duration, each: Duration) {
        if took >= each && count > 1 {
            let halved = (BATCH / count).max(1).ilog2() + 1;
            self.halved.fetch_max(halved.min(MOST_HALVED), Ordering::Relaxed);
        } else if count >= self.most() && took <= each / 4 {
            self.halved.store(self.halved.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        }
    }
}

/// What was answered about several leases, in their order.
struct Answers {
    /// What was given, where the lease was there.
    kept: Vec<Option<KeptAlive>>,
    /// Whether its key was there afterwards.
    there: Vec<bool>,
    /// The term of the leader who was in office afterwards.
    raft_term: u64,
}

impl Due {
    /// Tells what is known; gives it back where nothing is.
    fn hear(self, verdict: Verdict) -> Option<Self> {
        match verdict {
            Verdict::Known(outcome) => {
                // Whoever has given up asks again.
                drop(self.outcome.send(Ok(outcome)));
                None
            }
            Verdict::Again => Some(self),
        }
    }
}

/// Ends when nobody wants to know any more.
fn given_up(batch: &mut [Due], context: &mut Context<'_>) -> Poll<()> {
    // All are asked, so that each of them wakes whoever waits.
    let waiting =
        batch.iter_mut().filter_map(|due| due.outcome.poll_canceled(context).is_pending().then_some(()));
    if waiting.count() == 0 { Poll::Ready(()) } else { Poll::Pending }
}

/// What a keep-alive has come to.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Known(Option<Renewal>),
    /// It counts for nothing, and another member is to be asked.
    Again,
}

/// A key that is not there is gone, whoever says yes to its lease; and a former leader goes on saying yes.
fn judge(kept: Option<KeptAlive>, is_there: bool, raft_term: u64) -> Verdict {
    match kept.filter(|_| is_there) {
        None => Verdict::Known(None),
        Some(kept) if kept.raft_term == raft_term => Verdict::Known(Some(kept.renewal)),
        Some(_) => Verdict::Again,
    }
}

fn answer_all(batch: Vec<Due>, outcome: &Outcome) {
    for due in batch {
        drop(due.outcome.send(outcome.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::Moment;

    #[test]
    fn batches_are_halved_where_they_take_too_long_and_doubled_where_there_is_time() {
        let (renewals, ms) = (Renewals::default(), Duration::from_millis);
        for (count, took, most) in [
            (32, ms(99), 32),
            (32, ms(100), 16),
            // Another one that was under way.
            (32, ms(100), 16),
            (16, ms(200), 8),
            (8, ms(26), 8),
            (3, ms(1), 8),
            (8, ms(25), 16),
            (16, ms(1), 32),
            (32, ms(1), 32),
            // That is not for the company.
            (1, ms(100), 32),
            (2, ms(100), 1),
            (1, ms(1), 2),
        ] {
            renewals.note(count, took, ms(100));
            assert_eq!(renewals.most(), most, "after {count} in {took:?}");
        }
    }

    #[test]
    fn keep_alive_counts_only_with_its_key_and_in_the_term_of_the_later_answer() {
        let renewal = Renewal { ttl: Some(Duration::from_secs(9)), counted_from: Moment::from_nanos(7) };
        let (renewed, gone, again) = ("Known(Some(", "Known(None)", "Again");
        for (raft_term, is_there, verdict) in
            [(3, true, renewed), (2, true, again), (4, true, again), (3, false, gone), (2, false, gone)]
        {
            let judged = judge(Some(KeptAlive { renewal, raft_term, member: 0 }), is_there, 3);
            assert!(format!("{judged:?}").starts_with(verdict), "{raft_term} {is_there} {judged:?}");
        }
        assert!(matches!(judge(None, true, 3), Verdict::Known(None)));
    }
}
