//! What a session's heartbeats prove: until when the leader will not end the session. A pure machine.
//!
//! A heartbeat is a write, which only a quorum acknowledges; a ping, or a read, is answered by the server we are connected to, also
//! by one that is cut off from its leader. Invariant: whatever delays and cuts there are between the servers, the leader keeps the
//! session for its time-out, counted from [`Proof::counted_from`]. `docs/decisions/0022-zookeeper-over-a-connection-of-our-own.md`
//! has the proof.

use std::collections::VecDeque;
use std::time::Duration;

use fencepost_core::Moment;

/// How many heartbeats are sent in a session's time-out.
const BEATS: u32 = 32;

/// Within what part of a session's time-out the leader asks each server for news of its sessions. It does so twice a tick, and a
/// time-out has at least two ticks unless somebody has lowered `minSessionTimeout`, so there is a factor of two in hand.
const NEWS_PART: u32 = 2;

/// How often a session of this time-out gives a heartbeat.
pub(crate) fn period(timeout: Duration) -> Duration {
    timeout / BEATS
}

/// The heartbeats of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    timeout: Duration,
    /// When the connection asked for its session. The leader has heard of the session since.
    opened_at: Moment,
    /// In the order in which they were sent, from the oldest that can still prove something.
    beats: VecDeque<Beat>,
    counted_from: Option<Moment>,
    committed: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    sent: Moment,
    answered: Option<Moment>,
}

impl Proof {
    /// Of a connection that asked for its session at `opened_at`.
    pub(crate) fn new(timeout: Duration, opened_at: Moment) -> Self {
        Self { timeout, opened_at, beats: VecDeque::new(), counted_from: None, committed: None }
    }

    /// A heartbeat is sent.
    pub(crate) fn sent(&mut self, now: Moment) {
        self.beats.push_back(Beat { sent: now, answered: None });
    }

    /// The oldest heartbeat without an answer has one that proves nothing. Answers come in the order of what was sent, so each has to
    /// be told.
    pub(crate) fn refused(&mut self) {
        if let Some(index) = self.beats.iter().position(|beat| beat.answered.is_none()) {
            self.beats.remove(index);
        }
    }

    /// The oldest heartbeat without an answer is committed.
    pub(crate) fn committed(&mut self, now: Moment) {
        let Some(index) = self.beats.iter().position(|beat| beat.answered.is_none()) else { return };
        self.beats[index].answered = Some(now);
        let last = self.beats[index].sent;
        self.committed = Some(last);
        let proved = self.heard_of_before(index);
        if let Some(index) = proved {
            self.beats.drain(..index);
        }
        let proved = proved.map_or(self.opened_at, |_| self.beats[0].sent);
        self.counted_from = self.counted_from.max(Some(proved));
    }

    /// The newest heartbeat of which the leader is sure to have heard before it had the one at `last`: another one lies between them
    /// that was sent long enough after its answer, and whose own answer was there when that at `last` was sent.
    fn heard_of_before(&self, last: usize) -> Option<usize> {
        let answered_by = |beat: &Beat, by: Moment| beat.answered.is_some_and(|at| at <= by);
        let sent = self.beats[last].sent;
        let between = self.beats.range(..last).rfind(|beat| answered_by(beat, sent))?;
        let long_before = between.sent.before(self.timeout / NEWS_PART);
        self.beats.range(..last).rposition(|beat| answered_by(beat, long_before))
    }

    /// From when on the session is sure to last for its time-out; `None` before the first heartbeat is committed.
    pub(crate) fn counted_from(&self) -> Option<Moment> {
        self.counted_from
    }

    /// When the last heartbeat was sent that is committed.
    pub(crate) fn last_committed(&self) -> Option<Moment> {
        self.committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMEOUT: Duration = Duration::from_millis(3_200);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// Beats of one period each, all answered after `delay`.
    fn beaten(times: u64, delay: u64) -> Proof {
        let mut proof = Proof::new(TIMEOUT, at(0));
        for beat in 1..=times {
            proof.sent(at(beat * 100));
            proof.committed(at(beat * 100 + delay));
        }
        proof
    }

    #[test]
    fn heartbeat_that_was_refused_is_passed_over() {
        let mut proof = Proof::new(TIMEOUT, at(0));
        proof.sent(at(100));
        proof.sent(at(200));
        proof.refused();
        assert_eq!(proof.last_committed(), None);
        proof.committed(at(210));
        assert_eq!(proof.last_committed(), Some(at(200)));
    }

    #[test]
    fn nothing_is_proved_before_the_first_commit() {
        let mut proof = Proof::new(TIMEOUT, at(5));
        proof.sent(at(10));
        assert_eq!(proof.counted_from(), None);
        proof.committed(at(20));
        assert_eq!(
            proof.counted_from(),
            Some(at(5)),
            "the leader has heard of the session when it was opened"
        );
    }

    #[test]
    fn healthy_session_keeps_more_than_three_eighths_of_its_time() {
        let proof = beaten(100, 5);
        // Right before the next commit.
        let left = proof.counted_from().unwrap().after(TIMEOUT).since(at(10_105));
        assert!(left > TIMEOUT * 3 / 8, "{left:?}");
        assert!(left < TIMEOUT / 2, "{left:?}");
    }

    #[test]
    fn last_heartbeat_alone_proves_nothing_of_itself() {
        let mut proof = beaten(3, 5);
        for beat in 4..19 {
            proof.sent(at(beat * 100));
            proof.committed(at(beat * 100 + 5));
            assert_eq!(proof.counted_from(), Some(at(0)));
        }
    }

    #[test]
    fn what_is_kept_does_not_grow() {
        assert!(beaten(10_000, 250).beats.len() < 40);
    }

    proptest! {
        #[test]
        fn proof_never_goes_back_and_never_beyond_a_commit(steps in prop::collection::vec((0..400_u64, any::<bool>()), 1..200)) {
            let (mut proof, mut now, mut before) = (Proof::new(TIMEOUT, at(0)), 0, None);
            for (pass, is_commit) in steps {
                now += pass;
                if is_commit { proof.committed(at(now)) } else { proof.sent(at(now)) }
                prop_assert!(proof.counted_from() >= before);
                prop_assert!(proof.counted_from() <= proof.last_committed());
                before = proof.counted_from();
            }
        }
    }
}
