//! The nodes of one lock: where they are, what the places in its queue are called, and which comes before which.
//!
//! Invariant: the order is that of the numbers, read as numbers, never that of the names; a queue whose numbers are used up is noticed;
//! and a node that is no place in the queue is passed over.

use fencepost_core::{HolderId, LockName};

/// Below what all locks are, behind the chroot.
const ROOT: &str = "/fencepost";

/// What stands between a holder and the number of its place.
const EXCLUSIVE: &str = "-x-";

const LOGBOOK: &str = "logbook";

/// Where all locks are, below a chroot.
pub(crate) fn root(chroot: &str) -> String {
    format!("{chroot}{ROOT}")
}

/// The node of a lock, whose children are its queue.
pub(crate) fn lock(chroot: &str, name: &LockName) -> String {
    format!("{chroot}{ROOT}/{}", name.canonical())
}

/// The node of a lock's logbook. It stands among the places of the queue, and is none.
pub(crate) fn logbook(lock: &str) -> String {
    format!("{lock}/{LOGBOOK}")
}

/// What the places of one attempt are called before they have their number.
pub(crate) fn stem(holder: HolderId) -> String {
    format!("{holder}{EXCLUSIVE}")
}

/// A place in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of the node, without that of its parent.
    pub(crate) node: String,
    pub(crate) holder: HolderId,
    number: i32,
}

impl Place {
    /// The place that a node is, if it is one.
    pub(crate) fn of(node: &str) -> Option<Self> {
        let (holder, number) = node.split_once(EXCLUSIVE)?;
        let number = number.parse().ok().filter(|_| number.len() >= DIGITS)?;
        Some(Self { node: node.to_owned(), holder: holder.parse().ok()?, number })
    }
}

/// How many digits a number has at least.
const DIGITS: usize = 10;

/// The places among the children of a lock, in their order.
pub(crate) fn queue(children: &[String]) -> Vec<Place> {
    let mut places: Vec<Place> = children.iter().filter_map(|node| Place::of(node)).collect();
    places.sort_by_key(|place| place.number);
    places
}

/// Whether the numbers of a queue tell no order any more: the server stays at the greatest one, or begins at the least.
pub(crate) fn is_used_up(queue: &[Place]) -> bool {
    queue.iter().any(|place| place.number < 0 || place.number == i32::MAX)
}

/// Every path from that of the first node that may be missing down to `path`.
pub(crate) fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
    ends.map(|end| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(holder: u8, number: i32) -> String {
        format!("{}{number:010}", stem(HolderId::from_bytes([holder; 16])))
    }

    #[test]
    fn order_is_that_of_the_numbers_and_not_of_the_names() {
        let nodes = [node(1, 12), node(9, 3), node(5, 11)];
        let queue: Vec<String> = queue(&nodes).into_iter().map(|place| place.node).collect();
        assert_eq!(queue, [node(9, 3), node(5, 11), node(1, 12)]);
    }

    #[test]
    fn numbers_that_tell_no_order_are_noticed() {
        assert!(!is_used_up(&queue(&[node(1, 0), node(2, i32::MAX - 1)])));
        assert!(is_used_up(&queue(&[node(1, 7), node(2, i32::MAX)])));
        assert!(is_used_up(&queue(&[node(1, 7), node(2, i32::MIN)])));
    }

    #[test]
    fn what_is_no_place_is_passed_over() {
        let foreign = [LOGBOOK, "lock-0000000001", "a-x-0000000001", "zzz", ""].map(str::to_owned);
        assert!(queue(&foreign).is_empty());
        assert_eq!(Place::of(&node(1, 7)).unwrap().holder, HolderId::from_bytes([1; 16]));
        assert_eq!(Place::of(&format!("{}7", stem(HolderId::from_bytes([1; 16])))), None);
    }

    #[test]
    fn ancestry_leads_down_to_the_node() {
        assert_eq!(ancestry("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(ancestry("/a").collect::<Vec<_>>(), ["/a"]);
    }
}
