//! `fencepost history`: the last grants of a lock, where they are kept.

use fencepost::{Ended, FencingToken, LockState, Locks, Logbook, PastGrant, Result, block_on};
use serde::Serialize;

use super::place::{Place, fail};
use super::state::time;
use crate::args::{self, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// Shows the last grants, the newest last.
pub(crate) fn history(global: &Global, args: &args::History, printer: Printer) -> Exit {
    let place = match Place::of(global, std::slice::from_ref(&args.lock), printer) {
        Ok(mut places) => places.remove(0),
        Err(exit) => return exit,
    };
    place.note_missing_directory(printer);
    let look = place.connect().and_then(|locks| block_on(consistent(&locks, args.lock.as_str())));
    let (book, state) = match look {
        Ok(look) => look,
        Err(error) => return fail(&error, printer),
    };
    let view = View::new(&book, &state, place.url.kind());
    if global.json {
        printer.data(&serde_json::to_string(&view).expect("a history is plain data"));
    } else {
        view.lines().iter().for_each(|line| printer.data(line));
    }
    let is_asked_for = place.choice.is_some_and(|choice| choice.rule.history > 0);
    if book.grants.is_empty() && !is_asked_for {
        printer.note(format_args!("no rule asks for the grants of {} to be kept", args.lock));
        printer.hint("`history = true` in the rule of the lock keeps them from then on");
    } else if book.grants.is_empty() {
        printer.note(format_args!("{} has not been granted since its rule asks for a history", args.lock));
    }
    Exit::OK
}

/// How often it is looked again where the lock changes hands meanwhile.
const MOST_TRIES: usize = 5;

/// What stands in the logbook, and who holds the lock while it stands there.
async fn consistent(locks: &Locks, name: &str) -> Result<(Logbook, LockState)> {
    let mut book = locks.logbook(name).await?;
    let mut tries = 0;
    loop {
        let state = locks.inspect(name).await?;
        let after = locks.logbook(name).await?;
        tries += 1;
        if after == book || tries == MOST_TRIES {
            return Ok((after, state));
        }
        book = after;
    }
}

/// The JSON form. What is unknown is null, never absent.
#[derive(Debug, Serialize)]
struct View {
    lock: String,
    backend: &'static str,
    /// The last slot of `--once-per` that counts as done.
    last_slot: Option<String>,
    grants: Vec<GrantView>,
}

#[derive(Debug, Serialize)]
struct GrantView {
    token: FencingToken,
    holder: String,
    label: String,
    from: String,
    to: Option<String>,
    ended: Option<Ended>,
    held: bool,
}

impl View {
    fn new(book: &Logbook, state: &LockState, backend: &'static str) -> Self {
        let grant = |grant: &PastGrant| GrantView {
            token: grant.token,
            holder: grant.holder.to_string(),
            label: grant.label.clone(),
            from: time(grant.from_micros),
            to: grant.to_micros.map(time),
            ended: grant.ended,
            held: grant.ended.is_none() && state.holder == Some(grant.holder),
        };
        let grants = book.grants.iter().map(grant).collect();
        Self { lock: state.name.to_string(), backend, last_slot: book.last_period.clone(), grants }
    }

    fn lines(&self) -> Vec<String> {
        let mut rows = vec![["TOKEN", "FROM", "TO", "ENDED", "HOLDER"].map(ToOwned::to_owned)];
        rows.extend(self.grants.iter().map(GrantView::row));
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let [w0, w1, w2, w3]: [usize; 4] = std::array::from_fn(width);
        let line = |[token, from, to, ended, holder]: &[String; 5]| {
            format!("{token:>w0$}  {from:w1$}  {to:w2$}  {ended:w3$}  {holder}")
        };
        let mut lines: Vec<String> =
            if self.grants.is_empty() { Vec::new() } else { rows.iter().map(line).collect() };
        lines.extend(
            self.last_slot.iter().map(|slot| format!("done: {slot}, and every slot that is not after it")),
        );
        lines
    }
}

impl GrantView {
    fn row(&self) -> [String; 5] {
        let ended = match self.ended {
            Some(Ended::Completed) => "completed",
            Some(_) => "released",
            None if self.held => "held",
            None => "not given back: lost, revoked or crashed",
        };
        let to = self.to.clone().unwrap_or_else(|| "-".to_owned());
        [self.token.to_string(), self.from.clone(), to, ended.to_owned(), self.label.clone()]
    }
}
