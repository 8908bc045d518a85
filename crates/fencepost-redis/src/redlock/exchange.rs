//! Drives a machine of the quorum: sends what it asks for, and tells it what comes back and when time is up.

use std::future::{Future, pending};
use std::time::Duration;

use fencepost_core::{Clock, Moment, until};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::quorum::{Action, Event, Reply, Request, Round, Tenure};

/// How long it is waited for the nodes beyond a majority, which took `took`: as long again, within bounds. Nodes that are well
/// answer in that time, and one that is down costs little.
pub(super) fn stragglers_most(took: Duration) -> Duration {
    (took * 2).clamp(STRAGGLERS_LEAST, STRAGGLERS_MOST)
}

/// A busy machine takes so long to answer.
const STRAGGLERS_LEAST: Duration = Duration::from_millis(5);

/// More would hold up everybody.
const STRAGGLERS_MOST: Duration = Duration::from_millis(50);

/// The requests that are under way, and the moments that a machine waits for.
pub(super) struct Exchange {
    clock: Clock,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    wakes: Vec<Moment>,
}

impl Exchange {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, calls: FuturesUnordered::new(), wakes: Vec::new() }
    }

    /// Runs a machine from `event` until it is done. `ask` sends a request to a node and gives its reply, or nothing where
    /// it has failed.
    ///
    /// # Cancel safety
    /// What was sent stays sent.
    pub(super) async fn drive<T, F>(
        &mut self,
        mut event: Event,
        mut step: impl FnMut(Moment, Event) -> Vec<Action<T>>,
        ask: impl Fn(usize, Request) -> F,
    ) -> T
    where
        F: Future<Output = Option<Reply>> + Send + 'static,
    {
        self.wakes.clear();
        loop {
            // Before anything of this step is sent: terms are counted from this moment.
            let now = self.clock.now();
            for action in step(now, event) {
                match action {
                    Action::Send { node, round, request } => self.send(node, round, ask(node, request)),
                    Action::WakeAt(at) => self.wakes.push(at),
                    Action::Done(done) => return done,
                }
            }
            event = self.next().await;
        }
    }

    /// Hears out the nodes that have not answered a round which has succeeded without them: until the lease rests on `enough` of
    /// them, and for `most` at the longest.
    ///
    /// # Cancel safety
    /// What was sent stays sent.
    pub(super) async fn linger<F>(
        &mut self,
        most: Duration,
        enough: usize,
        tenure: &mut Tenure,
        ask: impl Fn(usize, Request) -> F,
    ) where
        F: Future<Output = Option<Reply>> + Send + 'static,
    {
        let clock = self.clock.clone();
        let end = Some(clock.now().after(most));
        while tenure.members().len() < enough {
            let Some(Some(event)) = until(&clock, end, self.calls.next()).await else { return };
            for action in tenure.step(clock.now(), event) {
                if let Action::Send { node, round, request } = action {
                    self.send(node, round, ask(node, request));
                }
            }
        }
    }

    fn send(&self, node: usize, round: Round, call: impl Future<Output = Option<Reply>> + Send + 'static) {
        self.calls.push(Box::pin(async move {
            match call.await {
                Some(reply) => Event::Replied { node, round, reply },
                None => Event::Failed { node, round },
            }
        }));
    }

    async fn next(&mut self) -> Event {
        let next_wake = self.wakes.iter().copied().min();
        // Where nothing is under way only time goes on.
        let calls = async {
            match self.calls.next().await {
                Some(event) => event,
                None => pending().await,
            }
        };
        let arrived = until(&self.clock, next_wake, calls).await;
        if let Some(event) = arrived {
            return event;
        }
        let now = self.clock.now();
        self.wakes.retain(|at| *at > now);
        Event::Woke
    }
}
