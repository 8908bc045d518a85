//! A session with the ensemble: what its users see of it. `keeping` is the task that keeps it.
//!
//! It outlives connections, and carries many locks; a lock that is lost alone takes no other along. Invariant: what a session's
//! heartbeats have proved on one connection is forgotten with that connection, and the nodes of the leases are looked at before a
//! heartbeat counts on the next one.

mod calm;
mod crowd;
mod held;
mod keeping;

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use fencepost_core::{Clock, Error, Moment, Renewal, Result, lock};
use futures_channel::oneshot;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::failure::{closed, garbled, gone, unavailable};
use crate::heartbeat::{self, Proof};
use crate::protocol::Hello;
use crate::signals::Onlooker;

use calm::Calm;
use crowd::Crowd;
pub(crate) use crowd::{Behind, Presence};
pub(crate) use held::Held;
pub(crate) use keeping::heartbeat;

/// A session. It is closed when nobody has used it for a while, or, once its backend is gone, when nobody uses it any more.
#[derive(Clone)]
pub(crate) struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    endpoint: Arc<Endpoint>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What a connection begins with.
    hello: Hello,
    /// What was granted; zero as long as there is no session.
    timeout: Duration,
    connection: Option<Connection>,
    /// Whether a member was asked for the session, and has not answered yet.
    is_asked_for: bool,
    proof: Option<Proof>,
    /// Whether a heartbeat is committed that the last connection has sent.
    is_served: bool,
    /// How often all members were tried in vain, and what the last one said.
    failures: u64,
    failure: Option<Error>,
    /// Why there will never be a connection again.
    ended: Option<Error>,
    users: usize,
    unused_since: Option<Moment>,
    /// Whether nobody will use it who does not use it now.
    is_left: bool,
    held: HashMap<Arc<str>, Held>,
    /// The leases that have been granted and not been written down yet.
    fresh: Vec<Arc<str>>,
    /// By the path of a node, those who want to know when something becomes of it.
    listeners: HashMap<String, Vec<oneshot::Sender<()>>>,
    /// Who wants to know of whatever the connection tells of.
    onlooker: Option<Onlooker>,
    /// The locks whose records are watched over, and how often that was begun.
    calm: HashMap<String, Calm>,
    vigils: u64,
    crowd: Crowd,
    waiting: Waiting,
}

/// Those who wait for any change. Thousands may do so at once, so each knows where its waker is.
#[derive(Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// How often all were woken.
    round: u64,
}

/// Where a waker is, until all are woken.
type Seat = Option<(u64, usize)>;

impl Waiting {
    fn note(&mut self, seat: &mut Seat, waker: &Waker) {
        if let Some((_, index)) = seat.filter(|(round, _)| *round == self.round) {
            self.wakers[index].clone_from(waker);
            return;
        }
        *seat = Some((self.round, self.wakers.len()));
        self.wakers.push(waker.clone());
    }

    fn all(&mut self) -> Vec<Waker> {
        self.round += 1;
        std::mem::take(&mut self.wakers)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// The first use of a session that is to be asked for with this time-out, and is kept from now on.
    pub(crate) fn begin(clock: &Clock, endpoint: &Arc<Endpoint>, timeout: Duration) -> Use {
        let hello = Hello {
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            password: vec![0; crate::protocol::PASSWORD_LENGTH],
            ..Hello::default()
        };
        let state = State { hello, users: 1, ..State::default() };
        let endpoint = Arc::clone(endpoint);
        let session =
            Self { shared: Arc::new(Shared { clock: clock.clone(), endpoint, state: Mutex::new(state) }) };
        clock.serve(keeping::keep(session.clone()));
        Use { session }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// One more use of it, unless it has ended.
    pub(crate) fn used(&self) -> Option<Use> {
        let mut state = self.state();
        if state.ended.is_some() || state.is_left {
            return None;
        }
        state.users += 1;
        state.unused_since = None;
        Some(Use { session: self.clone() })
    }

    /// The backend is gone: it is closed when nobody uses it any more.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.is_left = true;
        self.close_if_unused(state);
    }

    /// Closes it at once where nobody uses it or ever will, so that a process that is about to end leaves nothing behind; also where it
    /// is not there yet, and whoever wanted it has gone.
    fn close_if_unused(&self, mut state: MutexGuard<'_, State>) {
        let is_needed = !state.is_left && state.hello.session != 0;
        if state.users > 0 || is_needed || state.ended.is_some() {
            return;
        }
        state.ended = Some(closed());
        let connection = state.connection.take();
        let is_asked_for = state.is_asked_for;
        wake(state);
        if let Some(connection) = connection {
            keeping::close(self.clock(), connection);
        } else if is_asked_for {
            keeping::close_when_it_is_there(self.clone());
        }
    }

    /// Whether there is a connection now.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().open_connection().is_some()
    }

    /// The connection, once there is one.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Lost` when the session has ended; why all members were tried in vain, once they were.
    pub(crate) async fn connection(&self) -> Result<Connection> {
        let failures = self.state().failures;
        self.when(|state| {
            if let Some(error) = &state.ended {
                return Some(Err(error.clone()));
            }
            if let Some(connection) = state.open_connection() {
                return Some(Ok(connection.clone()));
            }
            let failed = state.failure.clone().filter(|_| state.failures > failures);
            failed.map(Err)
        })
        .await
    }

    /// What the ensemble calls it.
    pub(crate) fn id(&self) -> i64 {
        self.state().hello.session
    }

    /// The time-out that was granted; zero before there is a session.
    pub(crate) fn timeout(&self) -> Duration {
        self.state().timeout
    }

    /// Whether it has ended, so that nothing that it had made is there any more, or will be soon.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended.is_some()
    }

    /// What a connection begins with to go on with the session.
    fn hello(&self) -> Hello {
        self.state().hello.clone()
    }

    /// A term of which at least a quarter of the time-out is left, from the heartbeats that are committed; waits for one if need be.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Lost` when the session has ended; `Unavailable` when the connection has broken.
    pub(crate) async fn term(&self) -> Result<Renewal> {
        self.when(|state| {
            if let Some(error) = &state.ended {
                return Some(Err(error.clone()));
            }
            if state.open_connection().is_none() {
                return Some(Err(unavailable("the connection broke")));
            }
            self.term_in(state).map(Ok)
        })
        .await
    }

    /// The same, if no heartbeat is to be waited for.
    pub(crate) fn term_at_once(&self) -> Option<Renewal> {
        let state = self.state();
        if state.ended.is_some() { None } else { self.term_in(&state) }
    }

    fn term_in(&self, state: &State) -> Option<Renewal> {
        let counted_from = state.proof.as_ref()?.counted_from()?;
        let is_fresh = self.clock().now().since(counted_from) <= state.timeout * 3 / 4;
        is_fresh.then_some(Renewal { ttl: Some(state.timeout), counted_from })
    }

    /// The same, from a heartbeat that was sent a moment ago.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    ///
    /// # Errors
    /// `Lost` when the session has ended, or the node at `path` is not held any more.
    pub(crate) async fn renewed(&self, path: &str) -> Result<Renewal> {
        let asked = self.clock().now();
        self.when(|state| {
            if let Some(error) = &state.ended {
                return Some(Err(error.clone()));
            }
            if !state.held.contains_key(path) {
                return Some(Err(gone(None)));
            }
            let proof = state.proof.as_ref()?;
            let counted_from = proof.counted_from()?;
            let a_moment_ago = asked.before(heartbeat::period(state.timeout) * 2);
            proof.last_committed().filter(|sent| *sent >= a_moment_ago)?;
            let timeout = state.timeout;
            if let Some(held) = state.held.get_mut(path) {
                held.counted_from = counted_from;
            }
            Some(Ok(Renewal { ttl: Some(timeout), counted_from }))
        })
        .await
    }

    /// Hears when something becomes of the node at `path`, or of the connection.
    pub(crate) fn listen(&self, path: &str) -> oneshot::Receiver<()> {
        let (sender, heard) = oneshot::channel();
        let mut state = self.state();
        let listeners = state.listeners.entry(path.to_owned()).or_default();
        // Those who have given up meanwhile.
        listeners.retain(|listener| !listener.is_canceled());
        listeners.push(sender);
        heard
    }

    /// There is no node at `path`, and so no watch over it: whoever has listened there was told, or will find that out as well.
    pub(crate) fn forget(&self, path: &str) {
        self.state().listeners.remove(path);
    }

    /// Has `onlooker` hear of whatever this connection tells of, as long as it lasts.
    pub(crate) fn look_on(&self, connection: &Connection, onlooker: Onlooker) {
        let mut state = self.state();
        let is_current = state.open_connection().is_some_and(|current| current.is(connection));
        state.onlooker = is_current.then_some(onlooker);
    }

    /// Ends with what `look` finds, which is called again whenever something has changed.
    fn when<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> impl Future<Output = T> {
        let mut seat = None;
        poll_fn(move |context| {
            let mut state = self.state();
            if let Some(found) = look(&mut state) {
                return Poll::Ready(found);
            }
            state.waiting.note(&mut seat, context.waker());
            Poll::Pending
        })
    }

    /// The session has ended, and with it all that it has carried.
    fn end(&self, error: &Error) {
        let mut state = self.state();
        state.ended.get_or_insert_with(|| error.clone());
        let held = std::mem::take(&mut state.held);
        let connection = state.connection.take();
        state.forget_watches();
        state.proof = None;
        wake(state);
        for held in held.into_values() {
            held.lose(error);
        }
        if let Some(connection) = connection {
            connection.close("the session has ended");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl State {
    /// A server forgets the watches of a connection that has broken: whoever listens looks again.
    fn forget_watches(&mut self) {
        self.listeners.clear();
        self.calm.clear();
        self.call_all_behind();
        self.onlooker = None;
    }

    fn open_connection(&self) -> Option<&Connection> {
        self.connection.as_ref().filter(|connection| connection.is_open())
    }
}

/// Has everybody look again who waits for a change.
fn wake(mut state: MutexGuard<'_, State>) {
    let wakers = state.waiting.all();
    drop(state);
    for waker in wakers {
        waker.wake();
    }
}

/// One use of a session, which is not closed before.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) session: Session,
}

impl Clone for Use {
    fn clone(&self) -> Self {
        self.session.state().users += 1;
        Self { session: self.session.clone() }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = self.session.state();
        state.users -= 1;
        if state.users == 0 {
            state.unused_since = Some(self.session.clock().now());
            self.session.close_if_unused(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_woken_once_a_round_however_often_it_looks() {
        let (mut waiting, mut seat, mut other) = (Waiting::default(), None, None);
        for _ in 0..3 {
            waiting.note(&mut seat, Waker::noop());
            waiting.note(&mut other, Waker::noop());
        }
        assert_eq!(waiting.all().len(), 2);
        waiting.note(&mut other, Waker::noop());
        waiting.note(&mut seat, Waker::noop());
        assert_eq!(waiting.all().len(), 2);
        assert!(waiting.all().is_empty());
    }
}
