//! The nodes of one lock: where they are, what the places in its queue are called, and which comes before which.
//!
//! Whoever shares a lock stands in the same queue as whoever wants it alone, under a mark of its own. Invariant: the order is that of the
//! numbers, read as numbers, never that of the names; a queue whose numbers are used up is noticed; and a node that is no place in the
//! queue is passed over.

use fencepost_core::{HolderId, LockName, Mode};

/// Below what all locks are, behind the chroot.
const ROOT: &str = "/fencepost";

/// What stands between a holder and the number of its place.
const EXCLUSIVE: &str = "-x-";
const SHARED: &str = "-r-";

const LOGBOOK: &str = "logbook";

/// Where all locks are, below a chroot.
pub(crate) fn root(chroot: &str) -> String {
    format!("{chroot}{ROOT}")
}

/// The node of a lock, whose children are its queue.
pub(crate) fn lock(chroot: &str, name: &LockName) -> String {
    format!("{chroot}{ROOT}/{}", name.canonical())
}

/// The name of the lock whose node is called this, where that says it: a long name is a hash there.
pub(crate) fn name(spelled: &str) -> Option<LockName> {
    let name: LockName = percent_encoding::percent_decode_str(spelled).decode_utf8().ok()?.parse().ok()?;
    (name.canonical() == spelled).then_some(name)
}

/// The node of a lock's logbook. It stands among the places of the queue, and is none.
pub(crate) fn logbook(lock: &str) -> String {
    format!("{lock}/{LOGBOOK}")
}

/// What the places of one attempt are called before they have their number.
pub(crate) fn stem(holder: HolderId, mode: Mode) -> String {
    let mark = match mode {
        Mode::Exclusive => EXCLUSIVE,
        Mode::Shared => SHARED,
    };
    format!("{holder}{mark}")
}

/// The name of a node, without that of its parent.
pub(crate) fn node_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The path of what a node is below of.
pub(crate) fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// A place in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of the node, without that of its parent.
    pub(crate) node: String,
    pub(crate) holder: HolderId,
    pub(crate) mode: Mode,
    number: i32,
}

impl Place {
    /// The place that a node is, if it is one.
    pub(crate) fn of(node: &str) -> Option<Self> {
        let exclusive = || node.split_once(EXCLUSIVE).map(|parts| (parts, Mode::Exclusive));
        let shared = || node.split_once(SHARED).map(|parts| (parts, Mode::Shared));
        let ((holder, number), mode) = exclusive().or_else(shared)?;
        let number = number.parse().ok().filter(|_| number.len() >= DIGITS)?;
        Some(Self { node: node.to_owned(), holder: holder.parse().ok()?, mode, number })
    }

    /// The number that the server has given it.
    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    /// Whether it goes with another one, so that both may hold the lock at once.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        (self.mode, other.mode) == (Mode::Shared, Mode::Shared)
    }
}

/// How many at the head of a queue have nobody in their way: one who is alone, or all who share.
pub(crate) fn head<'a>(queue: impl Iterator<Item = &'a Place> + Clone) -> usize {
    let sharing = queue.clone().take_while(|place| place.mode == Mode::Shared).count();
    sharing.max(queue.take(1).count())
}

/// The last one who stands in the way of the one at `index`.
pub(crate) fn in_the_way_of(queue: &[Place], index: usize) -> Option<&Place> {
    queue[..index].iter().rfind(|place| !place.goes_with(&queue[index]))
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
        format!("{}{number:010}", stem(HolderId::from_bytes([holder; 16]), Mode::Exclusive))
    }

    fn reader(holder: u8, number: i32) -> String {
        format!("{}{number:010}", stem(HolderId::from_bytes([holder; 16]), Mode::Shared))
    }

    fn nodes(places: &[Place]) -> Vec<&str> {
        places.iter().map(|place| place.node.as_str()).collect()
    }

    #[test]
    fn order_is_that_of_the_numbers_and_not_of_the_names() {
        let nodes = [node(1, 12), node(9, 3), node(5, 11)];
        let queue: Vec<String> = queue(&nodes).into_iter().map(|place| place.node).collect();
        assert_eq!(queue, [node(9, 3), node(5, 11), node(1, 12)]);
    }

    #[test]
    fn readers_hold_together_and_wait_for_writers_alone() {
        let [one, two, writer, late, last] =
            [reader(9, 3), reader(1, 4), node(5, 5), reader(2, 6), node(3, 7)];
        let queue = queue(&[last, late.clone(), writer.clone(), two.clone(), one.clone()]);
        assert_eq!(nodes(&queue[..head(queue.iter())]), [&one, &two]);
        let in_the_way: Vec<_> =
            (0..5).map(|index| in_the_way_of(&queue, index).map(|place| &place.node)).collect();
        assert_eq!(in_the_way, [None, None, Some(&two), Some(&writer), Some(&late)]);
        assert_eq!(head(queue[2..].iter()), 1);
        assert_eq!(head([].iter()), 0);
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
        assert_eq!(Place::of(&reader(1, 7)).unwrap().mode, Mode::Shared);
        assert_eq!(Place::of(&format!("{}7", stem(HolderId::from_bytes([1; 16]), Mode::Exclusive))), None);
    }

    #[test]
    fn ancestry_leads_down_to_the_node() {
        assert_eq!(ancestry("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(ancestry("/a").collect::<Vec<_>>(), ["/a"]);
    }
}
