//! What keeps a lease on a quorum: rounds of renewals, each of which proves its own term. A pure state machine.
//!
//! Invariant (R3): until the deadline, at every moment, a majority of nodes records the holder; the acknowledgements of
//! two rounds are never added up.

use fencepost_core::{Deadline, FencingToken, Moment};

use super::message::{Action, Event, Reply, Request, Round, send};
use super::nodes::NodeSet;
use super::outcome::Granted;
use super::pace::patience;
use super::terms::Terms;

/// A lease that is held on a quorum.
///
/// A round asks all nodes to renew. One that does not have the holder's lock, because it never granted it or has lost
/// it, is asked to lock and to write the token, in the same round: it is filled in. The round succeeds when a
/// majority has prolonged or taken the lock; the term then counts from when the round was sent.
///
/// # Why a node that was filled in counts for its round
/// R3 needs, at each moment of the hold, a majority that records the holder. Let the round be sent at s and succeed at
/// c, before the deadline that the round before has earned. Until c that round's majority has the record. Each node
/// that counts for this round, renewed or filled in, applied its request after s and before c, so from c on all of them
/// have the record, and at least until s + ttl on their clocks. There is no gap between the two majorities, and whether
/// a node's record had a gap before c does not matter.
///
/// R1 and R2 speak of the nodes that acknowledged the attempt, whose counters only grow; filling in adds to them. A
/// filled-in node that says `Stale` has a counter that is not below the token, which is what R2 wants of it; so it
/// counts too. So does one that granted in the very round that was acknowledged, and is asked to write the token
/// afterwards. One that is stale to a proposal is different: its record dates from the lock, which was sent earlier.
///
/// An acknowledgement that comes at or after the deadline proves nothing: in the gap another may have held the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    terms: Terms,
    token: FencingToken,
    counted_from: Moment,
    members: NodeSet,
    state: State,
    round: Round,
    sent: Moment,
    renewed: NodeSet,
    filling: NodeSet,
    refused: NodeSet,
    failed: NodeSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The round has not come to a verdict.
    Asking,
    /// It has proved the present term; what else it proves makes for more members.
    Proven,
    /// It has proved nothing.
    Unproven,
    /// The lease is lost.
    Lost,
}

/// What a round of renewals came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The lease is renewed.
    Renewed {
        /// When its term began: when the round was sent.
        counted_from: Moment,
    },
    /// Too few nodes answered. The lease holds until the deadline that it has.
    Unconfirmed,
    /// The lease is lost. A [`Cancellation`](super::Cancellation) follows when the holder has stopped.
    Lost(Loss),
}

/// Why a lease on a quorum was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Its deadline has passed.
    Deadline,
    /// So many nodes neither have the lock nor give it again that no majority can have it.
    Refused,
}

impl Tenure {
    /// The tenure of what an attempt on `terms` was granted.
    pub fn new(terms: Terms, granted: Granted) -> Self {
        Self {
            terms,
            token: granted.token,
            counted_from: granted.counted_from,
            members: granted.members,
            state: State::Proven,
            round: granted.round,
            sent: granted.counted_from,
            renewed: granted.members,
            filling: NodeSet::EMPTY,
            refused: NodeSet::EMPTY,
            failed: NodeSet::EMPTY,
        }
    }

    /// What to do, given what happened at `now`. [`Event::Began`] says that a renewal is due; one that is still under
    /// way is given up. `now` is read before anything that this step sends leaves.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action<Verdict>> {
        if self.state == State::Lost {
            return Vec::new();
        }
        if self.deadline().passed(now) {
            return self.lose(Loss::Deadline);
        }
        match event {
            Event::Began => self.begin(now),
            Event::Replied { node, round, reply } if self.expects(node, round) => self.hear(node, reply),
            Event::Failed { node, round } if self.expects(node, round) => {
                self.failed.insert(node);
                self.decide()
            }
            Event::Woke if self.state == State::Asking && now >= self.give_up_at() => self.give_up(),
            Event::Woke | Event::Replied { .. } | Event::Failed { .. } => Vec::new(),
        }
    }

    /// The lease's fencing token.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// When the present term began.
    pub fn counted_from(&self) -> Moment {
        self.counted_from
    }

    /// Until when the holder may believe in the lease.
    pub fn deadline(&self) -> Deadline {
        self.terms.deadline(self.counted_from)
    }

    /// The nodes on which the present term rests.
    pub fn members(&self) -> NodeSet {
        self.members
    }

    /// How many of them may free the lock early; see [`Quorum::slack`](super::Quorum::slack).
    pub fn slack(&self) -> usize {
        self.terms.quorum().slack(self.members.len())
    }

    /// The present round.
    pub fn round(&self) -> Round {
        self.round
    }

    fn begin(&mut self, now: Moment) -> Vec<Action<Verdict>> {
        self.round = self.round.next();
        self.sent = now;
        self.state = State::Asking;
        (self.renewed, self.filling) = (NodeSet::EMPTY, NodeSet::EMPTY);
        (self.refused, self.failed) = (NodeSet::EMPTY, NodeSet::EMPTY);
        let mut actions: Vec<_> =
            send(self.terms.quorum().all().iter(), self.round, Request::Renew).collect();
        actions.push(Action::WakeAt(self.give_up_at()));
        actions
    }

    fn expects(&self, node: usize, round: Round) -> bool {
        let settled = self.renewed.union(self.refused).union(self.failed);
        let is_open = matches!(self.state, State::Asking | State::Proven);
        is_open && round == self.round && !settled.contains(node) && node < self.terms.quorum().nodes()
    }

    fn hear(&mut self, node: usize, reply: Reply) -> Vec<Action<Verdict>> {
        match reply {
            Reply::Lost => {
                self.filling.insert(node);
                return self.fill(node, Request::Lock(self.token));
            }
            Reply::Granted { .. } => {
                self.filling.insert(node);
                return self.fill(node, Request::Propose(self.token));
            }
            Reply::Renewed | Reply::Acked => self.renewed.insert(node),
            Reply::Stale { .. } if self.filling.contains(node) => self.renewed.insert(node),
            _ => self.refused.insert(node),
        }
        self.decide()
    }

    fn fill(&self, node: usize, request: Request) -> Vec<Action<Verdict>> {
        vec![Action::Send { node, round: self.round, request }]
    }

    fn decide(&mut self) -> Vec<Action<Verdict>> {
        let quorum = self.terms.quorum();
        if self.state == State::Proven {
            self.members = self.renewed;
            return Vec::new();
        }
        if self.renewed.len() >= quorum.majority() {
            self.state = State::Proven;
            self.members = self.renewed;
            self.counted_from = self.sent;
            return vec![Action::Done(Verdict::Renewed { counted_from: self.sent })];
        }
        if self.refused.len() > quorum.minority() {
            return self.lose(Loss::Refused);
        }
        // Nodes that failed may have renewed; whether enough of them did is not known, so it is no loss.
        if self.refused.union(self.failed).union(self.renewed) == quorum.all() {
            return self.give_up();
        }
        Vec::new()
    }

    fn give_up(&mut self) -> Vec<Action<Verdict>> {
        self.state = State::Unproven;
        vec![Action::Done(Verdict::Unconfirmed)]
    }

    fn lose(&mut self, loss: Loss) -> Vec<Action<Verdict>> {
        self.state = State::Lost;
        vec![Action::Done(Verdict::Lost(loss))]
    }

    /// The patience of the three exchanges that filling in takes.
    fn give_up_at(&self) -> Moment {
        self.sent.after(patience(self.terms.ttl()) * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::Quorum;
    use std::time::Duration;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// Held on nodes 0 and 1 since moment 0, for ten seconds.
    fn held() -> Tenure {
        let terms = Terms::new(Quorum::of(3).unwrap(), Duration::from_secs(10), 0).unwrap();
        let members: NodeSet = [0, 1].into_iter().collect();
        let (token, round) = (FencingToken::MIN, Round::NONE);
        Tenure::new(terms, Granted { token, counted_from: at(0), members, slack: 0, round })
    }

    fn renewing(ms: u64) -> Tenure {
        let mut tenure = held();
        assert_eq!(tenure.step(at(ms), Event::Began).len(), 4);
        tenure
    }

    fn hear(tenure: &mut Tenure, ms: u64, node: usize, reply: Reply) -> Vec<Action<Verdict>> {
        let round = tenure.round();
        tenure.step(at(ms), Event::Replied { node, round, reply })
    }

    const BUSY: Reply = Reply::Busy { remaining: None, token: None };

    #[test]
    fn renewed_term_begins_when_its_round_was_sent() {
        let mut tenure = renewing(2_000);
        assert_eq!(hear(&mut tenure, 2_001, 0, Reply::Renewed), []);
        let done = hear(&mut tenure, 2_300, 2, Reply::Renewed);
        assert_eq!(done, [Action::Done(Verdict::Renewed { counted_from: at(2_000) })]);
        assert_eq!((tenure.counted_from(), tenure.slack()), (at(2_000), 0));
        hear(&mut tenure, 2_400, 1, Reply::Renewed);
        assert_eq!(tenure.slack(), 1);
    }

    #[test]
    fn acknowledgements_of_two_rounds_are_not_added_up() {
        let mut tenure = renewing(1_000);
        let first = tenure.round();
        hear(&mut tenure, 1_001, 0, Reply::Renewed);
        tenure.step(at(2_000), Event::Began);
        hear(&mut tenure, 2_001, 1, Reply::Renewed);
        assert_eq!(
            tenure.step(at(2_002), Event::Replied { node: 2, round: first, reply: Reply::Renewed }),
            []
        );
        assert_eq!(tenure.step(at(2_600), Event::Woke), [Action::Done(Verdict::Unconfirmed)]);
        assert_eq!(tenure.counted_from(), at(0));
    }

    #[test]
    fn node_without_the_lock_is_filled_in_and_counts() {
        let mut tenure = renewing(1_000);
        hear(&mut tenure, 1_001, 0, Reply::Renewed);
        let lock = hear(&mut tenure, 1_002, 2, Reply::Lost);
        assert!(matches!(
            lock[..],
            [Action::Send { node: 2, request: Request::Lock(FencingToken::MIN), .. }]
        ));
        let propose = hear(&mut tenure, 1_003, 2, Reply::Granted { counter: None });
        assert!(matches!(
            propose[..],
            [Action::Send { node: 2, request: Request::Propose(FencingToken::MIN), .. }]
        ));
        let done = hear(&mut tenure, 1_004, 2, Reply::Stale { counter: None });
        assert_eq!(done, [Action::Done(Verdict::Renewed { counted_from: at(1_000) })]);
    }

    #[test]
    fn majority_that_refuses_is_a_loss_and_one_that_fails_is_not() {
        let mut tenure = renewing(1_000);
        let round = tenure.round();
        (0..2).for_each(|node| assert_eq!(tenure.step(at(1_001), Event::Failed { node, round }), []));
        assert_eq!(hear(&mut tenure, 1_002, 2, BUSY), [Action::Done(Verdict::Unconfirmed)]);
        let mut tenure = renewing(1_000);
        assert_eq!(hear(&mut tenure, 1_002, 2, BUSY), []);
        assert_eq!(hear(&mut tenure, 1_002, 1, BUSY), [Action::Done(Verdict::Lost(Loss::Refused))]);
    }

    #[test]
    fn late_acknowledgement_of_the_grant_makes_a_member_and_a_stale_one_does_not() {
        let mut tenure = held();
        hear(&mut tenure, 5, 2, Reply::Acked);
        assert_eq!(tenure.slack(), 1);
        let mut tenure = held();
        hear(&mut tenure, 5, 2, Reply::Stale { counter: None });
        assert_eq!(tenure.slack(), 0);
    }

    #[test]
    fn acknowledgement_after_the_deadline_is_a_loss() {
        let mut tenure = renewing(9_000);
        let done = hear(&mut tenure, 9_988, 1, Reply::Renewed);
        assert_eq!(done, [Action::Done(Verdict::Lost(Loss::Deadline))]);
        assert_eq!(tenure.step(at(9_999), Event::Began), []);
    }
}
