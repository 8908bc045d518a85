//! One server as the locks of this process see it: its sessions that are free for use, and the queue of this process.
//!
//! Invariant: a session here holds nothing, and nothing is under way on it. So whoever uses a session is counted, and the last one
//! keeps it: two users of one session would be one to the server, which would let both in.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use fencepost_core::{Clock, FencingToken, HolderId, LockName, Moment, Result, lock};
use futures_channel::oneshot;

use crate::endpoint::{Endpoint, Options};
use crate::failure::failure;
use crate::session::{Session, answered};
use crate::settings::Terms;

/// How many sessions are kept for the next acquisition, and how long.
const IDLE_MOST: usize = 8;
const IDLE_FOR: Duration = Duration::from_secs(30);

/// What the backend and its claims share.
#[derive(Clone, Debug)]
pub(crate) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    endpoint: Endpoint,
    options: Options,
    idle: Mutex<Idle>,
    ids: Mutex<HashMap<LockName, i32>>,
    /// The locks that are held and their sessions, by their holders: the next lock of a set goes on the same one.
    holding: Mutex<HashMap<HolderId, (LockName, Weak<Session>)>>,
    queues: Mutex<HashMap<LockName, VecDeque<oneshot::Sender<Turn>>>>,
}

/// Sessions that nobody uses, and since when.
#[derive(Debug, Default)]
struct Idle {
    sessions: Vec<(Moment, Arc<Session>)>,
    /// Whether somebody closes those that are old.
    is_swept: bool,
}

impl Server {
    pub(crate) fn new(clock: Clock, endpoint: Endpoint, options: Options) -> Self {
        let (idle, ids, holding, queues) = Default::default();
        Self(Arc::new(Shared { clock, endpoint, options, idle, ids, holding, queues }))
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// A session that holds nothing: one that is kept, or a new one, for the lock `name` where it is for one. Whoever gets it is counted
    /// as its user.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(crate) async fn session(&self, ttl: Duration, name: Option<&LockName>) -> Result<Arc<Session>> {
        let Shared { clock, endpoint, options, .. } = &*self.0;
        let terms = Terms { ttl, on_pause: options.on_pause };
        while let Some(session) = self.take_idle() {
            // One that has broken meanwhile is not used; the next one may be newer.
            let adopted = answered(clock, Box::pin(session.adopt(terms))).await;
            if adopted.is_ok() {
                session.enter();
                return Ok(session);
            }
        }
        // Boxed: it is large, and seldom.
        let session = Box::pin(Session::open(clock, endpoint, options, ttl, name)).await?;
        if let Some((name, id)) = &session.known {
            lock(&self.0.ids).insert(name.clone(), *id);
        }
        session.enter();
        Ok(Arc::new(session))
    }

    fn take_idle(&self) -> Option<Arc<Session>> {
        let mut idle = lock(&self.0.idle);
        while let Some((_, session)) = idle.sessions.pop() {
            if session.is_open() {
                return Some(session);
            }
        }
        None
    }

    /// Ends one use of a session, which is kept for the next acquisition if it was the last.
    pub(crate) fn keep(&self, session: Arc<Session>) {
        // One that was opened in a quarantine does not know when that ends.
        if !session.leave() || !session.is_open() || session.ready_at.is_some() {
            return;
        }
        let mut idle = lock(&self.0.idle);
        if idle.sessions.len() < IDLE_MOST {
            idle.sessions.push((self.clock().now(), session));
        }
        let is_swept = std::mem::replace(&mut idle.is_swept, true);
        drop(idle);
        if !is_swept {
            self.clock().serve(close_idle(Arc::downgrade(&self.0), self.clock().clone()));
        }
    }

    /// The id of a lock, asked for once.
    pub(crate) async fn lock_id(&self, session: &Session, name: &LockName) -> Result<i32> {
        if let Some(id) = lock(&self.0.ids).get(name) {
            return Ok(*id);
        }
        let id = session.lock_id(name.as_str()).await?;
        lock(&self.0.ids).insert(name.clone(), id);
        Ok(id)
    }

    /// The database has another row for it now.
    pub(crate) fn forget_id(&self, name: &LockName) {
        lock(&self.0.ids).remove(name);
    }

    /// The session on which one of `holders` holds a lock. Whoever gets it is counted as a user of it beside that one.
    pub(crate) fn session_of(&self, holders: &[HolderId]) -> Option<Arc<Session>> {
        let holding = lock(&self.0.holding);
        let session = holders.iter().find_map(|holder| holding.get(holder)?.1.upgrade());
        session.filter(|session| session.is_open()).inspect(|session| session.enter())
    }

    /// A session to look at a lock: the one that holds it, where this process does, or else any.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(crate) async fn session_about(&self, name: &LockName) -> Result<Arc<Session>> {
        let holder = {
            let holding = lock(&self.0.holding);
            holding.iter().find_map(|(holder, (held, _))| (held == name).then_some(*holder))
        };
        match holder.and_then(|holder| self.session_of(&[holder])) {
            Some(session) => Ok(session),
            None => self.session(self.0.options.max_ttl, None).await,
        }
    }

    /// Why the lease with `token` was taken away, if it was.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn why_revoked(&self, id: i32, token: FencingToken) -> Result<Option<String>> {
        let session = self.session(self.0.options.max_ttl, None).await?;
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        let sql = "select reason from fencepost.revocation where id = $1 and token = $2";
        let row = session.client().query_opt(sql, &[&id, &token]).await.map_err(|error| failure(&error))?;
        self.keep(session);
        Ok(row.map(|row| row.get(0)))
    }

    pub(crate) fn note_holder(&self, holder: HolderId, name: &LockName, session: &Arc<Session>) {
        lock(&self.0.holding).insert(holder, (name.clone(), Arc::downgrade(session)));
    }

    pub(crate) fn forget_holder(&self, holder: HolderId) {
        lock(&self.0.holding).remove(&holder);
    }

    /// Waits until nobody of this process waits for the lock on the server: one connection is enough for all of them.
    ///
    /// # Cancel safety
    /// Dropping it gives the place to the next one.
    pub(crate) async fn turn(&self, name: &LockName) -> Turn {
        let called = match lock(&self.0.queues).entry(name.clone()) {
            Entry::Vacant(queue) => {
                queue.insert(VecDeque::new());
                None
            }
            Entry::Occupied(mut queue) => {
                let (sender, called) = oneshot::channel();
                queue.get_mut().push_back(sender);
                Some(called)
            }
        };
        match called {
            None => Turn::new(self, name),
            // Whoever has the turn gives it on, and does not vanish before.
            Some(called) => called.await.unwrap_or_else(|_| Turn::new(self, name)),
        }
    }

    fn call_next(&self, name: &LockName) {
        while let Some(next) = self.next_in_line(name) {
            // Not under the lock of the queues: a turn that nobody takes comes back here when it is dropped.
            match next.send(Turn::new(self, name)) {
                Ok(()) => return,
                // That one has given up.
                Err(mut turn) => turn.server = None,
            }
        }
    }

    /// Whoever waits first; where nobody does, the queue is gone.
    fn next_in_line(&self, name: &LockName) -> Option<oneshot::Sender<Turn>> {
        let mut queues = lock(&self.0.queues);
        let next = queues.get_mut(name)?.pop_front();
        if next.is_none() {
            queues.remove(name);
        }
        next
    }
}

/// The right to wait on the server. It is given on when it is dropped, also on its way to somebody who has given up.
#[derive(Debug)]
pub(crate) struct Turn {
    server: Option<Server>,
    name: LockName,
}

impl Turn {
    fn new(server: &Server, name: &LockName) -> Self {
        Self { server: Some(server.clone()), name: name.clone() }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.call_next(&self.name);
        }
    }
}

/// Closes sessions that nobody has used for a while, until none is left.
async fn close_idle(shared: Weak<Shared>, clock: Clock) {
    loop {
        clock.sleep(IDLE_FOR / 2).await;
        let Some(shared) = shared.upgrade() else { return };
        let old = clock.now().before(IDLE_FOR);
        let mut idle = lock(&shared.idle);
        idle.sessions.retain(|(since, session)| *since > old && session.is_open());
        if idle.sessions.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}
