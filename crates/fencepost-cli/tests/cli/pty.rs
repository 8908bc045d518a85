//! A terminal of a test's own: what is typed, what it shows, and the session of processes that lives on it.
//!
//! Invariant: when it is dropped, also by a panic, nothing of its session is left.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::time::Duration;

use pty_process::Size;
use pty_process::blocking::{Command as OnTerminal, Pty, open};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Home, eventually, sleep};

pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_D: &str = "\u{4}";
pub(crate) const CTRL_Z: &str = "\u{1a}";

/// What the shell shows when it wants a line.
const PROMPT: &str = "ready> ";

/// A terminal, and the leader of its session.
pub(crate) struct Terminal {
    master: Option<Pty>,
    leader: Child,
    screen: String,
    /// How much of the screen has been looked at.
    seen: usize,
}

/// A process as the kernel lists it.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    name: String,
    pub(crate) state: char,
    parent: i32,
    session: i32,
    foreground: i32,
}

impl Terminal {
    /// An interactive shell with job control.
    pub(crate) fn with_shell(home: &Home) -> Self {
        let mut shell = home.command("bash");
        shell.args(["--noprofile", "--norc", "-i"]).env("PS1", PROMPT).env("TERM", "dumb");
        let mut terminal = Self::with(shell);
        terminal.prompts();
        terminal
    }

    /// A program that leads the session itself, so that no shell could continue what is stopped.
    pub(crate) fn with(program: Command) -> Self {
        let (master, slave) = open().unwrap();
        master.resize(Size::new(24, 200)).unwrap();
        let flags = rustix::fs::fcntl_getfl(&master).unwrap();
        rustix::fs::fcntl_setfl(&master, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
        let leader = OnTerminal::from(program).spawn(slave).unwrap();
        Self { master: Some(master), leader, screen: String::new(), seen: 0 }
    }

    pub(crate) fn types(&mut self, line: &str) {
        self.presses(&format!("{line}\n"));
    }

    pub(crate) fn presses(&mut self, keys: &str) {
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is shown, after what was seen before.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) {
        let found = (0..LOOKS).find_map(|_| self.look_for(text));
        let found = found.unwrap_or_else(|| panic!("waited for {text:?}, saw {:?}", &self.screen));
        self.seen = found + text.len();
    }

    fn look_for(&mut self, text: &str) -> Option<usize> {
        let mut bytes = [0; 4096];
        // An error means that there is nothing to read yet, or that no process has the terminal open any more.
        match self.master.as_mut().unwrap().read(&mut bytes) {
            Ok(length @ 1..) => self.screen.push_str(&String::from_utf8_lossy(&bytes[..length])),
            _ => sleep(PAUSE),
        }
        self.screen[self.seen..].find(text).map(|at| self.seen + at)
    }

    #[track_caller]
    pub(crate) fn prompts(&mut self) {
        self.sees(PROMPT);
    }

    /// Waits for the prompt; the command before it has exited with `code`.
    #[track_caller]
    pub(crate) fn exits(&mut self, code: i32) {
        self.prompts();
        // The line itself is shown too, and must not be taken for its answer.
        self.types("echo \"exit\"\":$?\"");
        self.sees("exit:");
        self.sees("\r\n");
        let shown = self.screen[..self.seen].trim_end().rsplit("exit:").next().unwrap();
        assert_eq!(shown, code.to_string(), "{}", self.screen);
        self.prompts();
    }

    /// Waits for the end of the session's leader.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> Option<i32> {
        eventually("the end of the session's leader", || self.leader.try_wait().unwrap().is_some());
        self.leader.wait().unwrap().code()
    }

    /// All that was shown so far.
    pub(crate) fn shown(&self) -> &str {
        &self.screen
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        self.master.as_ref().unwrap().resize(Size::new(rows, columns)).unwrap();
    }

    /// Closes the window.
    pub(crate) fn hangs_up(&mut self) {
        drop(self.master.take());
    }

    pub(crate) fn leader(&self) -> i32 {
        i32::try_from(self.leader.id()).unwrap()
    }

    /// The process group in the terminal's foreground.
    pub(crate) fn foreground(&self) -> i32 {
        Process::of(self.leader()).unwrap().foreground
    }

    /// What lives in the session, without its leader.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let ours = |process: &Process| process.session == self.leader() && process.state != 'Z';
        pids.filter_map(Process::of).filter(ours).filter(|process| process.pid != self.leader()).collect()
    }

    /// The `fencepost` that the session's leader has started.
    #[track_caller]
    pub(crate) fn runner(&self) -> i32 {
        let mut runner = None;
        eventually("a runner", || {
            let is_runner =
                |process: &Process| process.name == "fencepost" && process.parent == self.leader();
            runner = self.processes().into_iter().find(is_runner);
            runner.is_some()
        });
        runner.unwrap().pid
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        for _ in 0..LOOKS {
            let left = self.processes();
            for process in &left {
                let _ = kill_process(Pid::from_raw(process.pid).unwrap(), Signal::KILL);
            }
            if left.is_empty() {
                break;
            }
            sleep(PAUSE);
        }
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}

impl Process {
    /// Whether its own parent has ended, and the guardian has it now.
    pub(crate) fn is_adopted(&self) -> bool {
        Self::of(self.parent).is_some_and(|parent| parent.name == "fencepost")
    }

    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, rest) = (stat.find('(')? + 1, stat.rfind(')')?);
        let words: Vec<&str> = stat[rest + 1..].split_ascii_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse().ok();
        Some(Self {
            pid,
            name: stat[name..rest].to_owned(),
            state: words.first()?.chars().next()?,
            parent: number(1)?,
            session: number(3)?,
            foreground: number(5)?,
        })
    }
}

/// Waits until the process is stopped, or no longer is.
#[track_caller]
pub(crate) fn await_stopped(pid: i32, stopped: bool) {
    let is_so = || Process::of(pid).is_some_and(|process| (process.state == 'T') == stopped);
    eventually(if stopped { "a stopped process" } else { "a continued process" }, is_so);
}

/// How long to wait between two looks, and how often to look: as long as [`crate::support::SOON`].
const PAUSE: Duration = Duration::from_millis(5);
const LOOKS: usize = 4000;
