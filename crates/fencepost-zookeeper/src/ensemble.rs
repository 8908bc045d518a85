//! An ensemble as the locks of this process see it: one session for each length of lease that is asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost_core::{Clock, lock};

use crate::endpoint::Endpoint;
use crate::session::{Session, Use};

/// The time-out of the session of those who only look.
const LOOKING: Duration = Duration::from_secs(10);

/// What the backend and its claims share. Nothing is connected before the first use.
#[derive(Clone)]
pub(crate) struct Ensemble(Arc<Shared>);

struct Shared {
    clock: Clock,
    endpoint: Arc<Endpoint>,
    sessions: Mutex<HashMap<Duration, Session>>,
}

impl fmt::Debug for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ensemble").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

impl Ensemble {
    pub(crate) fn new(clock: Clock, endpoint: Endpoint) -> Self {
        let shared = Shared { clock, endpoint: Arc::new(endpoint), sessions: Mutex::default() };
        Self(Arc::new(shared))
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// The same, for a session of one's own.
    pub(crate) fn shared_endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.0.endpoint)
    }

    /// The session for leases of this length: the one that there is, or a new one.
    pub(crate) fn session(&self, ttl: Duration) -> Use {
        let mut sessions = lock(&self.0.sessions);
        sessions.retain(|_, session| !session.has_ended());
        if let Some(used) = sessions.get(&ttl).and_then(Session::used) {
            return used;
        }
        let used = Session::begin(&self.0.clock, &self.0.endpoint, ttl);
        sessions.insert(ttl, used.session.clone());
        used
    }

    /// Any session, for those who only look.
    pub(crate) fn any_session(&self) -> Use {
        let used = {
            let sessions = lock(&self.0.sessions);
            sessions.values().filter(|session| session.is_connected()).find_map(Session::used)
        };
        used.unwrap_or_else(|| self.session(LOOKING))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let sessions = self.sessions.get_mut().unwrap_or_else(PoisonError::into_inner);
        for session in sessions.values() {
            session.leave();
        }
    }
}
