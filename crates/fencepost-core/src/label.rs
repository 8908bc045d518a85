//! The holder in words: user, host, process and program, for people who look at a lock. Never used for a decision.

use std::path::Path;
use std::sync::OnceLock;

/// `user@host: program (pid 4711)`, of this process.
pub fn of_this_process() -> &'static str {
    static LABEL: OnceLock<String> = OnceLock::new();
    LABEL.get_or_init(this_process)
}

fn this_process() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or(&program).to_string_lossy().into_owned();
    of(&program, "")
}

/// `user@host: command (runner pid 4711)`: what runs under a lock, and the process that `runner` calls this one.
pub fn of_command(command: &str, runner: &str) -> String {
    of(command, &format!("{runner} "))
}

/// `user@host: program (pid 4711)`, of another process of this host.
pub fn of_other(program: &str, pid: i32) -> String {
    line(program, &format!("pid {pid}"))
}

fn of(command: &str, runner: &str) -> String {
    line(command, &format!("{runner}pid {}", std::process::id()))
}

fn line(command: &str, process: &str) -> String {
    let user = user();
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let line = format!("{user}@{host}: {command} ({process})");
    line.chars().filter(|letter| !letter.is_control()).take(MOST_LETTERS).collect()
}

/// The name that the user goes by, or else the number.
fn user() -> String {
    let named = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    named.ok().filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let number = rustix::process::geteuid().as_raw().to_string();
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let entry = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let name = entry
            .filter(|fields| fields.get(2) == Some(&number.as_str()))
            .find_map(|fields| fields.first().copied());
        name.map_or_else(|| format!("uid {number}"), ToOwned::to_owned)
    })
}

/// A label is one line of a table.
const MOST_LETTERS: usize = 200;
