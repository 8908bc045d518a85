//! The holder in words, for whoever looks at the lock: user, host, process and program.

use std::ffi::OsString;
use std::path::Path;

/// The label of a run of `command`: its program alone, since arguments may contain secrets.
pub(crate) fn of(command: &[OsString]) -> String {
    let program = Path::new(&command[0]);
    let program = program.file_name().unwrap_or(&command[0]).to_string_lossy();
    fencepost::label::of_command(&program, "fencepost")
}
