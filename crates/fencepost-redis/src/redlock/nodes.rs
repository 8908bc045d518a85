//! The nodes of one backend.
//!
//! Invariant: no two of them are the same server, under whatever names they were given.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{BackendUrl, Clock, Error, ErrorKind, Moment, Result, lock, until};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::endpoint::{Endpoint, Options};
use crate::quorum::Quorum;
use crate::server::Server;
use crate::session::Session;

/// How long nodes beyond a majority may take to be connected to before an attempt goes on without them.
const STRAGGLERS_MOST: Duration = Duration::from_millis(50);

/// How long a majority may take to be connected to again; an attempt that goes on without them says who is missing.
const RECONNECT_MOST: Duration = Duration::from_millis(500);

/// Several independent servers.
#[derive(Clone)]
pub(super) struct Nodes {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    quorum: Quorum,
    options: Options,
    /// Whether tokens are lifted to the wall clock; only tests of the other guards do without.
    has_floor: bool,
    nodes: Vec<Node>,
    /// What is known of each of them.
    known: Mutex<Vec<Known>>,
    /// Whether all of them have been waited for once.
    has_connected: AtomicBool,
    /// When somebody last looked whether a node waits for its floor.
    reseeded_at: Mutex<Option<Moment>>,
}

/// What is known of one node.
#[derive(Clone, Default)]
struct Known {
    /// What runs behind its address.
    run_id: Option<String>,
    /// Why it could not be connected to the last time.
    error: Option<Error>,
}

/// One of them.
pub(super) struct Node {
    pub(super) server: Server,
    pub(super) endpoint: Endpoint,
    /// Its address, as it was written.
    pub(super) name: String,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|node| &node.name)).finish()
    }
}

impl Nodes {
    /// The nodes that a URL names. Connects to none yet.
    pub(super) fn of(url: &BackendUrl, options: Options, has_floor: bool, clock: Clock) -> Result<Self> {
        let endpoints = Endpoint::all(url)?;
        let quorum = Quorum::of(endpoints.len()).map_err(|error| url.wrong(error))?;
        let names: Vec<String> = endpoints.iter().map(|endpoint| endpoint.whereabouts.to_string()).collect();
        if let Some(twice) = (1..names.len()).find(|&index| names[..index].contains(&names[index])) {
            return Err(url.wrong(format!("{} is named twice", names[twice])));
        }
        let node = |(endpoint, name): (Endpoint, _)| {
            let server = Server::new(clock.clone(), endpoint.clone(), options);
            Node { server, endpoint, name }
        };
        let nodes: Vec<Node> = endpoints.into_iter().zip(names).map(node).collect();
        let known = Mutex::new(vec![Known::default(); nodes.len()]);
        let has_connected = AtomicBool::new(false);
        let reseeded_at = Mutex::default();
        let shared = Shared { clock, quorum, options, has_floor, nodes, known, has_connected, reseeded_at };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    pub(super) fn quorum(&self) -> Quorum {
        self.shared.quorum
    }

    pub(super) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The least token of an attempt that begins now.
    pub(super) fn floor(&self) -> u64 {
        if self.shared.has_floor { self.clock().wall_micros() } else { 0 }
    }

    pub(super) fn all(&self) -> &[Node] {
        &self.shared.nodes
    }

    /// Connects to a majority of the nodes. For the others it is waited once, and not for long; a node that is down must not
    /// hold up every attempt.
    ///
    /// # Errors
    /// `InvalidArgument` when two of them turn out to be the same server.
    pub(super) async fn connect(&self) -> Result<()> {
        let clock = self.clock();
        let is_first = !self.shared.has_connected.load(Ordering::Relaxed);
        let mut all: FuturesUnordered<_> = (0..self.all().len()).map(|node| self.session(node)).collect();
        let mut connected = 0;
        let mut give_up_at = (!is_first).then(|| clock.now().after(RECONNECT_MOST));
        while let Some(Some(session)) = until(clock, give_up_at, all.next()).await {
            connected += usize::from(session.is_ok());
            if connected == self.quorum().majority() {
                if !is_first {
                    break;
                }
                give_up_at = Some(clock.now().after(STRAGGLERS_MOST));
            }
        }
        self.shared.has_connected.store(true, Ordering::Relaxed);
        let known = lock(&self.shared.known);
        let wrong = known.iter().filter_map(|known| known.error.as_ref());
        wrong
            .into_iter()
            .find(|error| error.kind() == ErrorKind::InvalidArgument)
            .cloned()
            .map_or(Ok(()), Err)
    }

    /// How many nodes may answer soon. One that is known to be down is not waited for.
    pub(super) fn promising(&self) -> usize {
        self.all().iter().filter(|node| node.server.is_promising()).count()
    }

    /// Why a node could not be connected to the last time.
    pub(super) fn error_of(&self, node: usize) -> Option<Error> {
        lock(&self.shared.known)[node].error.clone()
    }

    /// Whether it is time to look again whether a node waits for its floor; whoever is told so has to.
    pub(super) fn is_reseeding_due(&self, each: Duration) -> bool {
        let now = self.clock().now();
        let mut reseeded_at = lock(&self.shared.reseeded_at);
        let is_due = reseeded_at.is_none_or(|at| now >= at.after(each));
        if is_due {
            *reseeded_at = Some(now);
        }
        is_due
    }

    /// A session with one node.
    ///
    /// # Errors
    /// `InvalidArgument` when it turns out to be the same server as another node.
    pub(super) async fn session(&self, node: usize) -> Result<Session> {
        let session = self.all()[node].server.session().await;
        let mut known = lock(&self.shared.known);
        let session = session.and_then(|session| self.only_once(&mut known, node, session));
        known[node].error = session.as_ref().err().cloned();
        session
    }

    fn only_once(&self, known: &mut [Known], node: usize, session: Session) -> Result<Session> {
        let run_id = Some(session.incarnation.run_id());
        if known[node].run_id.as_deref() == run_id {
            return Ok(session);
        }
        if let Some(other) = known.iter().position(|known| known.run_id.as_deref() == run_id) {
            let there = self.all()[other].server.open_session();
            if there.is_some_and(|there| Some(there.incarnation.run_id()) == run_id) {
                let (node, other) = (&self.all()[node].name, &self.all()[other].name);
                let what = format!("{node} and {other} are the same server, which is asked only once");
                return Err(Error::new(ErrorKind::InvalidArgument, "form a quorum", what));
            }
            // It ran behind the other address before.
            known[other].run_id = None;
        }
        known[node].run_id = run_id.map(ToOwned::to_owned);
        Ok(session)
    }
}
