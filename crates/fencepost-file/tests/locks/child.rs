//! Other processes: this program again, told by a variable what to do in which directory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use super::LIMIT;

/// What a child is told to do, and where.
const TASK: &str = "FENCEPOST_TEST_TASK";
const DIRECTORY: &str = "FENCEPOST_TEST_DIRECTORY";

/// What a child says comes after this, so that what the harness prints is passed over.
const SAYS: &str = "child: ";

/// Another process, which is killed when this is dropped.
pub(super) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub(super) fn start(task: &str, directory: &Path) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), task, directory)
    }

    /// One that can write no file longer than that, in units of 512 bytes, and is told so instead of being ended.
    pub(super) fn with_small_files(blocks: u32, task: &str, directory: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\""));
        shell.arg(std::env::current_exe().unwrap());
        Self::of(shell, task, directory)
    }

    fn of(mut command: Command, task: &str, directory: &Path) -> Self {
        command.args(["child::task", "--exact", "--ignored", "--nocapture"]);
        command.env(TASK, task).env(DIRECTORY, directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once(SAYS) {
                    drop(sender.send(said.to_owned()));
                }
            }
        });
        Self { child, lines }
    }

    /// The next thing that it says.
    #[track_caller]
    pub(super) fn says(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("the child says something")
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(super) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

#[expect(clippy::print_stdout, reason = "it is read by the test that has started the child")]
pub(super) fn say(what: &str) {
    println!("{SAYS}{what}");
}

/// Until the test kills this process, or ends itself.
pub(super) fn wait_for_the_end() {
    drop(std::io::stdin().read_line(&mut String::new()));
}

#[test]
#[ignore = "what a child process of another test does"]
fn task() {
    let (Ok(task), Some(directory)) = (std::env::var(TASK), std::env::var_os(DIRECTORY)) else { return };
    let directory = PathBuf::from(directory);
    match task.as_str() {
        "write logbooks" => super::logbook::write_for_ever(&directory),
        "write a long logbook" => super::logbook::write_a_long_one(&directory),
        "hold until lost" => super::revoke::hold_until_lost(&directory),
        other => panic!("no child does {other:?}"),
    }
}
