//! What a test asks of an etcd server: by `etcdctl`, past any client of ours, and by the page with its figures.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::EtcdServer;
use crate::servers::installed;

impl EtcdServer {
    /// Runs `etcdctl` on this server and gives what it prints, without the end of the last line.
    ///
    /// # Panics
    /// When it fails.
    pub fn control(&self, arguments: &[&str]) -> String {
        self.try_control(arguments).unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    /// The same, with something to read.
    ///
    /// # Panics
    /// When it fails.
    pub fn control_with(&self, arguments: &[&str], input: &str) -> String {
        let outcome = self.run_control(arguments, input);
        outcome.unwrap_or_else(|error| panic!("etcdctl {arguments:?}: {error}"))
    }

    /// Runs `etcdctl` on this server and gives what it prints, without the end of the last line.
    ///
    /// # Errors
    /// What it says when it fails.
    pub fn try_control(&self, arguments: &[&str]) -> Result<String, String> {
        self.run_control(arguments, "")
    }

    fn run_control(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let mut command = Command::new(installed("etcdctl"));
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(format!("{scheme}://{}", self.address()));
        if let Some(certificates) = &self.certificates {
            command.arg("--cacert").arg(certificates.authority());
            command.arg("--cert").arg(certificates.certificate()).arg("--key").arg(certificates.key());
        }
        if let Some((user, password)) = &self.login {
            command.args(["--user", &format!("{user}:{password}")]);
        }
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("what is installed can be started");
        let mut pipe = child.stdin.take().expect("it was asked for");
        // It may have ended without reading.
        drop(pipe.write_all(input.as_bytes()));
        drop(pipe);
        let output = child.wait_with_output().expect("a child can be waited for");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
    }

    /// The names of all keys that begin with `prefix`, in their order.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let listed = self.control(&["get", "--prefix", "--keys-only", prefix]);
        listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Makes `root` with this password, and asks everybody for a login from now on.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn require_login(&mut self, password: &str) {
        self.control(&["user", "add", &format!("root:{password}")]);
        self.control(&["user", "grant-role", "root", "root"]);
        self.control(&["auth", "enable"]);
        self.login = Some(("root".to_owned(), password.to_owned()));
    }

    /// Makes a user who may read and write the keys that begin with `prefix`.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn add_user(&self, user: &str, password: &str, prefix: &str) {
        self.control(&["user", "add", &format!("{user}:{password}")]);
        self.control(&["role", "add", user]);
        self.control(&["role", "grant-permission", user, "readwrite", "--prefix=true", prefix]);
        self.control(&["user", "grant-role", user, user]);
    }

    /// Saves a snapshot, which is in the server's directory and goes with it.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn snapshot(&self) -> PathBuf {
        let file = self.directory.path().join("snapshot");
        // An older one is no file to be written over.
        drop(std::fs::remove_file(&file));
        self.control(&["snapshot", "save", &path(&file)]);
        file
    }

    /// Whether it leads, as far as it says anything.
    pub fn is_leader(&self) -> bool {
        self.is_running() && self.figures().is_some_and(|page| sum(&page, "etcd_server_is_leader") > 0.0)
    }

    /// The sum of the figures whose name and labels begin so: `grpc_server_started_total{grpc_method="Txn"`.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn figure(&self, name: &str) -> f64 {
        sum(&self.figures().expect("a server that runs tells of itself"), name)
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.page("/health").is_some_and(|page| page.contains("\"true\""))
    }

    fn figures(&self) -> Option<String> {
        self.page("/metrics")
    }

    fn page(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.ports.metrics.address()).ok()?;
        stream.set_read_timeout(Some(LONGEST_REPLY)).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: etcd\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        Some(page)
    }
}

fn sum(page: &str, name: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn path(file: &Path) -> String {
    file.display().to_string()
}

/// A server that stands still says nothing.
const LONGEST_REPLY: Duration = Duration::from_millis(500);
