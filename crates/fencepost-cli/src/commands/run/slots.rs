//! The slots of a lock: locks of their own, by the names that the library gives them.

use fencepost::{LockName, Result};

/// The names of `count` slots of `lock`.
///
/// # Errors
/// `InvalidArgument` where one would be too long.
pub(super) fn names(lock: &LockName, count: usize) -> Result<Vec<LockName>> {
    (0..count).map(|number| format!("{lock}#{number}").parse()).collect()
}

/// The number of `slot`, if it is one of `lock`.
pub(super) fn number<'a>(lock: &LockName, slot: &'a LockName) -> Option<&'a str> {
    slot.as_str().strip_prefix(lock.as_str())?.strip_prefix('#')
}
