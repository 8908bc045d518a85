//! One line for each change, in words or as JSON, for files and pipes.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fencepost::{Change, ChangeKind, Clock, LockState, Result};
use futures_util::stream::StreamExt;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use serde_json::{Value, json};

use super::words::sentence;
use super::{AllNews, News, name_of};
use crate::child::Bell;
use crate::commands::place::Place;
use crate::commands::state::{StateView, time};
use crate::exit::Exit;
use crate::printer::{Printer, Stream};

/// The JSON form of a change: that of a state, and what has changed when.
#[derive(Serialize)]
struct ChangeView {
    at: String,
    change: ChangeKind,
    #[serde(flatten)]
    state: StateView,
    /// Why the backend cannot be reached; for the lines that say so.
    error: Option<String>,
}

/// Prints what is told until nobody reads it any more.
pub(super) fn print(
    is_json: bool,
    places: &[Place],
    first: Vec<News>,
    news: AllNews,
    printer: Printer,
) -> Exit {
    let mut teller = Teller { is_json, places, is_away: vec![false; places.len()], printer };
    match teller.tell_all(first, news) {
        // Whoever reads no further has what they want.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::OK,
        Err(error) => {
            printer.error(format_args!("the changes cannot be written: {error}"));
            Exit::UNAVAILABLE
        }
        Ok(()) => Exit::OK,
    }
}

struct Teller<'a> {
    is_json: bool,
    places: &'a [Place],
    is_away: Vec<bool>,
    printer: Printer,
}

impl Teller<'_> {
    /// Ends when nobody reads any more.
    fn tell_all(&mut self, first: Vec<News>, mut news: AllNews) -> io::Result<()> {
        for news in first {
            self.tell(news)?;
        }
        let bell = Arc::new(Bell::new()?);
        let waker = Waker::from(Arc::clone(&bell));
        loop {
            while let Poll::Ready(Some(news)) = news.poll_next_unpin(&mut Context::from_waker(&waker)) {
                self.tell(news)?;
            }
            if sleep(&bell)? {
                return Ok(());
            }
        }
    }

    fn tell(&mut self, News { place, told }: News) -> io::Result<()> {
        let now = Clock::system().wall_micros();
        let was_away = std::mem::replace(&mut self.is_away[place], told.is_err());
        if told.is_err() || was_away {
            let line = self.outage(now, place, &told);
            self.printer.whole(&line)?;
        }
        for change in told.unwrap_or_default() {
            let line = self.line(place, &change);
            self.printer.whole(&line)?;
        }
        Ok(())
    }

    fn line(&self, place: usize, change: &Change) -> String {
        let at = time(change.at_micros);
        if !self.is_json {
            return format!("{at} {}", sentence(&name_of(&change.state.name, place, self.places), change));
        }
        let state = StateView::new(&change.state, self.places[place].url.kind());
        let view = ChangeView { at, change: change.kind, state, error: None };
        serde_json::to_string(&view).expect("a change is plain data")
    }

    /// That the backend cannot be reached, or can be again.
    fn outage(&self, now: u64, place: usize, told: &Result<Vec<Change>>) -> String {
        let (at, url) = (time(now), &self.places[place].url);
        let error = told.as_ref().err().map(ToString::to_string);
        if !self.is_json {
            return match error {
                Some(error) => format!("{at} {url} cannot be reached: {}", one_line(&error)),
                None => format!("{at} {url} can be reached again"),
            };
        }
        let change = if error.is_some() { "unreachable" } else { "reachable" };
        let mut line = nothing();
        line["at"] = json!(at);
        line["change"] = json!(change);
        line["backend"] = json!(url.kind());
        line["error"] = json!(error);
        line.to_string()
    }
}

/// The line of a change with nothing in it, so that every line has every key.
fn nothing() -> Value {
    let free = LockState::free("x".parse().expect("it is a name"));
    let view = ChangeView {
        at: String::new(),
        change: ChangeKind::Free,
        state: StateView::new(&free, ""),
        error: None,
    };
    let mut line = serde_json::to_value(view).expect("a change is plain data");
    for (_, value) in line.as_object_mut().into_iter().flatten() {
        *value = if value.is_array() { json!([]) } else { Value::Null };
    }
    line
}

fn one_line(text: &str) -> String {
    crate::commands::layout::harmless(text)
}

/// Sleeps until somebody rings; whether nobody reads the output any more.
fn sleep(bell: &Bell) -> io::Result<bool> {
    let stdout = Stream::Stdout.fd();
    // Without anything that is asked for it is told of the end alone.
    let mut ready = [PollFd::new(bell, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
    match poll(&mut ready, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    bell.has_rung();
    Ok(ready[1].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL))
}
