//! One attempt to acquire, by one holder id: lock a majority and propose a token to it in one round, or in a second
//! round where that token was too small. A pure state machine.
//!
//! Invariants: a majority has written the token, each node above its counter, and a majority had granted before or by
//! the same step (R1, R2); the attempt succeeds only while no grant can have run out, and its term is counted from
//! before the round was sent that a majority has acknowledged (R3).

use fencepost_core::{FencingToken, Moment};

use super::message::{Action, Event, Reply, Request, Round, send};
use super::nodes::NodeSet;
use super::outcome::{self, Answer, Granted, Outcome, Refusal, Why};
use super::pace::patience;
use super::terms::Terms;

/// One attempt to acquire.
///
/// It locks all nodes in parallel, and proposes the floor to them as its token: a node where the lock is free writes it
/// if its counter is below. Has a majority written it, the lock is held. Has a majority granted otherwise, it takes a
/// token above all their counters and proposes that to all nodes; has a majority written it, the lock is held. The write
/// is what the usual Redlock lacks: a token made of counters that only grow by themselves is given out twice.
///
/// Nothing rests on the floor. Whichever number it is, a node takes it only above its counter; a clock that gives too
/// small a one costs the second round.
///
/// - **R1**: two grants are acknowledged by a common node, whose counter took both tokens, each only if it was below.
/// - **R2**: what begins after a grant returned is granted by a node that had acknowledged it, and either has its token
///   written there, above the counter, or reads that counter.
/// - **R3**: from the return to the deadline a majority records this holder; and no grant whose counter an earlier step
///   read, or wrote, can have run out before the return, or a faster one in between would have the greater token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    terms: Terms,
    phase: Phase,
    round: Round,
    began: Moment,
    heard: Vec<(Answer, Moment)>,
    answered: NodeSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Not yet begun.
    Idle,
    /// Waits for grants, and for the acknowledgements of the first token.
    Locking(Proposal),
    /// Waits for the acknowledgements of a token.
    Proposing(Proposal),
    /// Over.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Proposal {
    token: FencingToken,
    sent: Moment,
    /// Whether it is the second that follows the grants, after which there is no other.
    again: bool,
}

impl Attempt {
    /// An attempt on these terms.
    pub fn new(terms: Terms) -> Self {
        let nothing = (Answer::Silent, Moment::from_nanos(0));
        Self {
            terms,
            phase: Phase::Idle,
            round: Round::NONE,
            began: nothing.1,
            heard: vec![nothing; terms.quorum().nodes()],
            answered: NodeSet::EMPTY,
        }
    }

    /// What to do, given what happened at `now`. `now` is read before anything that this step sends leaves.
    ///
    /// What arrives once the attempt is over, or from an earlier round, changes nothing.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action<Outcome>> {
        match event {
            Event::Began => self.begin(now),
            Event::Replied { node, round, reply } => self.hear(now, node, round, Answer::Said(reply)),
            Event::Failed { node, round } => self.hear(now, node, round, Answer::Unreachable),
            Event::Woke => self.decide(now),
        }
    }

    /// What each node said last, in the order of the nodes.
    pub fn answers(&self) -> impl Iterator<Item = Answer> {
        self.heard.iter().map(|(answer, _)| *answer)
    }

    /// The nodes that have answered the present round.
    pub fn answered(&self) -> NodeSet {
        self.answered
    }

    /// The token that is being proposed.
    pub fn proposed(&self) -> Option<FencingToken> {
        self.proposal().map(|proposal| proposal.token)
    }

    /// The round that is waited for, which is the number of rounds so far.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Whether it has come to an outcome.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn begin(&mut self, now: Moment) -> Vec<Action<Outcome>> {
        if self.phase != Phase::Idle {
            return Vec::new();
        }
        self.began = now;
        let Some(token) = self.terms.token_above(None) else { return self.refuse(Why::Exhausted) };
        self.phase = Phase::Locking(Proposal { token, sent: now, again: false });
        self.send(now, Request::Lock(token))
    }

    fn hear(&mut self, now: Moment, node: usize, round: Round, answer: Answer) -> Vec<Action<Outcome>> {
        if round != self.round || node >= self.heard.len() || self.answered.contains(node) {
            return Vec::new();
        }
        self.heard[node] = (answer, now);
        self.answered.insert(node);
        self.decide(now)
    }

    fn decide(&mut self, now: Moment) -> Vec<Action<Outcome>> {
        match self.phase {
            Phase::Idle | Phase::Over => Vec::new(),
            // A grant may have run out: R3 would not hold.
            _ if self.terms.deadline(self.began).passed(now) => self.refuse(Why::Late),
            Phase::Locking(proposal) => self.decide_grants(now, proposal),
            Phase::Proposing(proposal) => self.decide_proposal(now, proposal),
        }
    }

    fn decide_grants(&mut self, now: Moment, proposal: Proposal) -> Vec<Action<Outcome>> {
        let quorum = self.terms.quorum();
        let members = self.said(|reply| reply == Reply::Acked);
        let granted = members.union(self.said(|reply| matches!(reply, Reply::Granted { .. }))).len();
        if granted >= quorum.majority() {
            // Too little of the term would be left, and the answers to come may take as long again.
            if now.since(self.began) > self.terms.ttl() / 2 {
                return self.refuse(Why::Late);
            }
            if members.len() >= quorum.majority() {
                return self.grant(proposal, members);
            }
            return self.propose(now, proposal.token, false);
        }
        let awaited = self.awaited(now, self.began);
        if granted + awaited >= quorum.majority() || outcome::may_tell(quorum, &self.heard, awaited) {
            return Vec::new();
        }
        self.refuse(self.why(Why::Contended))
    }

    fn decide_proposal(&mut self, now: Moment, proposal: Proposal) -> Vec<Action<Outcome>> {
        let majority = self.terms.quorum().majority();
        let members = self.said(|reply| reply == Reply::Acked);
        if members.len() >= majority {
            return self.grant(proposal, members);
        }
        if members.len() + self.awaited(now, proposal.sent) >= majority {
            return Vec::new();
        }
        let stale = self.said(|reply| matches!(reply, Reply::Stale { .. }));
        // One that acknowledged the first proposal takes a greater one as well; the others do not have the lock.
        if !proposal.again && !stale.is_empty() && members.union(stale).len() >= majority {
            return self.propose(now, proposal.token, true);
        }
        self.refuse(self.why(Why::Outvoted))
    }

    /// Proposes a token above all counters that were read, and above `last`, which was too small.
    fn propose(&mut self, now: Moment, last: FencingToken, again: bool) -> Vec<Action<Outcome>> {
        let counters = self.answers_of_this_round().filter_map(counter);
        let Some(token) = self.terms.token_above(counters.chain([last]).max()) else {
            return self.refuse(Why::Exhausted);
        };
        self.phase = Phase::Proposing(Proposal { token, sent: now, again });
        self.send(now, Request::Propose(token))
    }

    fn send(&mut self, now: Moment, request: Request) -> Vec<Action<Outcome>> {
        self.round = self.round.next();
        self.answered = NodeSet::EMPTY;
        let mut actions: Vec<_> = send(self.terms.quorum().all().iter(), self.round, request).collect();
        actions.push(Action::WakeAt(now.after(patience(self.terms.ttl()))));
        actions
    }

    fn grant(&mut self, proposal: Proposal, members: NodeSet) -> Vec<Action<Outcome>> {
        self.phase = Phase::Over;
        vec![Action::Done(Outcome::Granted(Granted {
            token: proposal.token,
            counted_from: proposal.sent,
            members,
            slack: self.terms.quorum().slack(members.len()),
            round: self.round,
        }))]
    }

    fn refuse(&mut self, why: Why) -> Vec<Action<Outcome>> {
        self.phase = Phase::Over;
        let quorum = self.terms.quorum();
        let free_at = outcome::free_at(quorum, &self.heard);
        let suspect = outcome::suspect(quorum, &self.heard);
        let answers = self.answers().collect();
        vec![Action::Done(Outcome::NotGranted(Refusal { why, answers, free_at, suspect }))]
    }

    /// Why there is no majority in this round: nodes that said nothing in it count as missing, whatever they said
    /// before.
    fn why(&self, contended: Why) -> Why {
        let answers: Vec<Answer> = (0..self.heard.len())
            .map(|node| if self.answered.contains(node) { self.heard[node].0 } else { Answer::Silent })
            .collect();
        outcome::why(self.terms.quorum(), &answers, contended)
    }

    fn proposal(&self) -> Option<Proposal> {
        match self.phase {
            Phase::Locking(proposal) | Phase::Proposing(proposal) => Some(proposal),
            Phase::Idle | Phase::Over => None,
        }
    }

    /// How many nodes can still answer a round that was sent then.
    fn awaited(&self, now: Moment, sent: Moment) -> usize {
        if now >= sent.after(patience(self.terms.ttl())) {
            return 0;
        }
        self.heard.len() - self.answered.len()
    }

    fn said(&self, is: impl Fn(Reply) -> bool) -> NodeSet {
        let nodes = self.answered.iter();
        nodes.filter(|node| matches!(self.heard[*node].0, Answer::Said(reply) if is(reply))).collect()
    }

    fn answers_of_this_round(&self) -> impl Iterator<Item = Answer> {
        self.answered.iter().map(|node| self.heard[node].0)
    }
}

/// The counter of a node where the holder has the lock. That of another node proves nothing, but does no harm either;
/// it is left out because R1 to R3 speak of these.
fn counter(answer: Answer) -> Option<FencingToken> {
    match answer {
        Answer::Said(Reply::Granted { counter } | Reply::Stale { counter }) => counter,
        _ => None,
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

    fn token(number: u64) -> Option<FencingToken> {
        FencingToken::try_from(number).ok()
    }

    fn granted(counter: u64) -> Reply {
        Reply::Granted { counter: token(counter) }
    }

    fn begun() -> Attempt {
        let terms = Terms::new(Quorum::of(3).unwrap(), Duration::from_secs(10), 0).unwrap();
        let mut attempt = Attempt::new(terms);
        assert_eq!(attempt.step(at(0), Event::Began).len(), 4);
        attempt
    }

    fn hear(attempt: &mut Attempt, ms: u64, node: usize, reply: Reply) -> Vec<Action<Outcome>> {
        let round = attempt.round();
        attempt.step(at(ms), Event::Replied { node, round, reply })
    }

    #[test]
    fn token_that_a_majority_has_written_with_the_lock_is_held_after_one_round() {
        let mut attempt = begun();
        assert_eq!(hear(&mut attempt, 6, 1, Reply::Acked), []);
        let done = hear(&mut attempt, 7, 2, Reply::Acked);
        let Action::Done(Outcome::Granted(grant)) = &done[0] else { panic!("{done:?}") };
        assert_eq!((grant.counted_from, Some(grant.token), grant.slack), (at(0), token(1), 0));
    }

    #[test]
    fn token_that_only_a_minority_has_written_is_followed_by_a_greater_one() {
        let mut attempt = begun();
        hear(&mut attempt, 1, 0, Reply::Acked);
        assert_eq!(hear(&mut attempt, 5, 1, granted(6)).len(), 4);
        assert_eq!(attempt.proposed(), token(7));
        let mut attempt = begun();
        hear(&mut attempt, 1, 0, granted(0));
        hear(&mut attempt, 5, 1, Reply::Acked);
        assert_eq!(attempt.proposed(), token(2), "above what was written for it");
    }

    #[test]
    fn split_vote_and_a_holder_are_told_apart() {
        let busy = |number| Reply::Busy { remaining: Some(Duration::from_secs(9)), token: token(number) };
        let mut attempt = begun();
        hear(&mut attempt, 1, 0, busy(3));
        assert_eq!(hear(&mut attempt, 2, 1, busy(4)), []);
        let split = refusal(hear(&mut attempt, 2, 2, Reply::Acked));
        assert_eq!((split.why, split.free_at), (Why::Contended, Some(at(2))));
        let mut attempt = begun();
        hear(&mut attempt, 1, 0, busy(3));
        let held = refusal(hear(&mut attempt, 2, 1, busy(3)));
        assert_eq!((held.why, held.free_at), (Why::Contended, Some(at(9_002))));
    }

    #[test]
    fn answer_that_can_tell_who_holds_the_lock_is_waited_for_and_no_other() {
        let busy = |number| Reply::Busy { remaining: Some(Duration::from_secs(9)), token: token(number) };
        let terms = Terms::new(Quorum::of(5).unwrap(), Duration::from_secs(10), 0).unwrap();
        let mut attempt = Attempt::new(terms);
        attempt.step(at(0), Event::Began);
        for (node, number) in [(0, 3), (1, 4), (2, 3)] {
            assert_eq!(hear(&mut attempt, 1, node, busy(number)), []);
        }
        assert_eq!(hear(&mut attempt, 1, 3, busy(4)), []);
        assert_eq!(refusal(hear(&mut attempt, 2, 4, busy(5))).free_at, Some(at(1)));
        let mut attempt = Attempt::new(terms);
        attempt.step(at(0), Event::Began);
        hear(&mut attempt, 1, 0, busy(3));
        hear(&mut attempt, 1, 1, busy(3));
        assert_eq!(refusal(hear(&mut attempt, 1, 2, busy(3))).free_at, Some(at(9_001)));
    }

    fn proposing(ms: u64) -> Attempt {
        let mut attempt = begun();
        hear(&mut attempt, 1, 0, granted(4));
        hear(&mut attempt, ms, 1, granted(6));
        assert_eq!(attempt.proposed(), token(7));
        attempt
    }

    fn refusal(actions: Vec<Action<Outcome>>) -> Refusal {
        let Some(Action::Done(Outcome::NotGranted(refusal))) = actions.into_iter().next() else { panic!() };
        refusal
    }

    #[test]
    fn term_of_a_grant_begins_with_its_proposal() {
        let mut attempt = proposing(5);
        assert_eq!(hear(&mut attempt, 6, 1, Reply::Acked), []);
        let done = hear(&mut attempt, 7, 2, Reply::Acked);
        let Action::Done(Outcome::Granted(grant)) = &done[0] else { panic!("{done:?}") };
        assert_eq!((grant.counted_from, Some(grant.token), grant.slack), (at(5), token(7), 0));
    }

    #[test]
    fn busy_majority_ends_an_attempt_at_once() {
        let mut attempt = begun();
        let [first, second] =
            [700, 500].map(|ms| Reply::Busy { remaining: Some(Duration::from_millis(ms)), token: token(3) });
        hear(&mut attempt, 1, 0, first);
        let refusal = refusal(hear(&mut attempt, 2, 1, second));
        assert_eq!((refusal.why, refusal.free_at), (Why::Contended, Some(at(701))));
    }

    #[test]
    fn silent_majority_is_not_waited_for() {
        let mut attempt = begun();
        hear(&mut attempt, 1, 0, granted(4));
        assert_eq!(attempt.step(at(199), Event::Woke), []);
        assert_eq!(refusal(attempt.step(at(200), Event::Woke)).why, Why::Unreachable);
    }

    #[test]
    fn second_stale_proposal_is_the_last() {
        let mut attempt = proposing(1);
        let stale = Reply::Stale { counter: token(9) };
        hear(&mut attempt, 2, 0, Reply::NoLock);
        hear(&mut attempt, 2, 1, Reply::Acked);
        assert_eq!(hear(&mut attempt, 3, 2, stale).len(), 4);
        assert_eq!(attempt.proposed(), token(10));
        hear(&mut attempt, 4, 1, stale);
        assert_eq!(refusal(hear(&mut attempt, 4, 2, stale)).why, Why::Outvoted);
    }

    #[test]
    fn answer_to_an_earlier_round_says_nothing_about_this() {
        let mut attempt = begun();
        let first = attempt.round();
        hear(&mut attempt, 1, 0, granted(4));
        hear(&mut attempt, 1, 1, granted(6));
        assert_eq!(attempt.step(at(2), Event::Replied { node: 2, round: first, reply: granted(50) }), []);
        assert_eq!((attempt.answered(), attempt.proposed()), (NodeSet::EMPTY, token(7)));
    }

    #[test]
    fn paused_attempt_is_late() {
        let mut attempt = begun();
        hear(&mut attempt, 1, 0, granted(4));
        assert_eq!(refusal(hear(&mut attempt, 5_001, 1, granted(6))).why, Why::Late);
        let mut attempt = proposing(5_000);
        assert_eq!(refusal(hear(&mut attempt, 9_988, 1, Reply::Acked)).why, Why::Late);
    }
}
