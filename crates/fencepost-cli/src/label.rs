//! The holder in words, for whoever looks at the lock: user, host, process and command.

use std::ffi::OsString;

/// The label of a run of `command`.
pub(crate) fn of(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    fencepost::label::with_command(&words.join(" "))
}
