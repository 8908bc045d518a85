//! The folder in which everything lies that the lab makes, and the process that removes it when the lab could not.
//!
//! Servers and workers end with the lab, whatever ends it: the kernel sees to that. Their files do not, so a small process waits
//! until the lab is gone, and sweeps.

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::crew::{Program, holds_within};

/// The folder, with its sweeper.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: Option<TempDir>,
    sweeper: Child,
    /// Its end tells the sweeper that the lab is gone.
    line: Option<ChildStdin>,
}

impl Folder {
    /// Makes the folder. From now on every temporary file of this process lies in it.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn make(sweeper: &Program) -> Result<Self, String> {
        let failed = |error: io::Error| format!("a temporary folder cannot be made: {error}");
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir().map_err(failed)?;
        // The user who runs a server finds his own folder in it, and nobody reads what else there is.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o711)).map_err(failed)?;
        // Where somebody has set it already, files lie there.
        drop(tempfile::env::override_temp_dir(directory.path()));
        let mut sweeper = Command::new(&sweeper.path)
            .args(&sweeper.arguments)
            .arg(directory.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("the lab's sweeper cannot be started: {error}"))?;
        let line = sweeper.stdin.take();
        Ok(Self { directory: Some(directory), sweeper, line })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.as_ref().expect("it is there until it is dropped").path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.directory.take();
        self.line.take();
        drop(self.sweeper.wait());
    }
}

/// Waits until the lab is gone, and removes its folder if that is still there.
pub fn sweep(folder: &Path) {
    // Nothing is ever said; the end of the line says that the lab is gone.
    drop(io::stdin().read_to_end(&mut Vec::new()));
    let is_of_a_lab = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if is_of_a_lab {
        // Servers end a moment after the lab, and may still write.
        holds_within(SWEEPING, || !folder.exists() || std::fs::remove_dir_all(folder).is_ok());
    }
}

const PREFIX: &str = "fencepost-lab-";
const SWEEPING: Duration = Duration::from_secs(10);
