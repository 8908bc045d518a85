//! The programs of Postgres: where they are installed, and which user runs them.
//!
//! Invariant: no server is run by root, which Postgres and `PgBouncer` refuse.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;
use crate::servers::installed;

/// Where a program of Postgres is installed, in the newest version that has it.
///
/// # Panics
/// When it is not installed.
pub(super) fn program(name: &str) -> PathBuf {
    newest(name).unwrap_or_else(|| installed(name))
}

/// A command that runs `program` bound to this process, in `folder`, and by the user of Postgres if this one is root.
pub(in crate::servers) fn bound(program: &Path, folder: &Path) -> Command {
    let mut command = if is_root() { Process::bound_as(USER, program) } else { Process::bound(program) };
    // This process may be in a folder that the other user cannot enter.
    command.current_dir(folder);
    command
}

/// Gives a file or an empty folder to the user who runs the servers.
pub(in crate::servers) fn give_to_user(file: &Path) {
    if is_root() {
        run(Command::new("chown").arg(format!("{USER}:")).arg(file));
    }
}

/// Runs a command to its end.
///
/// # Panics
/// When it fails; the message then holds what it said.
pub(super) fn run(command: &mut Command) {
    try_run(command).unwrap_or_else(|message| panic!("{message}"));
}

/// The same.
///
/// # Errors
/// What it said, when it fails.
pub(super) fn try_run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Debian keeps each version in a folder that is on nobody's path.
pub(in crate::servers) fn newest(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let numbered = versions.filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        Some((number, version.path().join("bin").join(name)))
    });
    numbered.filter(|(_, file)| file.is_file()).max().map(|(_, file)| file)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user that the packages of Postgres make.
const USER: &str = "postgres";
