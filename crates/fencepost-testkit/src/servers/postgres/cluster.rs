//! What a Postgres server keeps on disk: its data, its socket, and what it said, in one temporary directory.
//!
//! Invariant: when it is dropped, nothing of the server is left, in no memory either.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{NamedTempFile, TempDir};

use super::programs::{bound, give_to_user, program, run, try_run};

/// The directory of one server.
#[derive(Debug)]
pub(super) struct Cluster(TempDir);

impl Cluster {
    /// An empty directory that belongs to the user who runs the server.
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        give_to_user(directory.path());
        Self(directory)
    }

    /// Makes data of their own identity, in which there is nothing yet. With a password, TCP asks for it; the socket
    /// never does.
    pub(super) fn initialize(&self, password: Option<&str>) {
        let mut command = self.command("initdb");
        command.args(["--no-sync", "--no-instructions", "--username=postgres", "--auth=trust"]);
        command.args(["--encoding=UTF8", "--locale=C", "--pgdata"]).arg(self.data());
        let file = password.map(|password| self.password_file(password));
        if let Some(file) = &file {
            command.arg("--auth-host=scram-sha-256").arg("--pwfile").arg(file.path());
        }
        run(&mut command);
    }

    /// Makes data that are a copy of a running server's, which is to be followed when they are started.
    ///
    /// # Errors
    /// Why they cannot be copied.
    pub(super) fn copy(&self, connection: &str) -> Result<(), String> {
        let mut command = self.command("pg_basebackup");
        command.args(["--checkpoint=fast", "--wal-method=stream", "--no-sync", "--dbname", connection]);
        try_run(command.arg("--pgdata").arg(self.data()))?;
        let signal = self.data().join("standby.signal");
        File::create(&signal).expect("a file can be made in the directory");
        give_to_user(&signal);
        Ok(())
    }

    /// Removes the data; no server runs.
    pub(super) fn empty(&self) {
        self.free_memory();
        fs::remove_dir_all(self.data()).expect("nobody writes in the directory of a killed server");
    }

    /// What the server has said since it was first started.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.path().join("log")
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The fields of the file that a server has while it runs, and leaves behind when it is killed.
    pub(super) fn state(&self) -> Vec<String> {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    fn command(&self, name: &str) -> Command {
        bound(&program(name), self.path())
    }

    fn password_file(&self, password: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new_in(self.path()).expect("a file can be made in the directory");
        file.write_all(password.as_bytes()).expect("a file in the directory can be written");
        give_to_user(file.path());
        file
    }

    /// A killed server leaves a few bytes of System V shared memory, by which the next one on its data sees whether
    /// processes of the first are left. The next one frees them; where there is none, they would stay until a reboot,
    /// and the kernel has 4096 of them.
    fn free_memory(&self) {
        let state = self.state();
        let id = state.get(6).and_then(|keys| keys.split_whitespace().nth(1));
        if let Some(id) = id {
            // The server may have freed it, and not come to remove its file.
            drop(Command::new("ipcrm").args(["--shmem-id", id]).output());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.free_memory();
    }
}
