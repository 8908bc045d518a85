//! The terminal while a question or a live view is on it: every key at once, a screen of its own, and signals that cannot leave it so.
//!
//! Invariant: when a `Screen` is dropped, the terminal is as it was; and so it is while the process is stopped, and when it ends by
//! a panic. A signal that ends or stops the process is taken here first.

mod keys;

use std::fmt::Write;
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::child::{Bell, stop_this_job, stop_this_process};
use crate::printer::{Printer, Stream};

pub(crate) use keys::Key;
use keys::{ESCAPE, taken};

/// The terminal, given up again when this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    signals: SignalFd,
    blocked_before: SigSet,
    printer: Printer,
    stream: Stream,
    bytes: Vec<u8>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Pressed(Key),
    Resized,
    /// This signal wants the end of the process.
    Signalled(i32),
    /// The terminal is gone.
    HungUp,
    /// Somebody rang, or it took too long.
    Rung,
}

/// How a line is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Strong,
    Faint,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) look: Look,
}

impl Line {
    /// An empty one.
    pub(crate) fn blank() -> Self {
        Self { text: String::new(), look: Look::Plain }
    }
}

impl Screen {
    /// Takes the terminal that `stream` and the standard input are.
    pub(crate) fn open(stream: Stream, printer: Printer) -> std::io::Result<Self> {
        let signals: SigSet = SIGNALS.into_iter().collect();
        let blocked_before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let screen = Self { signals, blocked_before, printer, stream, bytes: Vec::new() };
        screen.take()?;
        Ok(screen)
    }

    fn take(&self) -> std::io::Result<()> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        *BEFORE.lock().expect("nobody panics while holding it") = Some((before, self.stream));
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &raw)?;
        self.printer.show_on(self.stream, ENTER);
        Ok(())
    }

    /// Stops by `stop`, and has the terminal again when the shell continues this process.
    fn stopped(&self, stop: impl Fn()) -> std::io::Result<Event> {
        give_back();
        stop();
        self.take()?;
        Ok(Event::Resized)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(self.stream.fd());
        match size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row))) {
            Ok((columns @ 1.., rows @ 1..)) => (columns, rows),
            _ => (80, 24),
        }
    }

    /// Shows `lines` in place of what is there.
    pub(crate) fn draw(&self, lines: &[Line]) {
        let mut text = String::from(HOME);
        for (index, line) in lines.iter().enumerate() {
            let look = match line.look {
                _ if !self.printer.is_colored() => "",
                Look::Plain => "",
                Look::Strong => "\u{1b}[1m",
                Look::Faint => "\u{1b}[2m",
            };
            let end = if look.is_empty() { "" } else { "\u{1b}[0m" };
            // A line is cleared before it is written: behind a full one the cursor still stands on its last letter. And a line end
            // after the last line of a full screen would scroll it.
            let next = if index + 1 < lines.len() { "\n" } else { "" };
            let _ = write!(text, "\u{1b}[2K{look}{}{end}{next}", line.text);
        }
        self.printer.show_on(self.stream, &(text + "\u{1b}[J"));
    }

    /// Waits for what happens next.
    pub(crate) fn next(&mut self) -> std::io::Result<Event> {
        self.next_or(None, None)
    }

    /// The same, until the bell is rung or `most` is over.
    pub(crate) fn next_or(&mut self, bell: Option<&Bell>, most: Option<Duration>) -> std::io::Result<Event> {
        loop {
            if let Some(key) = self.key() {
                return match key {
                    Key::Stop => self.stopped(|| stop_this_job(libc::SIGTSTP)),
                    key => Ok(Event::Pressed(key)),
                };
            }
            match self.await_news(bell, most)? {
                News::Signal(libc::SIGTSTP) => return self.stopped(stop_this_process),
                News::Signal(signal) => return Ok(signalled(signal)),
                News::Input => {
                    if !self.fill()? {
                        return Ok(Event::HungUp);
                    }
                }
                // An escape that nothing follows is the key.
                News::Nothing if self.is_in_doubt() => {
                    self.bytes.clear();
                    return Ok(Event::Pressed(Key::End));
                }
                News::Rung | News::Nothing => return Ok(Event::Rung),
            }
        }
    }

    /// The next key that was pressed already. What follows it stays for the next time.
    fn key(&mut self) -> Option<Key> {
        while !self.bytes.is_empty() {
            let mut first = vec![self.bytes[0]];
            let mut length = 1;
            let mut keys = taken(&mut first);
            while !first.is_empty() {
                first.push(*self.bytes.get(length)?);
                length += 1;
                keys = taken(&mut first);
            }
            self.bytes.drain(..length);
            if let Some(key) = keys.first() {
                return Some(*key);
            }
        }
        None
    }

    /// Whether it depends on what follows which key was pressed.
    fn is_in_doubt(&self) -> bool {
        self.bytes.first() == Some(&ESCAPE)
    }

    /// Waits for one of them, or until the time is over.
    fn await_news(&self, bell: Option<&Bell>, most: Option<Duration>) -> std::io::Result<News> {
        let stdin = rustix::stdio::stdin();
        let mut ready = vec![PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        ready.extend(bell.map(|bell| PollFd::new(bell, PollFlags::IN)));
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        let patience = if self.is_in_doubt() { Some(FOLLOWED_WITHIN) } else { most };
        match poll(&mut ready, patience.as_ref()) {
            Err(Errno::INTR) => return Ok(News::Signal(Signal::SIGWINCH as i32)),
            other => other?,
        };
        let has_input = !ready[0].revents().is_empty();
        let signal = self.signals.read_signal().ok().flatten();
        Ok(match signal.and_then(|signal| i32::try_from(signal.ssi_signo).ok()) {
            Some(signal) => News::Signal(signal),
            None if has_input => News::Input,
            None if bell.is_some_and(Bell::has_rung) => News::Rung,
            None => News::Nothing,
        })
    }

    /// Reads what was pressed; whether the terminal is still there.
    fn fill(&mut self) -> std::io::Result<bool> {
        let mut bytes = [0; 64];
        match read(rustix::stdio::stdin(), &mut bytes) {
            Ok(0) | Err(Errno::IO) => Ok(false),
            Ok(length) => {
                self.bytes.extend(&bytes[..length]);
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// What ends a sleep.
#[derive(Clone, Copy, Debug)]
enum News {
    Signal(i32),
    Input,
    Rung,
    Nothing,
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        let _ = self.blocked_before.thread_set_mask();
    }
}

/// Whether the terminal cannot move its cursor, so that nothing but lines can be shown.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Gives the terminal back, if a screen has it: also where nothing is dropped any more, as in a panic.
pub(crate) fn give_back() {
    // Who panics while holding it has not taken the terminal yet.
    let taken = BEFORE.try_lock().ok().and_then(|mut before| before.take());
    let Some((before, stream)) = taken else { return };
    stream.write(LEAVE);
    let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &before);
}

fn signalled(signal: i32) -> Event {
    if signal == Signal::SIGWINCH as i32 { Event::Resized } else { Event::Signalled(signal) }
}

/// How the terminal was before a screen had it, and what is shown on it.
static BEFORE: Mutex<Option<(Termios, Stream)>> = Mutex::new(None);

const SIGNALS: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP, Signal::SIGWINCH];

/// The bytes of one key come at once; over a slow connection nearly so.
const FOLLOWED_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A second screen of the terminal, so that the first one stays as it was: without a cursor, and with lines that end at the edge.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use super::*;

    /// In a terminal of its own: before, and after this test has panicked there with a screen open.
    const SCRIPT: &str = r#"stty -g; "$0" "$@"; echo "exit:$?"; stty -g"#;
    const PANICS: &str = "FENCEPOST_TEST_PANICS";

    #[test]
    fn panic_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            std::panic::set_hook(Box::new(crate::commands::report_bug));
            let _screen = Screen::open(Stream::Stderr, Printer::plain()).unwrap();
            assert!(!tcgetattr(rustix::stdio::stdin()).unwrap().local_modes.contains(LocalModes::ECHO));
            panic!("with a question on the screen");
        }
        let (mut master, slave) = pty_process::blocking::open().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).arg(std::env::current_exe().unwrap());
        shell.args(["--exact", "screen::tests::panic_gives_the_terminal_back", "--nocapture"]);
        shell.env(PANICS, "yes");
        let mut shell = pty_process::blocking::Command::from(shell).spawn(slave).unwrap();
        let mut shown = Vec::new();
        // It ends with an error when nobody has the terminal open any more.
        let _ = master.read_to_end(&mut shown);
        shell.wait().unwrap();
        let shown = String::from_utf8_lossy(&shown);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.first(), lines.last(), "{shown}");
        for part in [LEAVE, "a bug in fencepost", "with a question on the screen", "exit:70"] {
            assert!(shown.contains(part), "{part:?} in {shown:?}");
        }
        assert!(shown.find(LEAVE) < shown.find("a bug in fencepost"), "it is read on the screen that stays");
    }
}
