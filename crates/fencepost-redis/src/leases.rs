//! The leases that this process holds on one server: renewed together, and told when they are taken away.
//!
//! Renewals that come due within an instant go in one script, so that ten thousand leases cost a handful of commands a second.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{
    Error, Event, FencingToken, HolderId, LockName, LossReason, Moment, Observer, Renewal, Result, lock,
};
use futures_channel::oneshot;

use crate::failure::{lost_touch, refuse};
use crate::keys::LockKey;
use crate::record;
use crate::resp::Reply;
use crate::script;
use crate::server::{Server, Shared};
use crate::session::Session;

/// How many renewals go in one script. It takes the server about a tenth of a millisecond.
const BATCH: usize = 100;

/// How long renewals gather at most, and the part of a ttl that they do.
const GATHER_MOST: Duration = Duration::from_millis(10);
const GATHER_PART: u32 = 256;

/// How many leases that are taken away before they are known are kept in mind. Most of them were given back meanwhile.
const UNKNOWN_MOST: usize = 64;

/// The leases of one server.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<HolderId, Held>>,
    /// Those that were taken away before their holder had heard of the grant. Locked while `held` is.
    taken_early: Mutex<VecDeque<(HolderId, Error)>>,
    due: Mutex<Vec<Due>>,
}

/// A lease, as far as the server is concerned.
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) key: LockKey,
    pub(crate) token: FencingToken,
    pub(crate) ttl: Duration,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) lost: Option<oneshot::Sender<Error>>,
}

struct Due {
    holder: HolderId,
    /// Who wants to know; nobody where the server's clock has been set.
    outcome: Option<oneshot::Sender<Result<Renewal>>>,
}

impl Leases {
    pub(crate) fn insert(&self, holder: HolderId, mut lease: Held) {
        let mut held = lock(&self.held);
        let mut taken_early = lock(&self.taken_early);
        if let Some(index) = taken_early.iter().position(|(taken, _)| *taken == holder)
            && let Some((_, error)) = taken_early.remove(index)
            && let Some(lost) = lease.lost.take()
        {
            drop(lost.send(error));
        }
        held.insert(holder, lease);
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.held).is_empty()
    }

    pub(crate) fn remove(&self, holder: HolderId) {
        lock(&self.held).remove(&holder);
    }

    /// Tells a holder that its lease was taken away, or will when it has it: the message may come right behind the grant.
    pub(crate) fn take_away(&self, holder: &str, reason: &str) {
        let Ok(holder) = holder.parse() else { return };
        let error = Error::lost(LossReason::Revoked, format!("it was taken away: {reason}"));
        let held = lock(&self.held);
        if held.contains_key(&holder) {
            drop(held);
            return self.lose(holder, &error);
        }
        let mut taken_early = lock(&self.taken_early);
        taken_early.truncate(UNKNOWN_MOST - 1);
        taken_early.push_front((holder, error));
    }

    fn lose(&self, holder: HolderId, error: &Error) {
        let lost = lock(&self.held).get_mut(&holder).and_then(|held| held.lost.take());
        if let Some(lost) = lost {
            // A lease that has just been released is lost to nobody.
            drop(lost.send(error.clone()));
        }
    }

    /// Tells every holder something that people should know.
    pub(crate) fn tell_all(&self, what: &str) {
        let observed = |lease: &Held| Some((lease.name.clone(), Arc::clone(lease.observer.as_ref()?)));
        let all: Vec<_> = lock(&self.held).values().filter_map(observed).collect();
        // Not under the lock: what an observer does is its own affair.
        for (name, observer) in all {
            observer.observe(&name, &Event::Noticed { what: what.to_owned() });
        }
    }
}

impl Server {
    /// Renews one lease, together with others that are due.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have renewed it.
    pub(crate) async fn renew(&self, holder: HolderId, ttl: Duration) -> Result<Renewal> {
        let (sender, outcome) = oneshot::channel();
        self.gather(vec![Due { holder, outcome: Some(sender) }], (ttl / GATHER_PART).min(GATHER_MOST));
        outcome.await.unwrap_or_else(|_| Err(crate::failure::unavailable("the renewal has ended")))
    }

    fn gather(&self, due: Vec<Due>, pause: Duration) {
        let mut gathered = lock(&self.shared.leases.due);
        let is_first = gathered.is_empty();
        gathered.extend(due);
        drop(gathered);
        if is_first {
            let server = self.clone();
            self.clock().serve(async move {
                server.clock().sleep(pause).await;
                server.renew_gathered().await;
            });
        }
    }

    async fn renew_gathered(&self) {
        let mut due = std::mem::take(&mut *lock(&self.shared.leases.due));
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return answer(due, |_| Err(error.clone())),
        };
        // Whoever has given up, also while the server could not be reached, asks again.
        due.retain(|due| due.outcome.as_ref().is_none_or(|outcome| !outcome.is_canceled()));
        while !due.is_empty() {
            let batch = due.split_off(due.len().saturating_sub(BATCH));
            let server = self.clone();
            let session = session.clone();
            self.clock().serve(async move { server.renew_batch(&session, batch).await });
        }
    }

    async fn renew_batch(&self, session: &Session, batch: Vec<Due>) {
        let mut keys = Vec::with_capacity(batch.len());
        let mut arguments = Vec::with_capacity(batch.len() * 2);
        // By holder: the same one may be due twice, by itself and because all are looked after.
        let mut ttls = HashMap::with_capacity(batch.len());
        {
            let held = lock(&self.shared.leases.held);
            for (holder, lease) in batch.iter().filter_map(|due| held.get_key_value(&due.holder)) {
                if ttls.contains_key(holder) {
                    continue;
                }
                ttls.insert(*holder, (ttls.len(), lease.ttl));
                keys.push(lease.key.clone());
                arguments
                    .extend([record::beginning(*holder, lease.token), lease.ttl.as_millis().to_string()]);
            }
        }
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let counted_from = self.clock().now();
        let reply = session.connection.run(&script::RENEW, &keys, &arguments).await;
        let reply = reply.map_err(|broken| lost_touch(&broken)).and_then(refuse);
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return answer(batch, |_| Err(error.clone())),
        };
        let (time, states) =
            reply.list().split_first().map_or((None, &[][..]), |(time, rest)| (time.number(), rest));
        let outcome = |holder: HolderId| {
            let (index, ttl) = *ttls.get(&holder).ok_or_else(|| gone(None))?;
            match states.get(index) {
                Some(Reply::Integer(1)) => Ok(Renewal { ttl: Some(ttl), counted_from }),
                state => Err(gone(state.and_then(Reply::text))),
            }
        };
        for holder in batch.iter().filter(|due| due.outcome.is_none()).map(|due| due.holder) {
            if let Err(error) = outcome(holder) {
                self.shared.leases.lose(holder, &error);
            }
        }
        answer(batch, outcome);
        if let Some(time) = time {
            self.note_time(time, counted_from);
        }
    }

    /// Takes note of the server's time in a reply to what was sent at `sent`. Where its clock has been set, everybody is told,
    /// and all leases are renewed at once: those that the step has ended are lost now, and not at their next renewal.
    pub(crate) fn note_time(&self, server_ms: i64, sent: Moment) {
        let Shared { clock, leases, server_clock, .. } = &*self.shared;
        let Some(step) = server_clock.note(server_ms, sent, clock.now()) else { return };
        let direction = if step > 0 { "forward" } else { "back" };
        let by = Duration::from_millis(step.unsigned_abs());
        leases.tell_all(&format!("the clock of the server was set {direction} by about {by:?}"));
        self.look_after_all();
    }

    /// Renews all leases at once. Those that are gone are lost now, and not at their next renewal.
    pub(crate) fn look_after_all(&self) {
        let held = lock(&self.shared.leases.held);
        let all: Vec<Due> = held.keys().map(|holder| Due { holder: *holder, outcome: None }).collect();
        drop(held);
        self.gather(all, Duration::ZERO);
    }
}

fn answer(due: Vec<Due>, outcome: impl Fn(HolderId) -> Result<Renewal>) {
    for due in due {
        if let Some(sender) = due.outcome {
            // Whoever has given up asks again.
            drop(sender.send(outcome(due.holder)));
        }
    }
}

/// The lease is not there any more; `reason` says by whose will, where that is known.
pub(crate) fn gone(reason: Option<&str>) -> Error {
    match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => Error::lost(LossReason::Revoked, format!("it was taken away: {reason}")),
        None => Error::lost(LossReason::Expired, "the server does not know it any more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Endpoint, Options};
    use crate::queue;
    use fencepost_core::{AcquireRequest, BackendUrl, Clock, ErrorKind, Mode, Wait, block_on};
    use fencepost_testkit::servers::RedisServer;

    #[test]
    fn lease_that_is_taken_away_before_it_is_known_is_lost_at_once() {
        let leases = Leases::default();
        let (early, late) = (HolderId::draw(&Clock::system()), HolderId::draw(&Clock::system()));
        leases.take_away(&early.to_string(), "it hangs");
        let insert = |holder| {
            let (sender, lost) = oneshot::channel();
            let name: LockName = "a".parse().unwrap();
            let key = LockKey::of(&name);
            let (token, ttl) = (FencingToken::MIN, Duration::from_secs(30));
            leases.insert(holder, Held { name, key, token, ttl, observer: None, lost: Some(sender) });
            lost
        };
        let (mut of_early, mut of_late) = (insert(early), insert(late));
        assert!(of_early.try_recv().unwrap().unwrap().to_string().contains("it hangs"));
        assert!(of_late.try_recv().unwrap().is_none());
        for _ in 0..2 * UNKNOWN_MOST {
            leases.take_away(&HolderId::draw(&Clock::system()).to_string(), "it was given back before");
        }
        assert_eq!(lock(&leases.taken_early).len(), UNKNOWN_MOST);
        leases.take_away(&late.to_string(), "it hangs");
        assert!(of_late.try_recv().unwrap().is_some());
    }

    #[test]
    #[cfg_attr(not(redis_server), ignore = "its server is not installed")]
    fn lease_that_is_due_twice_is_not_taken_for_another() {
        let redis = RedisServer::start();
        let url: BackendUrl = format!("{}?quarantine=off", redis.url()).parse().unwrap();
        let (endpoint, options) = (Endpoint::one(&url).unwrap(), Options::of(&url).unwrap());
        let server = Server::new(Clock::system(), endpoint, options);
        let request = |name: &str| AcquireRequest {
            name: name.parse().unwrap(),
            holder: HolderId::draw(&Clock::system()),
            label: String::new(),
            ttl: Duration::from_secs(30),
            at_least: None,
            mode: Mode::Exclusive,
            beside: Vec::new(),
            wait: Wait::No,
            observer: None,
        };
        let (kept, gone) = (request("kept"), request("gone"));
        block_on(async {
            let _kept = queue::acquire(&server, &kept).await.unwrap();
            let _gone = queue::acquire(&server, &gone).await.unwrap();
            redis.command(&["DEL", "fencepost:{gone}:l"]);
            let due = |holder, outcome| Due { holder, outcome };
            let ((first, is_kept), (second, is_gone)) = (oneshot::channel(), oneshot::channel());
            server.gather(
                vec![
                    due(kept.holder, None),
                    due(kept.holder, None),
                    due(gone.holder, None),
                    due(kept.holder, Some(first)),
                    due(gone.holder, Some(second)),
                ],
                Duration::ZERO,
            );
            assert!(is_kept.await.unwrap().is_ok());
            assert_eq!(is_gone.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        });
    }
}
