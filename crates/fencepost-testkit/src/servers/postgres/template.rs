//! The data of a new server in an archive, from which it starts half a second sooner than if `initdb` made them.
//!
//! It lies with what the build of this crate makes, and goes with it. Whoever finds none leaves one; it gets its name
//! when it is complete. Servers with data of the same archive have the same identity.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::NamedTempFile;

use super::super::folder;
use super::programs::{bound, program, run};

/// Unpacks the data into the directory of a server, and says whether there was an archive.
pub(super) fn unpack(directory: &Path) -> bool {
    let Some(Ok(archive)) = file().map(File::open) else { return false };
    // The user who runs the server need not be able to find the archive, only to read it.
    run(bound(Path::new("tar"), directory).args(["--extract", AT_ONCE]).stdin(archive));
    true
}

/// Makes an archive of a server's data, which was not started yet, unless there is no place for it.
pub(super) fn pack(directory: &Path) {
    let Some(file) = file() else { return };
    let Some(Ok(archive)) = file.parent().map(NamedTempFile::new_in) else { return };
    let mut command = Command::new("tar");
    command.args(["--create", AT_ONCE, "--directory"]).arg(directory).arg("--file").arg(archive.path());
    run(command.arg("data"));
    // Where it cannot be renamed, the next one tries again.
    drop(archive.persist(file));
}

/// Each version has its own; there is none where the folder is not ours.
fn file() -> Option<PathBuf> {
    let folder = folder()?;
    let output = Command::new(program("postgres")).arg("--version").output();
    let version = output.expect("what is installed can be started").stdout;
    let version = String::from_utf8_lossy(&version).replace(|letter: char| !letter.is_alphanumeric(), "-");
    Some(folder.join(format!("{version}.tar")))
}

/// A megabyte is read and written at once; with tar's ten kilobytes it takes several times as long.
const AT_ONCE: &str = "--blocking-factor=2048";
