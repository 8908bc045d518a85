//! Lock libraries of others, measured beside ours in the same rounds: each is a process of its own that works when it is told to.
//!
//! They are there when the benchmark is told the folder where they are installed (`cargo xtask bench --peers`). Invariant: a peer
//! works only in its own turn, on the same server, and one that cannot be started is named and left out.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;

/// The folder where peers are installed.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Has peers take part that are installed in `folder`.
pub(crate) fn installed_in(folder: PathBuf) {
    // Said once, by the command line.
    drop(FOLDER.set(folder));
}

/// A library, by the language whose program drives it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Library {
    Rust(&'static str),
    Node(&'static str),
    Python(&'static str),
}

use Library::{Node, Python, Rust};

/// Who locks on one Redis.
pub(crate) const REDIS: &[Library] = &[
    Rust("rslock"),
    Rust("distributed-lock"),
    Node("redis-semaphore"),
    Node("redlock"),
    Python("redis-py"),
    Python("tooz"),
    Python("python-redis-lock"),
    Python("pottery"),
    Python("sherlock"),
];

/// Who locks on a quorum of them.
pub(crate) const REDLOCK: &[Library] =
    &[Rust("rslock"), Rust("distributed-lock"), Node("redis-semaphore"), Node("redlock"), Python("pottery")];

pub(crate) const POSTGRES: &[Library] = &[Rust("distributed-lock"), Node("advisory-lock"), Python("tooz")];
pub(crate) const ETCD: &[Library] = &[Rust("etcd-client"), Node("etcd3-node"), Python("etcd3-py")];
pub(crate) const ZOOKEEPER: &[Library] = &[Rust("zookeeper-client"), Python("kazoo"), Python("tooz")];

/// What peers are asked: a pair again and again, pairs on distinct locks, one lock that goes round.
pub(crate) const PAIR: &str = "pair 300";
pub(crate) const DISTINCT: &str = "distinct 64 20";
pub(crate) const ROUND: &str = "round 64 500";
pub(crate) const ROUND_MS: usize = 500;

/// What a peer has measured.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) value: f64,
    /// Jain's index of the grants.
    pub(crate) jain: Option<f64>,
    pub(crate) longest_wait_ms: Option<f64>,
}

/// Somebody who takes part beside ours.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    work: Box<dyn FnMut() -> Option<Answer>>,
}

/// One library at work.
#[derive(Debug)]
struct Driven {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it is asked in its turn.
    line: String,
}

impl Library {
    pub(crate) fn name(self) -> &'static str {
        let (Self::Rust(name) | Self::Node(name) | Self::Python(name)) = self;
        name
    }

    fn command(self, folder: &Path) -> Command {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let (program, script) = match self {
            Self::Rust(_) => (folder.join("rust/release/peers"), None),
            Self::Node(_) => ("node".into(), Some(programs.join("node.mjs"))),
            Self::Python(_) => (folder.join("python/bin/python"), Some(programs.join("python.py"))),
        };
        let mut command = Command::new(program);
        command.args(script).arg(self.name()).env("PEERS", folder.join("node"));
        command
    }

    fn start(self, folder: &Path, urls: &[String], line: &str) -> Option<Peer> {
        let mut command = self.command(folder);
        command.args(urls).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().ok()?;
        let (input, output) = process.stdin.take().zip(process.stdout.take())?;
        let output = BufReader::new(output);
        let mut driven = Driven { process, input, output, line: line.to_owned() };
        (driven.read()? == "ready").then(|| Peer { name: self.name(), work: Box::new(move || driven.work()) })
    }
}

/// Those of `libraries` that are installed, connected to `urls`, to be asked `line` in their turns.
pub(crate) fn of(libraries: &[Library], urls: &[String], line: &str) -> Vec<Peer> {
    let Some(folder) = FOLDER.get() else { return Vec::new() };
    let start = |library: &Library| {
        let peer = library.start(folder, urls, line);
        if peer.is_none() {
            eprintln!("{} cannot be started, and is left out", library.name());
        }
        peer
    };
    libraries.iter().filter_map(start).collect()
}

impl Peer {
    /// One that is no library: `work` gives what it took, or nothing where it cannot do it.
    pub(crate) fn new(name: &'static str, mut work: impl FnMut() -> Option<f64> + 'static) -> Self {
        let work = move || work().map(|value| Answer { value, jain: None, longest_wait_ms: None });
        Self { name, work: Box::new(work) }
    }

    /// Has it work; `None` when it cannot.
    pub(crate) fn work(&mut self) -> Option<Answer> {
        (self.work)()
    }
}

impl Driven {
    fn work(&mut self) -> Option<Answer> {
        writeln!(self.input, "{}", self.line).ok()?;
        serde_json::from_str(&self.read()?).ok()
    }

    fn read(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.output.read_line(&mut line).ok()?;
        (length > 0).then(|| line.trim_end().to_owned())
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
