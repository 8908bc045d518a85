//! The backend of several independent servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, BackendUrl, Claim, Clock, Connections, Error, ErrorKind, Examination, Expiry,
    FencingToken, Handover, LockName, LockState, Loss, LossReason, NamePrefix, Profile, Renewal, Result,
    Revoked, Scope, Status, Timing, Waiting, until,
};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, FuturesUnordered, select_all};

use super::acquire;
use super::candidate::{Candidate, worst};
use super::claim;
use super::nodes::Nodes;
use super::view::merged;
use crate::backend::below;
use crate::endpoint::Options;
use crate::examine::examine_nodes;
use crate::failure::{lost_touch, refuse};
use crate::keys::{self, LockKey};
use crate::look::{BATCH, look, names};
use crate::quorum::Terms;
use crate::resp::Reply;
use crate::script;
use crate::session::Session;
use crate::signals::signals;

/// What several independent servers promise.
pub const PROFILE: Profile = Profile::weakest("redlock")
    .expiry(Expiry::AfterTtl)
    .waiting(Waiting::Notified)
    .loss(Loss::Pushed)
    .scope(Scope::Cluster)
    .timing(Timing::WallClocks)
    .outlives_sessions()
    .detachable()
    .quarantine(true)
    .revocable()
    .rests()
    .without_slots()
    .costs(1, 1, Connections::OnePerNode);

/// How long a node may take to answer where all are asked.
const ANSWER_MOST: Duration = Duration::from_millis(500);

/// How long it is waited for the others once a majority has.
const STRAGGLERS_MOST: Duration = Duration::from_millis(50);

/// Locks on several independent servers.
#[derive(Clone, Debug)]
pub struct RedlockBackend {
    nodes: Nodes,
    profile: Profile,
    shown: String,
}

impl RedlockBackend {
    /// The backend of `redlock://`. Connects when it is first needed.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL or an option is wrong, when a node is named twice, or when their number is not odd.
    pub fn from_url(url: &BackendUrl, clock: Clock) -> Result<Self> {
        url.accept_options(&["max_ttl", "quarantine", "test_floor"])?;
        let options = Options::of(url)?;
        let nodes = Nodes::of(url, options, url.switch("test_floor", true)?, clock)?;
        let profile = PROFILE.longest_ttl(Some(options.max_ttl)).quarantine(options.has_quarantine);
        Ok(Self { nodes, profile, shown: url.to_string() })
    }

    /// Asks all nodes for the same; what those have answered that did in time, of which there must be a majority.
    async fn all<T, F>(
        &self,
        operation: &'static str,
        ask: impl Fn(usize, Session) -> F + Send + Sync,
    ) -> Result<Vec<T>>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        let (clock, majority) = (self.nodes.clock(), self.nodes.quorum().majority());
        let mut give_up_at = clock.now().after(ANSWER_MOST);
        let ask = &ask;
        let one =
            |node| async move { (node, async { ask(node, self.nodes.session(node).await?).await }.await) };
        let mut all: FuturesUnordered<_> = (0..self.nodes.all().len()).map(one).collect();
        let mut answers = Vec::new();
        let silent = || crate::failure::unavailable("it does not answer");
        let mut missing: Vec<Option<Error>> = self.nodes.all().iter().map(|_| Some(silent())).collect();
        while let Some(Some((node, answer))) = until(clock, Some(give_up_at), all.next()).await {
            missing[node] = answer.map(|answer| answers.push((node, answer))).err();
            if answers.len() == majority {
                give_up_at = give_up_at.min(clock.now().after(STRAGGLERS_MOST));
            }
        }
        if answers.len() >= majority {
            // In the order of the nodes, so that what is shown does not depend on who was faster.
            answers.sort_by_key(|(node, _)| *node);
            return Ok(answers.into_iter().map(|(_, answer)| answer).collect());
        }
        let kind =
            worst(missing.iter().flatten().cloned()).map_or(ErrorKind::Unavailable, |error| error.kind());
        let missing =
            self.nodes.all().iter().zip(&missing).filter_map(|(node, error)| Some((node, error.as_ref()?)));
        let words = missing.map(|(node, error)| match error.to_string() {
            // What cannot be connected to is named there.
            text if text.contains(&node.name) => text,
            text => format!("{}: {text}", node.name),
        });
        let what = format!("no majority of the nodes has answered: {}", words.collect::<Vec<_>>().join("; "));
        Err(Error::new(kind, operation, what))
    }

    async fn look(&self, locks: &[LockName]) -> Result<Vec<LockState>> {
        let seen = self
            .all("look at the lock", |node, session| async move {
                look(&self.nodes.all()[node].server, &session, locks).await
            })
            .await?;
        let of = |(index, name): (usize, &LockName)| {
            let states: Vec<LockState> =
                seen.iter().filter_map(|states| states.get(index).cloned()).collect();
            merged(self.nodes.quorum(), name, &states)
        };
        Ok(locks.iter().enumerate().map(of).collect())
    }
}

impl fmt::Display for RedlockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[async_trait]
impl Backend for RedlockBackend {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Clock {
        self.nodes.clock()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        Ok(Box::new(acquire::acquire(&self.nodes, request).await?))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        let seen = self.look(std::slice::from_ref(name)).await?;
        Ok(seen.into_iter().next().unwrap_or_else(|| LockState::free(name.clone())))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        let found =
            self.all("list the locks", |_, session| async move { names(&session, prefix).await }).await?;
        let mut all: Vec<LockName> = found.into_iter().flatten().collect();
        all.sort();
        all.dedup();
        let mut states = Vec::new();
        for names in all.chunks(BATCH) {
            states.extend(self.look(names).await?);
        }
        states.retain(|state| matches!(state.status, Status::Held | Status::Resting));
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        let key = &LockKey::of(name);
        let (token, for_long) = (&token.to_string(), &self.nodes.options().max_ttl.as_millis().to_string());
        let revoked = self
            .all("revoke the lease", |_, session| async move {
                let reply =
                    session.connection.run(&script::NODE_REVOKE, &[key], &[token, reason, for_long]).await;
                reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)
            })
            .await?;
        // The nodes that did not answer are too few to keep it.
        Ok(if revoked.contains(&Reply::Integer(1)) { Revoked::Done } else { Revoked::NotCurrent })
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        let (key, below) = (&LockKey::of(name), &below(to, name)?);
        // A majority is enough: whoever acquires asks a majority as well, and so does whoever gives a node its floor.
        let lifted = self.all("lift the token", |_, session| async move {
            let keys = [&**key, keys::GREATEST, keys::FLOOR, keys::IDLE];
            let reply = session.connection.run(&script::NODE_LIFT, &keys, &[below]).await;
            reply.map_err(|broken| lost_touch(&broken)).and_then(refuse)
        });
        lifted.await.map(drop)
    }

    /// Nodes that do not have the lock are not filled in: that could take a lease anew that has ended.
    async fn renew(&self, handover: &Handover, ttl: Duration) -> Result<Renewal> {
        let counted_from = self.nodes.clock().now();
        let one = |node: usize, session: Session| async move {
            let server = &self.nodes.all()[node].server;
            match crate::claim::renew(server, &session, handover, ttl).await {
                Err(error) if error.kind() == ErrorKind::Lost => Ok(Err(error)),
                outcome => outcome.map(Ok),
            }
        };
        let answers = self.all("renew the lease", one).await?;
        let quorum = self.nodes.quorum();
        let mut lost: Vec<Error> = answers.iter().filter_map(|answer| answer.clone().err()).collect();
        // Whichever node says so: whoever took it away was told that it is done.
        lost.sort_by_key(|error| error.loss_reason() != Some(LossReason::Revoked));
        let is_revoked = lost.first().is_some_and(|error| error.loss_reason() == Some(LossReason::Revoked));
        match lost.into_iter().next() {
            Some(error) if is_revoked => Err(error),
            _ if answers.iter().flatten().count() >= quorum.majority() => {
                Ok(Renewal { ttl: Some(ttl), counted_from })
            }
            Some(error) if answers.iter().filter(|answer| answer.is_err()).count() > quorum.minority() => {
                Err(error)
            }
            _ => {
                let what = format!("fewer than {} of the nodes have confirmed it", quorum.majority());
                Err(Error::new(ErrorKind::Unavailable, "renew the lease", what))
            }
        }
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        let candidate = Candidate::handed_over(&self.nodes, &handover.lock, handover.holder);
        let terms = Terms::new(self.nodes.quorum(), self.nodes.options().max_ttl, 0)?;
        claim::release(&Arc::new(candidate), terms, handover.token).await
    }

    /// On a connection of its own with each node; the signals of any of them count.
    async fn signals(&self, _: &NamePrefix) -> Result<Option<BoxStream<'static, ()>>> {
        let watch = |node: usize, _| async move { signals(&self.nodes.all()[node].server).await };
        let all: Vec<_> = self.all("watch the locks", watch).await?.into_iter().flatten().collect();
        Ok((all.len() >= self.nodes.quorum().majority()).then(|| select_all(all).boxed()))
    }

    async fn examine(&self) -> Result<Examination> {
        let endpoints: Vec<_> = self.nodes.all().iter().map(|node| &node.endpoint).collect();
        let (options, quorum) = (self.nodes.options(), self.nodes.quorum());
        Ok(examine_nodes(self.nodes.clock(), &endpoints, options, quorum).await)
    }
}
