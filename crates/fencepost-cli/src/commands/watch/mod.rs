//! `fencepost watch`: what becomes of locks, as it happens: on a screen of its own, in lines, or as JSON.
//!
//! Invariant: a store that cannot be reached ends the watch at its start alone; later it is told, and the watch goes on.

mod board;
mod lines;
mod live;
mod words;

use std::io::IsTerminal;

use fencepost::{Change, Clock, Error, ErrorKind, LockName, Result, Watch, block_on, until};
use futures_util::stream::{self, BoxStream, StreamExt};

use super::patience::UNREACHABLE_FOR;
use super::place::{Place, fail};
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;
use crate::screen::is_dumb;

/// What one of the backends has told.
#[derive(Debug)]
struct News {
    /// Which of the places it is of.
    place: usize,
    told: Result<Vec<Change>>,
}

/// All that is told, by whichever backend.
type AllNews = BoxStream<'static, News>;

/// Tells what becomes of the locks of the backend in use, or of every backend of the configuration.
pub(crate) fn watch(global: &Global, args: &args::Watch, printer: Printer) -> Exit {
    let places = match Place::all(global, printer) {
        Ok(places) if places.is_empty() => {
            printer.error("the configuration names no backend");
            return Exit::CONFIG;
        }
        Ok(places) => places,
        Err(exit) => return exit,
    };
    for place in &places {
        place.note_missing_directory(printer);
    }
    if !global.json && can_show() {
        // What remains of a lease is shown, so a renewal is news.
        let begun = begin(&places, &args.prefix, Watch::with_renewals, |_| {});
        return live::show(&places, &args.prefix, begun, printer);
    }
    let trying_again = |error: &Error| printer.note(format_args!("{error}; trying again"));
    match block_on(begin(&places, &args.prefix, |watch| watch, trying_again)) {
        Ok((first, news)) => lines::print(global.json, &places, first, news, printer),
        Err(error) => fail(&error, printer),
    }
}

/// A view needs a terminal that can be written over, and somebody there who can end it.
fn can_show() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !is_dumb()
}

fn all_news(places: &[Place], prefix: &str, with: fn(Watch) -> Watch) -> Result<AllNews> {
    let mut all = Vec::new();
    for (place, one) in places.iter().enumerate() {
        let watch = with(one.connect()?.watch(prefix));
        let news = stream::unfold(watch, move |mut watch| async move {
            let told = watch.next().await;
            Some((News { place, told }, watch))
        });
        all.push(news.boxed());
    }
    Ok(stream::select_all(all).boxed())
}

/// Waits until each backend has told something and one of them could be reached; for a while only.
///
/// # Errors
/// When none of them can be reached, or one refuses.
async fn begin(
    places: &[Place],
    prefix: &str,
    with: fn(Watch) -> Watch,
    trying_again: impl Fn(&Error),
) -> Result<(Vec<News>, AllNews)> {
    let mut news = all_news(places, prefix, with)?;
    let clock = Clock::system();
    clock.start()?;
    let give_up_at = Some(clock.now().after(UNREACHABLE_FOR));
    let mut first: Vec<News> = Vec::new();
    let mut failed = None;
    loop {
        let is_reached = first.iter().any(|news| news.told.is_ok());
        if is_reached && (0..places.len()).all(|place| first.iter().any(|news| news.place == place)) {
            return Ok((first, news));
        }
        let Some(next) = until(&clock, give_up_at, news.next()).await.flatten() else {
            return if is_reached { Ok((first, news)) } else { Err(failed.unwrap_or_else(unanswered)) };
        };
        if let Err(error) = &next.told {
            if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) {
                return Err(error.clone());
            }
            trying_again(error);
            failed = Some(error.clone());
        }
        first.push(next);
    }
}

fn unanswered() -> Error {
    let what = format!("no answer for {} seconds", UNREACHABLE_FOR.as_secs());
    Error::new(ErrorKind::Unavailable, "look at the locks", what)
}

/// What a line names: the lock, and its backend where there are several.
fn name_of(lock: &LockName, place: usize, places: &[Place]) -> String {
    if places.len() > 1 { format!("{lock} at {}", places[place].url) } else { lock.to_string() }
}
