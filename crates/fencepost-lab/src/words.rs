//! What a cell says: in a few letters, in a line, and told as what happened.

use std::time::Duration;

use crate::fault::Fault;
use crate::history::{History, Step};
use crate::pattern::Kind;
use crate::report::{Cell, Verdict};
use crate::strike::Effect;
use crate::traces::{Fate, Traces};

/// A few letters for a matrix.
pub(crate) fn short(cell: &Cell) -> String {
    match cell.verdict() {
        Verdict::Vacuous => "-".to_owned(),
        Verdict::Broken => "BROKEN".to_owned(),
        Verdict::Weak => weak(cell),
        Verdict::Clean if cell.tally.stale_refused > 0 => "refused".to_owned(),
        Verdict::Clean => "ok".to_owned(),
    }
}

fn weak(cell: &Cell) -> String {
    let tally = &cell.tally;
    let counts = [(tally.stale_accepted, "stale"), (tally.lost_updates, "lost"), (tally.overlaps, "both")];
    let found = counts.into_iter().find(|(count, _)| *count > 0);
    found.map_or_else(|| "wrong".to_owned(), |(count, word)| format!("{count} {word}"))
}

/// One line: what got through and what was refused.
pub fn summary(cell: &Cell) -> String {
    if let Some(why) = &cell.vacuous {
        return format!("says nothing: {why}");
    }
    let mut parts: Vec<String> = counted(cell).collect();
    parts.push(total(cell));
    parts.extend(cell.recovery().map(|time| format!("next holder after {}", shown(time))));
    parts.join(", ")
}

fn counted(cell: &Cell) -> impl Iterator<Item = String> {
    let tally = &cell.tally;
    let counts = [
        (tally.overlaps, "overlap", "overlaps"),
        (tally.stale_accepted, "stale write accepted", "stale writes accepted"),
        (tally.stale_refused, "stale write refused", "stale writes refused"),
        (tally.lost_updates, "update lost", "updates lost"),
        (tally.duplicates, "event processed twice", "events processed twice"),
    ];
    let found = counts.into_iter().filter(|(count, ..)| *count > 0);
    found.map(|(count, one, several)| format!("{count} {}", if count == 1 { one } else { several }))
}

fn total(cell: &Cell) -> String {
    let tally = &cell.tally;
    if tally.total_is_correct() {
        return "total right".to_owned();
    }
    format!("total wrong ({} additions were confirmed, it says {})", tally.acknowledged, tally.total)
}

/// What happened, in sentences.
pub(crate) fn told(cell: &Cell) -> Vec<String> {
    let traces = Traces::of(cell);
    let mut sentences: Vec<String> =
        cell.effects.iter().flat_map(|effect| told_of(effect, &cell.history, &traces)).collect();
    if cell.fault == Fault::None && cell.has_run() {
        sentences.push(calm(cell));
    }
    sentences.extend(cell.broken.iter().map(|what| format!("This must not be: {what}.")));
    match &cell.vacuous {
        Some(why) => sentences.push(format!("The cell says nothing: {why}.")),
        None => sentences.push(sum(cell)),
    }
    sentences
}

fn calm(cell: &Cell) -> String {
    if cell.tally.overlaps == 0 {
        return format!("Nothing went wrong: {} holds, one after the other.", cell.tally.grants);
    }
    let times = cell.tally.overlaps;
    let together = shown(cell.tally.overlap);
    if cell.pattern.kind == Kind::None {
        return format!("Without a lock two were at work at once {times} times, for {together} together.");
    }
    format!("Two believed at once that they hold the lock, {times} times, for {together} together.")
}

fn told_of(effect: &Effect, history: &History, traces: &Traces) -> Vec<String> {
    if let Some(why) = &effect.failed {
        return vec![format!("The fault could not strike: {why}.")];
    }
    let token = traces.label_of((effect.worker, effect.hold));
    let name = format!("worker {}", effect.worker + 1);
    let with = token.map_or(String::new(), |token| format!(" with {token}"));
    let mut sentences = vec![format!("{} ({name}{with}).", capitalized(&effect.what))];
    sentences.push(handover(effect, history, traces));
    sentences.push(fate(effect, &name, traces));
    sentences
}

fn handover(effect: &Effect, history: &History, traces: &Traces) -> String {
    let is_next = |worker: usize, at: u64| worker != effect.worker && at >= effect.from && at <= effect.until;
    let mut claims = history.records.iter().filter(|record| matches!(record.step, Step::Claimed { .. }));
    let next = claims.find(|record| is_next(record.worker, record.at));
    let Some(next) = next.filter(|_| effect.is_handed_over) else {
        return "Nobody else got the lock while that lasted.".to_owned();
    };
    let (after, next_worker) = (shown(Duration::from_nanos(next.at - effect.from)), next.worker + 1);
    match traces.label_of(next.key()) {
        Some(token) => format!("After {after} worker {next_worker} had the lock with {token}, and wrote."),
        None => format!("After {after} worker {next_worker} began as well, and wrote."),
    }
}

fn fate(effect: &Effect, name: &str, traces: &Traces) -> String {
    let gone = if effect.is_killed { ", which was still under way," } else { "" };
    match traces.fate_of((effect.worker, effect.hold)) {
        Some(Fate::Stale | Fate::Losing) => format!(
            "Then the write of {name}{gone} arrived, was accepted, and wiped out what had been written since."
        ),
        Some(Fate::Refused) => format!("Then the write of {name}{gone} arrived, and the fence refused it."),
        Some(Fate::Accepted) => {
            format!("The write of {name} was accepted, and nothing had been written since.")
        }
        Some(Fate::Unknown) => format!("What became of the write of {name} is not known."),
        None if effect.is_killed => {
            format!("{} had sent nothing that could still arrive.", capitalized(name))
        }
        None => format!("{} looked at its lease before it wrote, and wrote nothing.", capitalized(name)),
    }
}

pub(crate) fn sum(cell: &Cell) -> String {
    let tally = &cell.tally;
    let twice = match tally.duplicates {
        0 => String::new(),
        1 => ", and 1 event was processed twice".to_owned(),
        count => format!(", and {count} events were processed twice"),
    };
    if !tally.total_is_correct() {
        let (confirmed, total) = (tally.acknowledged, tally.total);
        return format!(
            "The total is wrong: {confirmed} additions were confirmed, and it says {total}{twice}."
        );
    }
    format!("The total is right: {}{twice}.", tally.total)
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A time in a few letters.
pub(crate) fn shown(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_millis());
    }
    format!("{:.1} s", time.as_secs_f64())
}
