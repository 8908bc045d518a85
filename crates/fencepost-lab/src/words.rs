//! What a cell says, in sentences and in a few letters.

use std::time::Duration;

use crate::report::{Cell, Verdict};

/// A few letters for a matrix.
pub(crate) fn short(cell: &Cell) -> String {
    match cell.verdict() {
        Verdict::Vacuous => "-".to_owned(),
        Verdict::Broken => "BROKEN".to_owned(),
        Verdict::Weak => weak(cell),
        Verdict::Clean if cell.tally.stale_refused > 0 => format!("{} refused", cell.tally.stale_refused),
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
    let tally = &cell.tally;
    let mut parts = Vec::new();
    let counts = [
        (
            tally.overlaps,
            "time two believed at once that they hold the lock",
            "times two believed at once that they hold the lock",
        ),
        (tally.stale_accepted, "stale write accepted", "stale writes accepted"),
        (tally.stale_refused, "stale write refused", "stale writes refused"),
        (tally.lost_updates, "update lost", "updates lost"),
        (tally.duplicates, "event processed twice", "events processed twice"),
    ];
    for (count, one, several) in counts {
        if count > 0 {
            parts.push(format!("{count} {}", if count == 1 { one } else { several }));
        }
    }
    parts.push(total(cell));
    parts.extend(cell.recovery().map(|time| format!("next holder after {}", shown(time))));
    parts.join(", ")
}

fn total(cell: &Cell) -> String {
    let tally = &cell.tally;
    if tally.total_is_correct() {
        return "total right".to_owned();
    }
    format!("total wrong: {} additions were confirmed, and it says {}", tally.acknowledged, tally.total)
}

/// A time in a few letters.
pub(crate) fn shown(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_millis());
    }
    format!("{:.1} s", time.as_secs_f64())
}
