//! `fence show` and `fence forget`: the marks that a fence keeps.

use fencepost::{FencingToken, LockName, Mark, NamePrefix, Result, block_on};
use serde::Serialize;

use super::Desk;
use crate::args::{FenceForget, FenceShow};
use crate::commands::confirm::confirmed;
use crate::exit::Exit;

/// The mark of one lock, for machines. What does not exist is null.
#[derive(Debug, Serialize)]
struct MarkView<'a> {
    lock: &'a str,
    token: Option<FencingToken>,
    holder: Option<&'a str>,
    fence: &'static str,
}

/// Shows the mark of one lock, or of all; exit 1 when the lock has none.
pub(super) fn show(desk: &Desk, args: &FenceShow) -> Result<Exit> {
    let fence = fencepost::fence(&desk.url)?;
    desk.note_missing_directory();
    let Some(lock) = &args.lock else {
        desk.say_all(&block_on(fence.marks(&NamePrefix::default()))?);
        return Ok(Exit::OK);
    };
    let mark = block_on(fence.mark(lock))?;
    Ok(desk.say_one(lock, mark.as_ref(), ""))
}

/// Removes the mark of a lock, once that is confirmed; exit 1 when it has none.
pub(super) fn forget(desk: &Desk, args: &FenceForget) -> Result<Exit> {
    let (lock, fence) = (&args.lock, fencepost::fence(&desk.url)?);
    desk.note_missing_directory();
    let Some(mark) = block_on(fence.mark(lock))? else { return Ok(desk.say_one(lock, None, "")) };
    let question =
        format!("any former holder of {lock} can then seal and write again; forget {}?", words(&mark));
    if !confirmed(args.yes, &question, desk.printer)? {
        desk.printer.error("not confirmed; nothing was changed");
        return Ok(Exit::USAGE);
    }
    // Another process may have been quicker.
    let forgotten = block_on(fence.forget(lock))?.then_some(&mark);
    Ok(desk.say_one(lock, forgotten, "forgotten: "))
}

impl Desk {
    fn say_one(&self, lock: &LockName, mark: Option<&Mark>, verb: &str) -> Exit {
        match mark {
            _ if self.json => self.say_json(&self.view(lock, mark)),
            Some(mark) => self.printer.data(&format!("{verb}{lock} is sealed with {}", words(mark))),
            None => self.printer.data(&format!("{lock} has no mark")),
        }
        if mark.is_some() { Exit::OK } else { Exit::NO_MARK }
    }

    fn say_all(&self, marks: &[(LockName, Mark)]) {
        if self.json {
            let views: Vec<_> = marks.iter().map(|(lock, mark)| self.view(lock, Some(mark))).collect();
            return self.say_json(&views);
        }
        if marks.is_empty() {
            return self.printer.note("no lock has a mark");
        }
        for line in table(marks) {
            self.printer.data(&line);
        }
    }

    fn view<'a>(&self, lock: &'a LockName, mark: Option<&'a Mark>) -> MarkView<'a> {
        MarkView {
            lock: lock.as_str(),
            token: mark.map(|mark| mark.token),
            holder: mark.map(|mark| mark.holder.as_str()),
            fence: self.url.kind(),
        }
    }
}

fn words(mark: &Mark) -> String {
    match mark.holder.as_str() {
        "" => format!("token {}", mark.token),
        holder => format!("token {} of holder {holder}", mark.token),
    }
}

/// A line for each lock, in columns. The name comes last, since it may be long and contain anything.
fn table(marks: &[(LockName, Mark)]) -> Vec<String> {
    let wide = |texts: &mut dyn Iterator<Item = usize>, heading: &str| texts.fold(heading.len(), usize::max);
    let token = wide(&mut marks.iter().map(|(_, mark)| mark.token.to_string().len()), "TOKEN");
    let holder = wide(&mut marks.iter().map(|(_, mark)| mark.holder.as_str().len()), "HOLDER");
    let line = |of_token: &str, of_holder: &str, lock: &str| {
        format!("{of_token:>token$}  {of_holder:<holder$}  {lock}")
    };
    let heading = line("TOKEN", "HOLDER", "LOCK");
    let rows =
        marks.iter().map(|(lock, mark)| line(&mark.token.to_string(), mark.holder.as_str(), lock.as_str()));
    [heading].into_iter().chain(rows).collect()
}
