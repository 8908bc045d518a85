//! The view on a terminal: what is there now, drawn anew with each change and each second.
//!
//! It has the terminal before anything is connected: a thread that is started sooner would get the signals that are to be taken here.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fencepost::{Clock, Result};
use futures_util::stream::StreamExt;

use super::board::{Board, Instant};
use super::{AllNews, News};
use crate::child::Bell;
use crate::commands::place::{Place, fail};
use crate::exit::Exit;
use crate::printer::{Printer, Stream};
use crate::screen::{Event, Key, Screen};

/// Shows the locks until somebody ends it.
pub(super) fn show(
    places: &[Place],
    prefix: &str,
    begun: impl Future<Output = Result<(Vec<News>, AllNews)>>,
    printer: Printer,
) -> Exit {
    let shown = View::open(places, prefix, printer).and_then(|view| view.shown(begun));
    // The screen is gone by now, and what is said stays.
    match shown {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => fail(&error, printer),
        Err(error) => {
            printer.error(format_args!("the terminal cannot be used: {error}"));
            printer.hint("set TERM=dumb, or pipe it into cat, to have lines instead");
            Exit::BUG
        }
    }
}

struct View<'a> {
    screen: Screen,
    board: Board<'a>,
    bell: Arc<Bell>,
}

impl<'a> View<'a> {
    fn open(places: &'a [Place], prefix: &'a str, printer: Printer) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        Ok(Self { screen: Screen::open(Stream::Stdout, printer)?, board: Board::new(places, prefix), bell })
    }

    fn shown(
        mut self,
        begun: impl Future<Output = Result<(Vec<News>, AllNews)>>,
    ) -> io::Result<Result<Exit>> {
        let waker = Waker::from(Arc::clone(&self.bell));
        let mut context = Context::from_waker(&waker);
        let mut begun = pin!(begun);
        let (first, mut news) = loop {
            match begun.as_mut().poll(&mut context) {
                Poll::Ready(Ok(begun)) => break begun,
                Poll::Ready(Err(error)) => return Ok(Err(error)),
                Poll::Pending => {}
            }
            if let Some(exit) = self.turn()? {
                return Ok(Ok(exit));
            }
        };
        self.board.begin(first, now());
        loop {
            while let Poll::Ready(Some(news)) = news.poll_next_unpin(&mut context) {
                self.board.take_in(news, now());
            }
            if let Some(exit) = self.turn()? {
                return Ok(Ok(exit));
            }
        }
    }

    /// Draws, and waits for what happens next; the exit code, if that is the end.
    fn turn(&mut self) -> io::Result<Option<Exit>> {
        let (columns, rows) = self.screen.size();
        self.screen.draw(&self.board.lines(columns, rows, now()));
        let event = self.screen.next_or(Some(&self.bell), Some(until_the_next_second()))?;
        Ok(match event {
            Event::Pressed(Key::End) => Some(Exit::OK),
            Event::Pressed(Key::Interrupt) => Some(Exit::signalled(libc::SIGINT)),
            Event::Signalled(signal) => Some(Exit::signalled(signal)),
            Event::HungUp => Some(Exit::signalled(libc::SIGHUP)),
            Event::Pressed(_) | Event::Resized | Event::Rung => None,
        })
    }
}

fn now() -> Instant {
    let clock = Clock::system();
    Instant { moment: clock.now(), wall_micros: clock.wall_micros() }
}

/// The time is shown in seconds.
fn until_the_next_second() -> Duration {
    Duration::from_micros(1_000_000 - Clock::system().wall_micros() % 1_000_000)
}
