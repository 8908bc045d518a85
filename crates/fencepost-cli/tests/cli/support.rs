//! What the tests share: a home of their own, processes that end with the test, and waiting for events.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use fencepost::Clock;
use fencepost::block_on;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take that should take milliseconds. Generous, for a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A home directory, a state directory and a working directory that nobody else uses.
pub(crate) struct Home {
    directory: tempfile::TempDir,
    backend: Option<String>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), backend: None }
    }

    /// A home whose locks are at this URL, unless a command line says otherwise.
    pub(crate) fn on(url: &str) -> Self {
        Self { backend: Some(url.to_owned()), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory of the default locks.
    pub(crate) fn locks(&self) -> PathBuf {
        self.path("state/fencepost")
    }

    /// `fencepost` in this home, with nothing else in its environment.
    pub(crate) fn fencepost(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_fencepost"));
        command.args(args);
        command
    }

    /// Any program in this home.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("PATH", path_with_fencepost()).env("HOME", self.directory.path()).env("USER", "tester");
        command.env("XDG_STATE_HOME", self.path("state")).env("XDG_CONFIG_HOME", self.path("config"));
        command.envs(self.backend.iter().map(|url| ("FENCEPOST_BACKEND", url)));
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
        Outcome::of(self.fencepost(args).output().unwrap())
    }

    /// Runs as `nobody`, since root is denied nothing; `None` where the tests do not run as root.
    pub(crate) fn as_nobody(&self, args: &[&str]) -> Option<Outcome> {
        if !rustix::process::geteuid().is_root() {
            assert!(
                std::env::var_os("CI").is_none(),
                "only root can become another user, and CI must prove this"
            );
            return None;
        }
        fs::set_permissions(self.directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut command = self.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_fencepost")]);
        Some(Outcome::of(command.args(args).output().unwrap()))
    }

    /// Runs a shell script to its end.
    pub(crate) fn shell(&self, script: &str) -> Outcome {
        Outcome::of(self.command("sh").args(["-c", script]).output().unwrap())
    }

    /// Starts it and goes on.
    pub(crate) fn start(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Running {
        Running::of(&mut self.fencepost(args))
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Waits until a file is there.
    pub(crate) fn await_file(&self, name: &str) {
        eventually(name, || self.path(name).exists());
    }

    /// Waits until a file has a whole line in it.
    pub(crate) fn await_line(&self, name: &str) -> String {
        eventually(&format!("a line in {name}"), || self.read(name).ends_with('\n'));
        self.read(name).trim().to_owned()
    }

    /// Waits until somebody waits for the lock.
    pub(crate) fn await_waiter(&self, lock: &str) {
        eventually("a waiter", || {
            let status = self.run(["status", "--json", lock]);
            !serde_json::from_str::<Value>(&status.stdout).unwrap()["waiters"].as_array().unwrap().is_empty()
        });
    }

    /// Waits until the lock is free.
    pub(crate) fn await_free(&self, lock: &str) {
        eventually("a free lock", || self.run(["status", lock]).code == Some(1));
    }
}

/// The tests' own binary comes first, so that scripts can call `fencepost`.
fn path_with_fencepost() -> std::ffi::OsString {
    let bin = Path::new(env!("CARGO_BIN_EXE_fencepost")).parent().unwrap().to_owned();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&rest))).unwrap()
}

/// How a process has ended, and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

/// A process that is killed when the test ends.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn of(command: &mut Command) -> Self {
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.as_ref().unwrap().id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for the end, and says how it was.
    pub(crate) fn ends(mut self) -> Outcome {
        eventually("the end of the process", || self.0.as_mut().unwrap().try_wait().unwrap().is_some());
        let mut child = self.0.take().unwrap();
        let status = child.wait().unwrap();
        Outcome::of(Output { status, stdout: rest(child.stdout), stderr: rest(child.stderr) })
    }

    /// Kills it, and waits for that alone: what it started may live on.
    pub(crate) fn kill(mut self) -> ExitStatus {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap()
    }
}

fn rest(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Whether a process lives, in the sense that it may still act.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rfind(')').is_some_and(|end| !stat[end..].starts_with(") Z"))
}

/// Waits for `what`, looking often.
#[track_caller]
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let clock = Clock::system();
    let limit = clock.now().after(SOON);
    while !check() {
        assert!(clock.now() < limit, "waited {SOON:?} for {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Lets time pass where no event can be waited for: to see that something does not happen.
pub(crate) fn sleep(duration: Duration) {
    block_on(Clock::system().sleep(duration));
}

/// The child of `parent`: the guardian of a runner, the command of a guardian.
pub(crate) fn child_of(parent: i32) -> i32 {
    let mut child = None;
    eventually("a child process", || {
        let children =
            fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        child = children.split_ascii_whitespace().next().map(|pid| pid.parse().unwrap());
        child.is_some()
    });
    child.unwrap()
}

/// The value of `since` between two moments.
pub(crate) fn now_micros() -> u64 {
    Clock::system().wall_micros()
}

/// What was written as JSON.
#[track_caller]
pub(crate) fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:?}"))
}

/// The number that a command has written.
#[track_caller]
pub(crate) fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// Waits for the end, which comes no more than `most` after `since`.
#[track_caller]
pub(crate) fn ends_within(run: Running, since: u64, most: Duration) -> Outcome {
    let outcome = run.ends();
    let took = Duration::from_micros(now_micros() - since);
    assert!(took < most, "{took:?}: {outcome:?}");
    outcome
}

/// Waits for the end of all of them.
#[track_caller]
pub(crate) fn all_end(runs: Vec<Running>, code: i32) {
    for run in runs {
        run.ends().exits(code);
    }
}

/// Debian's own, which its packages of modules are for.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Whether Python can import a module; in continuous integration it has to.
pub(crate) fn python_has(module: &str) -> bool {
    let import = format!("import {module}");
    let status = Command::new(PYTHON).args(["-c", &import]).stderr(Stdio::null()).status();
    let has_it = status.is_ok_and(|status| status.success());
    assert!(has_it || std::env::var_os("CI").is_none(), "{module} is not installed, and CI must prove this");
    has_it
}

/// Numbers that are random enough to be anywhere.
///
/// A test that has failed has printed `FENCEPOST_SEED=…`; set, the variable repeats the choices, though not the moments of
/// the kernel.
pub(crate) struct Dice(u64);

impl Dice {
    #[expect(clippy::print_stdout, reason = "the seed stands in the output of a test that has failed")]
    pub(crate) fn new() -> Self {
        let seed = std::env::var("FENCEPOST_SEED");
        let seed = seed.map_or_else(|_| RandomState::new().build_hasher().finish(), |seed| number(&seed));
        println!("FENCEPOST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Asserts that a lock in JSON has every key that is promised, and no other.
#[track_caller]
pub(crate) fn assert_has_every_key(lock: &Value) {
    let keys: Vec<_> = lock.as_object().unwrap().keys().cloned().collect();
    let promised = "backend holder label lock readers remaining_ms since state token waiters";
    assert_eq!(keys, promised.split(' ').collect::<Vec<_>>());
}
