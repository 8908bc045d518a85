//! How many nodes make a quorum, and sets of them.
//!
//! Invariant: two sets of a majority share a node; the number of nodes is odd, so that a majority is no larger than it
//! must be.

use fencepost_core::{Error, ErrorKind, Result};

/// The nodes of one backend, by their number. A node is known by its place in the list, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// The most nodes that are allowed: every lock costs two exchanges with each.
    pub const MOST_NODES: usize = 15;

    /// The quorum of `nodes` independent nodes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] unless it is an odd number from 3 to 15: a fourth node makes the majority
    /// larger and allows for no more failures than three.
    pub fn of(nodes: usize) -> Result<Self> {
        if nodes % 2 == 1 && (3..=Self::MOST_NODES).contains(&nodes) {
            return Ok(Self { nodes });
        }
        let what = format!("it takes an odd number of nodes from 3 to {}, not {nodes}", Self::MOST_NODES);
        Err(Error::new(ErrorKind::InvalidArgument, "form a quorum", what))
    }

    /// How many nodes there are, N.
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// How many are a majority, q.
    pub fn majority(self) -> usize {
        self.nodes / 2 + 1
    }

    /// How many may be missing, N - q.
    pub fn minority(self) -> usize {
        self.nodes - self.majority()
    }

    /// How many of the other nodes must be read so that none of an amnesiac node's grants is overlooked, N - q + 1.
    ///
    /// Such a grant is acknowledged by at least q - 1 of the N - 1 others, and N - q + 1 + q - 1 > N - 1.
    pub fn witnesses(self) -> usize {
        self.nodes - self.majority() + 1
    }

    /// How many nodes may free the lock early, through a stepped clock or lost data, without a second holder: f = |A|
    /// \+ q - N - 1 for a holder on |A| nodes. Another holder needs q nodes, so at least |A| + q - N of these.
    pub fn slack(self, members: usize) -> usize {
        (members + self.majority()).saturating_sub(self.nodes + 1)
    }

    /// All nodes.
    pub fn all(self) -> NodeSet {
        (0..self.nodes).collect()
    }
}

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u16);

impl NodeSet {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// Whether `node` is in it.
    pub fn contains(self, node: usize) -> bool {
        self.0 & Self::bit(node) != 0
    }

    /// How many are in it.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether none is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Puts `node` in.
    pub fn insert(&mut self, node: usize) {
        self.0 |= Self::bit(node);
    }

    /// Takes `node` out.
    pub fn remove(&mut self, node: usize) {
        self.0 &= !Self::bit(node);
    }

    /// Those in either.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The nodes in it, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Quorum::MOST_NODES).filter(move |node| self.contains(*node))
    }

    /// A node beyond the most that are allowed is in no set.
    fn bit(node: usize) -> u16 {
        if node < Quorum::MOST_NODES { 1 << node } else { 0 }
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let mut set = Self::EMPTY;
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn even_and_too_few_nodes_are_refused() {
        for nodes in [0, 1, 2, 4, 6, 16, 17] {
            assert!(Quorum::of(nodes).is_err(), "{nodes}");
        }
    }

    #[test]
    fn minimal_quorum_has_no_slack_and_a_full_one_has_most() {
        let quorum = Quorum::of(5).unwrap();
        assert_eq!([3, 4, 5].map(|members| quorum.slack(members)), [0, 1, 2]);
        assert_eq!(quorum.slack(2), 0);
    }

    proptest! {
        #[test]
        fn holder_and_majority_share_more_nodes_than_the_slack(half in 1..7_usize, bits in any::<[u16; 2]>()) {
            let quorum = Quorum::of(2 * half + 1).unwrap();
            let [ours, theirs] = bits.map(|bits| NodeSet(bits & quorum.all().0));
            prop_assume!(ours.len() >= quorum.majority() && theirs.len() >= quorum.majority());
            prop_assert!(NodeSet(ours.0 & theirs.0).len() > quorum.slack(ours.len()));
        }
    }
}
