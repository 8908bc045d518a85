//! The nodes of one backend.
//!
//! Invariant: no two of them are the same server, under whatever names they were given.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencepost_core::{BackendUrl, Clock, Error, ErrorKind, Moment, Result, until};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::endpoint::{Endpoint, Options};
use crate::quorum::Quorum;
use crate::server::Server;
use crate::session::{Session, lock};

/// How long nodes beyond a majority may take to be connected to before an attempt goes on without them.
const STRAGGLERS_MOST: Duration = Duration::from_millis(50);

/// Several independent servers.
#[derive(Clone)]
pub(super) struct Nodes {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    quorum: Quorum,
    options: Options,
    nodes: Vec<Node>,
    /// What is known to run behind each of them.
    run_ids: Mutex<Vec<Option<String>>>,
    /// When somebody last looked whether a node waits for its floor.
    pub(super) reseeded_at: Mutex<Option<Moment>>,
}

/// One of them.
pub(super) struct Node {
    pub(super) server: Server,
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
    pub(super) fn of(url: &BackendUrl, options: Options, clock: Clock) -> Result<Self> {
        let endpoints = Endpoint::all(url)?;
        let quorum = Quorum::of(endpoints.len()).map_err(|error| url.wrong(error))?;
        let names: Vec<String> = endpoints.iter().map(|endpoint| endpoint.whereabouts.to_string()).collect();
        if let Some(twice) = (1..names.len()).find(|&index| names[..index].contains(&names[index])) {
            return Err(url.wrong(format!("{} is named twice", names[twice])));
        }
        let node = |(endpoint, name)| Node { server: Server::new(clock.clone(), endpoint, options), name };
        let nodes: Vec<Node> = endpoints.into_iter().zip(names).map(node).collect();
        let run_ids = Mutex::new(vec![None; nodes.len()]);
        let shared = Shared { clock, quorum, options, nodes, run_ids, reseeded_at: Mutex::default() };
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

    pub(super) fn all(&self) -> &[Node] {
        &self.shared.nodes
    }

    /// Connects to all nodes where that was not done before. Ends when each has said whether it can be reached; of those beyond a
    /// majority it is not waited for long.
    pub(super) async fn connect(&self) {
        let clock = self.clock();
        let mut all: FuturesUnordered<_> = (0..self.all().len()).map(|node| self.session(node)).collect();
        let (mut connected, mut give_up_at) = (0, None);
        while let Some(Some(session)) = until(clock, give_up_at, all.next()).await {
            connected += usize::from(session.is_ok());
            if connected == self.quorum().majority() {
                give_up_at = Some(clock.now().after(STRAGGLERS_MOST));
            }
        }
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
        let session = self.all()[node].server.session().await?;
        let run_id = session.incarnation.run_id();
        let mut run_ids = lock(&self.shared.run_ids);
        if run_ids[node].as_deref() == Some(run_id) {
            return Ok(session);
        }
        if let Some(other) = run_ids.iter().position(|known| known.as_deref() == Some(run_id)) {
            let (node, other) = (&self.all()[node].name, &self.all()[other].name);
            let what = format!("{node} and {other} are the same server, which is asked only once");
            return Err(Error::new(ErrorKind::InvalidArgument, "form a quorum", what));
        }
        run_ids[node] = Some(run_id.to_owned());
        Ok(session)
    }
}
