//! Giving a lock back, or what may be left of an attempt: one and the same. A pure state machine.
//!
//! Invariant: it ends when every node has refused the holder for good, or when nothing that the holder sent before can
//! still have its ttl to run.

use fencepost_core::Moment;

use super::message::{Action, Event, Reply, Request, Round, send};
use super::nodes::NodeSet;
use super::pace::patience;
use super::terms::Terms;

/// The cancelling of one holder id on all nodes, also on those that never answered it.
///
/// A node remembers whom it cancelled, so a request that still travels on a connection which was given up takes no
/// effect when it arrives. A node that cannot be reached is asked again, ever less often, until the ttl has passed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cancellation {
    terms: Terms,
    round: Round,
    until: Option<Moment>,
    left: NodeSet,
}

impl Cancellation {
    /// The cancelling of a lease, or of an attempt at one, with these terms.
    pub fn new(terms: Terms) -> Self {
        Self { terms, round: Round::NONE, until: None, left: terms.quorum().all() }
    }

    /// What to do, given what happened at `now`. It is done with the nodes that have not confirmed it, best none.
    pub fn step(&mut self, now: Moment, event: Event) -> Vec<Action<NodeSet>> {
        match (event, self.until) {
            (Event::Began, None) => {
                self.until = Some(now.after(self.terms.ttl()));
                self.ask(now)
            }
            (Event::Replied { node, reply: Reply::Done, .. }, Some(_)) if self.left.contains(node) => {
                self.left.remove(node);
                if self.left.is_empty() { vec![Action::Done(self.left)] } else { Vec::new() }
            }
            (Event::Woke, Some(until)) if !self.left.is_empty() => {
                if now < until {
                    return self.ask(now);
                }
                let left = std::mem::take(&mut self.left);
                vec![Action::Done(left)]
            }
            _ => Vec::new(),
        }
    }

    /// The nodes that have not confirmed it.
    pub fn left(&self) -> NodeSet {
        self.left
    }

    fn ask(&mut self, now: Moment) -> Vec<Action<NodeSet>> {
        let pause = patience(self.terms.ttl()) * (1 << self.round.number().min(MOST_DOUBLINGS));
        self.round = self.round.next();
        let mut actions: Vec<_> = send(self.left.iter(), self.round, Request::Cancel).collect();
        actions.push(Action::WakeAt(now.after(pause)));
        actions
    }
}

/// At most sixteen times the patience, a few seconds.
const MOST_DOUBLINGS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::Quorum;
    use std::time::Duration;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn begun() -> Cancellation {
        let terms = Terms::new(Quorum::of(3).unwrap(), Duration::from_secs(1), 0).unwrap();
        let mut cancellation = Cancellation::new(terms);
        assert_eq!(cancellation.step(at(0), Event::Began).len(), 4);
        cancellation
    }

    fn done(node: usize) -> Event {
        Event::Replied { node, round: Round::NONE, reply: Reply::Done }
    }

    #[test]
    fn cancellation_ends_when_every_node_has_confirmed_it() {
        let mut cancellation = begun();
        assert_eq!(cancellation.step(at(1), done(0)), []);
        assert_eq!(cancellation.step(at(1), done(2)), []);
        assert_eq!(cancellation.step(at(1), done(2)), []);
        assert_eq!(cancellation.step(at(2), done(1)), [Action::Done(NodeSet::EMPTY)]);
        assert_eq!(cancellation.step(at(60), Event::Woke), []);
    }

    #[test]
    fn silent_node_is_asked_again_until_the_ttl_has_passed() {
        let mut cancellation = begun();
        cancellation.step(at(1), done(0));
        cancellation.step(at(1), done(2));
        let again = cancellation.step(at(50), Event::Woke);
        assert!(matches!(again[0], Action::Send { node: 1, request: Request::Cancel, .. }));
        assert_eq!(again[1], Action::WakeAt(at(150)));
        assert_eq!(cancellation.step(at(1_000), Event::Woke), [Action::Done([1].into_iter().collect())]);
    }
}
