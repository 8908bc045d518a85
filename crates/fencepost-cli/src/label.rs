//! The holder in words, for whoever looks at the lock: user, host, process and program.

use std::ffi::OsString;
use std::path::Path;

/// The label of a run of `command`: its program alone, since arguments may contain secrets.
pub(crate) fn of(command: &[OsString]) -> String {
    let program = Path::new(&command[0]);
    let program = program.file_name().unwrap_or(&command[0]).to_string_lossy();
    fencepost::label::of_command(&program, "fencepost")
}

/// The label of a script that holds a lease by its id: that of the process that has called this one.
pub(crate) fn of_the_caller() -> String {
    let caller = rustix::process::getppid().map_or(0, rustix::process::Pid::as_raw_pid);
    let program = std::fs::read_to_string(format!("/proc/{caller}/comm")).unwrap_or_default();
    let program = program.trim();
    let program = if program.is_empty() { "a script" } else { program };
    fencepost::label::of_other(program, caller)
}
