//! The terminal while a question is on it: every key at once, a screen of its own, and signals that cannot leave it so.
//!
//! Invariant: when a `Screen` is dropped, the terminal is as it was; and so it is while the process is stopped, and when it ends by
//! a panic. A signal that ends or stops the process is taken here first.

use std::fmt::Write;
use std::sync::Mutex;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::keys::{ESCAPE, Key, taken};
use super::page::{Line, Look};
use crate::child::{stop_this_job, stop_this_process};
use crate::printer::Printer;

/// The terminal, given up again when this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    signals: SignalFd,
    blocked_before: SigSet,
    printer: Printer,
    bytes: Vec<u8>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Pressed(Key),
    Resized,
    /// This signal wants the end of the process.
    Signalled(i32),
    /// The terminal is gone.
    HungUp,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open(printer: Printer) -> std::io::Result<Self> {
        let signals: SigSet = SIGNALS.into_iter().collect();
        let blocked_before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let screen = Self { signals, blocked_before, printer, bytes: Vec::new() };
        screen.take()?;
        Ok(screen)
    }

    fn take(&self) -> std::io::Result<()> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        *BEFORE.lock().expect("nobody panics while holding it") = Some(before);
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &raw)?;
        self.printer.show(ENTER);
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
    pub(super) fn size() -> (usize, usize) {
        let size = tcgetwinsize(rustix::stdio::stderr());
        match size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row))) {
            Ok((columns @ 1.., rows @ 1..)) => (columns, rows),
            _ => (80, 24),
        }
    }

    /// Shows `lines` in place of what is there.
    pub(super) fn draw(&self, lines: &[Line]) {
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
        self.printer.show(&(text + "\u{1b}[J"));
    }

    /// Waits for what happens next.
    pub(super) fn next(&mut self) -> std::io::Result<Event> {
        loop {
            if let Some(key) = self.key() {
                return match key {
                    Key::Stop => self.stopped(|| stop_this_job(libc::SIGTSTP)),
                    key => Ok(Event::Pressed(key)),
                };
            }
            match self.await_input()? {
                (_, Some(libc::SIGTSTP)) => return self.stopped(stop_this_process),
                (_, Some(signal)) => return Ok(signalled(signal)),
                (true, None) => {
                    if !self.fill()? {
                        return Ok(Event::HungUp);
                    }
                }
                // An escape that nothing follows is the key.
                (false, None) => {
                    self.bytes.clear();
                    return Ok(Event::Pressed(Key::End));
                }
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

    /// Whether there is input, and a signal if one came; neither where an escape is followed by nothing.
    fn await_input(&self) -> std::io::Result<(bool, Option<i32>)> {
        let stdin = rustix::stdio::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        let patience = (self.bytes.first() == Some(&ESCAPE)).then_some(&FOLLOWED_WITHIN);
        match poll(&mut ready, patience) {
            Err(Errno::INTR) => return Ok((true, Some(Signal::SIGWINCH as i32))),
            other => other?,
        };
        let has_input = !ready[0].revents().is_empty();
        let signal = self.signals.read_signal().ok().flatten();
        Ok((has_input, signal.and_then(|signal| i32::try_from(signal.ssi_signo).ok())))
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

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        let _ = self.blocked_before.thread_set_mask();
    }
}

/// Gives the terminal back, if a screen has it: also where nothing is dropped any more, as in a panic.
pub(in crate::commands) fn give_back() {
    // Who panics while holding it has not taken the terminal yet.
    let Some(before) = BEFORE.try_lock().ok().and_then(|mut before| before.take()) else { return };
    let _ = std::io::Write::write_all(&mut std::io::stderr(), LEAVE.as_bytes());
    let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &before);
}

fn signalled(signal: i32) -> Event {
    if signal == Signal::SIGWINCH as i32 { Event::Resized } else { Event::Signalled(signal) }
}

/// How the terminal was before a screen had it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

const SIGNALS: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP, Signal::SIGWINCH];

/// The bytes of one key come at once; over a slow connection nearly so.
const FOLLOWED_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A second screen of the terminal, without a cursor, so that the first one stays as it was.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
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
            let _screen = Screen::open(Printer::plain()).unwrap();
            assert!(!tcgetattr(rustix::stdio::stdin()).unwrap().local_modes.contains(LocalModes::ECHO));
            panic!("with a question on the screen");
        }
        let (mut master, slave) = pty_process::blocking::open().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).arg(std::env::current_exe().unwrap());
        shell.args([
            "--exact",
            "commands::advise::screen::tests::panic_gives_the_terminal_back",
            "--nocapture",
        ]);
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
