//! A lease that a client holds, and what it claims of it.

use fencepost_core::Moment;
use fencepost_redis::quorum::{Action, Event, NodeSet, Reply, Request, Tenure, Terms, Verdict};

use crate::clock::LocalClock;
use crate::node::Holder;
use crate::scenario::{Flaw, Steps};
use crate::tally::Count;
use crate::world::Stage;

pub(crate) struct Holding {
    pub(crate) holder: Holder,
    pub(crate) terms: Terms,
    pub(crate) hold: usize,
    tenure: Tenure,
    release_at: Moment,
    is_idle: bool,
    claimed_from: Option<u64>,
    /// For the client that adds up what it should not: who has acknowledged any round since the last success.
    mixed: NodeSet,
}

impl Holding {
    pub(crate) fn new(
        holder: Holder,
        terms: Terms,
        tenure: Tenure,
        hold: usize,
        release_at: Moment,
        is_idle: bool,
    ) -> Self {
        Self { holder, terms, hold, tenure, release_at, is_idle, claimed_from: None, mixed: NodeSet::EMPTY }
    }

    pub(crate) fn step(
        &mut self,
        stage: &mut Stage,
        clock: LocalClock,
        now: Moment,
        event: Event,
    ) -> Vec<Action<Verdict>> {
        let before = self.tenure.members().len();
        // What was believed before this step ends with the deadline that it had.
        let deadline = self.deadline();
        let actions = self.tenure.step(now, event);
        if let (Event::Replied { node, reply: Reply::Renewed, .. }, Flaw::MixesRounds) =
            (event, stage.scenario.flaw)
        {
            self.mixed.insert(node);
        }
        for action in &actions {
            match action {
                Action::Send { request: Request::Lock(_), .. } => stage.tally.count(Count::FilledIn),
                Action::Done(Verdict::Renewed { .. }) => self.mixed = NodeSet::EMPTY,
                _ => {}
            }
        }
        if matches!(event, Event::Replied { reply: Reply::Acked, .. }) && self.tenure.members().len() > before
        {
            stage.tally.count(Count::LateAcknowledgement);
        }
        if now >= deadline {
            self.close_at(stage, clock.when(deadline));
        } else {
            self.watch(stage, clock);
        }
        actions
    }

    /// A client that adds up rounds takes the acknowledgements of the last round into the next.
    pub(crate) fn after_begin(&mut self, stage: &mut Stage, now: Moment) {
        if stage.scenario.flaw != Flaw::MixesRounds {
            return;
        }
        for node in self.mixed.iter() {
            stage.tally.count(Count::MixedRound);
            let round = self.tenure.round();
            let actions = self.tenure.step(now, Event::Replied { node, round, reply: Reply::Renewed });
            if !actions.is_empty() {
                self.mixed = NodeSet::EMPTY;
            }
        }
    }

    pub(crate) fn is_at_its_end(&self, now: Moment) -> bool {
        now >= self.release_at || now >= self.deadline()
    }

    pub(crate) fn next_act(&self, now: Moment) -> Moment {
        if self.is_idle {
            return self.deadline().min(self.release_at);
        }
        now.after(self.terms.ttl() / 4).min(self.release_at)
    }

    /// Begins or ends the claim, by whether the lease has the slack that it must have.
    pub(crate) fn watch(&mut self, stage: &mut Stage, clock: LocalClock) {
        let is_claimed = match stage.scenario.steps {
            Steps::None | Steps::One => true,
            Steps::OneWithinSlack => self.tenure.slack() >= 1,
            Steps::All => false,
        };
        match (self.claimed_from, is_claimed) {
            (None, true) => self.claimed_from = Some(stage.now),
            (Some(_), false) => self.close(stage, clock),
            _ => {}
        }
    }

    /// Ends the claim now, or when the deadline came if that is earlier: nobody can have noticed, but every check of the
    /// lease would have failed since then.
    pub(crate) fn close(&mut self, stage: &mut Stage, clock: LocalClock) {
        let end = stage.now.min(clock.when(self.deadline()));
        self.close_at(stage, end);
    }

    fn close_at(&mut self, stage: &mut Stage, end: u64) {
        if let Some(from) = self.claimed_from.take() {
            stage.history.holds[self.hold].claims.push((from, end.max(from)));
        }
    }

    fn deadline(&self) -> Moment {
        self.tenure.deadline().moment().expect("a lease on a quorum runs out")
    }
}
