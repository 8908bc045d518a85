//! The leases that a session carries: written down a moment after their grant, watched from then on, and lost one by one.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{Error, LossReason, Moment, until};
use futures_channel::oneshot;

use super::{Session, State};
use crate::failure::gone;
use crate::protocol::{Code, Request, Sight};

/// A lease that is released sooner than this after its grant is neither written down nor watched: it is not worth two requests.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// How long a holder that has lost its lease asks why before it is told.
const ASK_WHY_MOST: Duration = Duration::from_millis(100);

/// The pause before a node is deleted again whose deletion was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// A lease, as far as its session is concerned.
pub(crate) struct Held {
    /// What is yet to be written into its node, as far as is known.
    pub(crate) record: Vec<u8>,
    /// From when on its term counts, as its keeper was told last.
    pub(crate) counted_from: Moment,
    pub(crate) lost: oneshot::Sender<Error>,
}

impl Held {
    /// Tells the holder.
    pub(super) fn lose(self, error: &Error) {
        // A lease that has just been released is lost to nobody.
        drop(self.lost.send(error.clone()));
    }
}

/// Deletes a node of the session, until it is gone or the session has ended.
async fn delete(session: Session, path: Arc<str>) {
    while !session.has_ended() {
        let Ok(connection) = session.connection().await else { continue };
        let Ok(answer) = connection.call(&Request::delete(&path, -1)).await else { continue };
        if matches!(answer.code, Code::OK | Code::NO_NODE) {
            return session.call_behind(&path);
        }
        session.heed(&answer);
        session.clock().sleep(REFUSED_PAUSE).await;
    }
}

impl State {
    /// The leases that nothing is known to be written down of.
    pub(super) fn unwritten(&self) -> Vec<Arc<str>> {
        let unwritten = self.held.iter().filter(|(_, held)| !held.record.is_empty());
        unwritten.map(|(path, _)| Arc::clone(path)).collect()
    }
}

impl Session {
    /// Carries one more lease, whose node is at `path`. Whether the session still can.
    pub(crate) fn hold(&self, path: Arc<str>, held: Held) -> bool {
        let mut state = self.state();
        if state.ended.is_some() {
            return false;
        }
        let is_first = state.fresh.is_empty();
        state.fresh.push(Arc::clone(&path));
        state.held.insert(path, held);
        drop(state);
        if is_first {
            let session = self.clone();
            self.clock().serve(async move {
                session.clock().sleep(SETTLED_AFTER).await;
                session.settle();
            });
        }
        true
    }

    /// A lease is released: its node may vanish from now on.
    pub(crate) fn let_go(&self, path: &str) {
        self.state().held.remove(path);
    }

    /// Deletes the nodes of leases that nobody has renewed for a whole term: what keeps them has ended, and they are not to last as
    /// long as the session, which others keep.
    pub(super) fn give_up_what_is_not_renewed(&self) {
        let mut state = self.state();
        let (now, timeout) = (self.clock().now(), state.timeout);
        let is_over = |held: &Held| now.since(held.counted_from) >= timeout;
        let over: Vec<(Arc<str>, Held)> = state.held.extract_if(|_, held| is_over(held)).collect();
        drop(state);
        for (path, held) in over {
            self.clock().serve(delete(self.clone(), path));
            held.lose(&Error::lost(LossReason::Deadline, "it was not renewed for as long as it lasts"));
        }
    }

    /// Writes down the leases that have lasted for a moment, for those who look, and has them watched.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        // Where there is no connection now, it is done on the next one.
        let Some(connection) = state.open_connection().cloned() else { return };
        let fresh = std::mem::take(&mut state.fresh);
        let mut batch = connection.batch();
        for path in fresh {
            let Some(held) = state.held.get(&path) else { continue };
            batch.write_down(&Request::set_data(&path, &held.record, -1), &path);
            // After the change, which is none that it is to be told of.
            batch.tell(&Request::data(&path, true), &path);
        }
    }

    /// A lease is written down.
    pub(super) fn is_written(&self, path: &str) {
        if let Some(held) = self.state().held.get_mut(path) {
            held.record = Vec::new();
        }
    }

    /// A watch has seen something become of a node.
    pub(super) fn see(&self, sight: &Sight) {
        let mut state = self.state();
        if let Some(onlooker) = &mut state.onlooker {
            onlooker.hear(&sight.path);
        }
        state.calm.remove(&sight.path);
        let listeners = state.listeners.remove(&sight.path);
        let is_held = state.held.contains_key(&*sight.path);
        if is_held
            && !sight.is_deleted
            && let Some(connection) = state.open_connection()
        {
            // A watch sees once.
            connection.batch().tell(&Request::data(&sight.path, true), &sight.path);
        }
        drop(state);
        for listener in listeners.into_iter().flatten() {
            // Whoever has given up wants to know nothing.
            let _ = listener.send(());
        }
        if is_held && sight.is_deleted {
            self.lose(&sight.path);
        }
    }

    /// The node of a lease is gone. Its holder is told, and why, where that can be found out quickly.
    pub(super) fn lose(&self, path: &str) {
        let Some(held) = self.state().held.remove(path) else { return };
        self.call_behind(path);
        let Some((lock, node)) = path.rsplit_once('/') else { return held.lose(&gone(None)) };
        let (session, lock, node) = (self.clone(), lock.to_owned(), node.to_owned());
        self.clock().serve(async move {
            let clock = session.clock();
            let give_up_at = Some(clock.now().after(ASK_WHY_MOST));
            let reason = until(clock, give_up_at, session.why_lost(&lock, &node)).await.flatten();
            held.lose(&gone(reason.as_deref()));
        });
    }
}
