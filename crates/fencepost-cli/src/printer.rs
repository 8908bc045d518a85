//! What is said to the user: data on stdout, talk on stderr.
//!
//! Invariant: nothing here panics, and talk never blocks for long. A closed pipe, a full one or a hung-up terminal must not
//! bring down or hold up a process that guards a command, so talk that cannot be written is dropped.

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use fencepost::Error;
use fencepost_policy::{ConfigError, Finding, Severity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::args::{ColorChoice, Global};

/// Where and how much to talk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    volume: Volume,
    colored: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Volume {
    Quiet,
    Normal,
    Verbose,
}

impl Printer {
    pub(crate) fn new(global: &Global) -> Self {
        let volume = match (global.quiet, global.verbose) {
            (true, _) => Volume::Quiet,
            (_, true) => Volume::Verbose,
            _ => Volume::Normal,
        };
        let colored = match global.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => shows_colors(),
        };
        Self { volume, colored }
    }

    /// Where the command line could not be read.
    pub(crate) fn before_arguments(color: clap::ColorChoice) -> Self {
        let colored = match color {
            clap::ColorChoice::Always => true,
            clap::ColorChoice::Never => false,
            clap::ColorChoice::Auto => shows_colors(),
        };
        Self { volume: Volume::Normal, colored }
    }

    /// Without colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { volume: Volume::Normal, colored: false }
    }

    /// What was found in the configuration, which says itself how bad it is.
    pub(crate) fn finding(self, finding: &Finding) {
        if self.volume > Volume::Quiet || finding.severity() == Severity::Error {
            say(&format!(
                "fencepost: {}\n",
                if self.colored { finding.styled() } else { finding.to_string() }
            ));
        }
    }

    /// Data, on stdout. Where it cannot be written, that is said once, and [`is_data_lost`] from then on.
    pub(crate) fn data(self, text: &str) {
        match self.whole(text) {
            // Whoever has closed it has read enough.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => self.lose(&error),
            _ => {}
        }
    }

    /// Data could not be written.
    pub(crate) fn lose(self, error: &std::io::Error) {
        if !DATA_LOST.swap(true, Ordering::Relaxed) {
            self.error(format_args!("the output cannot be written: {error}"));
        }
    }

    /// Data that is of no use unless all of it arrives.
    #[expect(clippy::unused_self, reason = "everything that is said goes through the printer")]
    pub(crate) fn whole(self, text: &str) -> std::io::Result<()> {
        let mut stdout = std::io::stdout();
        stdout.write_all(format!("{text}\n").as_bytes())?;
        stdout.flush()
    }

    /// Something that the user must know; `-q` does not silence it.
    pub(crate) fn error(self, what: impl std::fmt::Display) {
        self.line("error", 31, what);
    }

    /// An error of the configuration, with the place in the file.
    pub(crate) fn misconfigured(self, error: &ConfigError) {
        if self.colored { self.error(error.styled()) } else { self.error(error) }
    }

    /// An error and what to do about it.
    pub(crate) fn failure(self, error: &Error) {
        match error.kind() {
            fencepost::ErrorKind::Unsupported => self.error(format_args!("{error} (unsupported)")),
            _ => self.error(error),
        }
        match error.advice() {
            Some(advice) => self.hint(advice),
            None if error.kind() == fencepost::ErrorKind::Unsupported => self.hint(UNSUPPORTED),
            None if error.kind() != fencepost::ErrorKind::Unavailable => {}
            None if error.operation() == "connect" => self.hint(UNREACHABLE),
            None => self.hint(UNUSABLE),
        }
    }

    /// A question that the user is to answer with yes or no.
    #[expect(clippy::unused_self, reason = "everything that is said goes through the printer")]
    pub(crate) fn ask(self, what: impl std::fmt::Display) {
        say(&format!("fencepost: {what} [y/N] "));
    }

    /// What a terminal is to show, as it stands.
    #[expect(clippy::unused_self, reason = "everything that is said goes through the printer")]
    pub(crate) fn show(self, text: &str) {
        say(text);
    }

    /// The same on either stream.
    #[expect(clippy::unused_self, reason = "everything that is said goes through the printer")]
    pub(crate) fn show_on(self, stream: Stream, text: &str) {
        stream.write(text);
    }

    /// Whether talk is coloured.
    pub(crate) fn is_colored(self) -> bool {
        self.colored
    }

    /// What to do about the error above.
    pub(crate) fn hint(self, what: impl std::fmt::Display) {
        self.line("hint", 36, what);
    }

    /// Something that looks like a mistake.
    pub(crate) fn warn(self, what: impl std::fmt::Display) {
        if self.volume > Volume::Quiet {
            self.line("warning", 33, what);
        }
    }

    /// What goes on, where it takes long or the user may not expect it.
    pub(crate) fn note(self, what: impl std::fmt::Display) {
        if self.volume > Volume::Quiet {
            say(&format!("fencepost: {what}\n"));
        }
    }

    /// What goes on now, in the line that said what went on before; for a terminal.
    #[cfg(feature = "lab")]
    pub(crate) fn status(self, what: &str) {
        if self.volume > Volume::Quiet {
            let end = if what.is_empty() { "" } else { "fencepost: " };
            say(&format!("\r\u{1b}[K{end}{what}"));
        }
    }

    /// What goes on in detail.
    pub(crate) fn detail(self, what: impl std::fmt::Display) {
        if self.volume == Volume::Verbose {
            say(&format!("fencepost: {what}\n"));
        }
    }

    fn line(self, kind: &str, color: u8, what: impl std::fmt::Display) {
        if self.colored {
            say(&format!("fencepost: \u{1b}[1;{color}m{kind}:\u{1b}[0m {what}\n"));
        } else {
            say(&format!("fencepost: {kind}: {what}\n"));
        }
    }
}

/// What to do about a server that does not answer, and does not say why.
const UNREACHABLE: &str = "see that it runs and that this host can reach it; fencepost explain LOCK --offline tells why it is asked";

/// What to do about a backend that cannot do what was asked for.
const UNSUPPORTED: &str = "fencepost explain LOCK tells what its backend can do; choose another one for it";

/// The same for everything else that cannot be used for now.
const UNUSABLE: &str = "fencepost doctor looks at what is in the way";

/// Whether data of this process could not be written.
static DATA_LOST: AtomicBool = AtomicBool::new(false);

/// Whether data could not be written; somebody who has closed the pipe has lost nothing.
pub(crate) fn is_data_lost() -> bool {
    DATA_LOST.load(Ordering::Relaxed)
}

/// Whether the terminal shows colours and its user wants them.
fn shows_colors() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !plain && !crate::screen::is_dumb() && std::io::stderr().is_terminal()
}

/// How long talk waits for a reader that is behind.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What a pipe takes at once, if it takes anything.
const ONE_WRITE: usize = 4096;

fn say(line: &str) {
    Stream::Stderr.write(line);
}

/// Where something is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) fn fd(self) -> BorrowedFd<'static> {
        match self {
            Self::Stdout => rustix::stdio::stdout(),
            Self::Stderr => rustix::stdio::stderr(),
        }
    }

    /// Writes as much as its reader takes.
    pub(crate) fn write(self, text: &str) {
        for part in text.as_bytes().chunks(ONE_WRITE) {
            let fd = self.fd();
            let mut room = [PollFd::new(&fd, PollFlags::OUT)];
            if poll(&mut room, Some(&PATIENCE)) != Ok(1) || self.write_all(part).is_err() {
                return;
            }
        }
    }

    fn write_all(self, part: &[u8]) -> std::io::Result<()> {
        match self {
            // It keeps what ends no line, and a screen ends with none.
            Self::Stdout => std::io::stdout().write_all(part).and_then(|()| std::io::stdout().flush()),
            Self::Stderr => std::io::stderr().write_all(part),
        }
    }
}
