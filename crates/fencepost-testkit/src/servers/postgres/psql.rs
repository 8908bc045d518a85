//! SQL from a test, past the client library: `psql` asks, and a session of it stays open as long as it is needed.
//!
//! Nothing here waits without a limit for a session's answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::programs::program;

/// What a server answers on a new connection: rows as lines, fields separated by `|`.
///
/// The connection is a URL or what libpq takes for one. Several statements are one transaction.
///
/// # Errors
/// What `psql` says about the connection or about the SQL.
///
/// # Panics
/// When `psql` is not installed.
pub fn psql(connection: &str, sql: &str) -> Result<String, String> {
    let output = command(connection).args(["--command", sql]).stdin(Stdio::null()).output();
    let output = output.expect("what is installed can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// One session, open until this is dropped.
#[derive(Debug)]
pub struct PostgresClient {
    process: Child,
    input: ChildStdin,
    answers: Receiver<String>,
    complaints: Receiver<String>,
}

impl PostgresClient {
    /// Opens a session on a URL, or on what libpq takes for one.
    ///
    /// # Errors
    /// What `psql` says about the connection.
    ///
    /// # Panics
    /// When `psql` is not installed.
    pub fn connect(connection: &str) -> Result<Self, String> {
        let mut command = command(connection);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("what is installed can be started");
        let (input, output, errors) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let mut client = Self {
            input: input.expect(PIPED),
            answers: lines_of(output.expect(PIPED)),
            complaints: lines_of(errors.expect(PIPED)),
            process,
        };
        client.query("SELECT 1")?;
        Ok(client)
    }

    /// Runs SQL and gives the rows as lines, the fields separated by `|`.
    ///
    /// # Errors
    /// The SQLSTATE and the message, or what `psql` said when the session ended.
    ///
    /// # Panics
    /// When no answer comes in half a minute.
    pub fn query(&mut self, sql: &str) -> Result<String, String> {
        self.send(sql);
        self.receive()
    }

    /// Sends SQL whose answer is [received](Self::receive) later.
    pub fn send(&mut self, sql: &str) {
        // The reader of a session that has ended is told when it receives.
        drop(write!(self.input, "{sql}\n;\n{REPORT}"));
    }

    /// Receives the answer to what was sent.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Panics
    /// When no answer comes in half a minute.
    pub fn receive(&mut self) -> Result<String, String> {
        let mut lines = Vec::new();
        loop {
            match self.answers.recv_timeout(LONGEST_ANSWER) {
                Ok(line) if line == DONE => return Ok(lines.join("\n")),
                Ok(line) if line == FAILED => return Err(lines.join("\n")),
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.last_words()),
                Err(RecvTimeoutError::Timeout) => panic!("within {LONGEST_ANSWER:?} no answer came"),
            }
        }
    }

    fn last_words(&self) -> String {
        self.complaints.iter().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for PostgresClient {
    fn drop(&mut self) {
        // A session that has ended already cannot be killed, and is waited for all the same.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn command(connection: &str) -> Command {
    let mut command = Command::new(program("psql"));
    command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--no-password"]);
    command.args(["--dbname", connection]);
    // What somebody has set for libpq, in variables or at home, is not meant for tests.
    command.env_clear().env("HOME", "/");
    command
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

const PIPED: &str = "the session was started with pipes";
/// Has `psql` say how the SQL before it went.
const REPORT: &str = "\
\\if :ERROR
\\echo :SQLSTATE :LAST_ERROR_MESSAGE
\\echo fencepost: failed
\\else
\\echo fencepost: done
\\endif
";
const DONE: &str = "fencepost: done";
const FAILED: &str = "fencepost: failed";
/// Longer than any answer takes on a busy machine.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);
