//! The terminal while a question is on it: every key at once, a screen of its own, and signals that cannot leave it so.
//!
//! Invariant: when a `Screen` is dropped, the terminal is as it was. A signal that ends the process is taken here first.

use std::fmt::Write;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::keys::{ESCAPE, Key, taken};
use super::page::{Line, Look};
use crate::printer::Printer;

/// The terminal, given up again when this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    before: Termios,
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
        let before = tcgetattr(rustix::stdio::stdin())?;
        let signals: SigSet = SIGNALS.into_iter().collect();
        let blocked_before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let screen = Self { before, signals, blocked_before, printer, bytes: Vec::new() };
        let mut raw = screen.before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &raw)?;
        printer.show(ENTER);
        Ok(screen)
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
                return Ok(Event::Pressed(key));
            }
            match self.await_input()? {
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
        self.printer.show(LEAVE);
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before);
        let _ = self.blocked_before.thread_set_mask();
    }
}

fn signalled(signal: i32) -> Event {
    if signal == Signal::SIGWINCH as i32 { Event::Resized } else { Event::Signalled(signal) }
}

const SIGNALS: [Signal; 5] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH];

/// The bytes of one key come at once; over a slow connection nearly so.
const FOLLOWED_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A second screen of the terminal, without a cursor, so that the first one stays as it was.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
