//! What the view shows, as lines for a terminal of any size.
//!
//! Pure, so that sizes and times can be tested without a terminal.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fencepost::{Change, ChangeKind, LockName, LockState, Moment, Status};
use fencepost_advisor::wrapped;

use super::words::{label, sentence, time as length};
use super::{News, name_of};
use crate::commands::layout::harmless;
use crate::commands::place::Place;
use crate::commands::state::time;
use crate::screen::{Line, Look};

/// How long a lock is shown after it came free.
const FREE_SHOWN_FOR: Duration = Duration::from_secs(10);

/// How many changes are kept, and how many are shown at least where there is room for all locks.
const CHANGES: usize = 100;
const CHANGES_SHOWN: usize = 5;

/// How many lines an outage takes at most.
const OUTAGE_LINES: usize = 3;

/// From how many columns on there is a table, and one with a column for the holder.
const TABLE: usize = 64;
const WIDE_TABLE: usize = 110;

/// The columns of the table without that of the names.
const OTHER_COLUMNS: usize = 2 + 13 + 8 + 8 + 18;

/// Now, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) moment: Moment,
    pub(super) wall_micros: u64,
}

/// What is known.
#[derive(Debug)]
pub(super) struct Board<'a> {
    places: &'a [Place],
    prefix: &'a str,
    rows: BTreeMap<(LockName, usize), Row>,
    /// Since when which backend cannot be reached, and why.
    away: BTreeMap<usize, (u64, String)>,
    changes: VecDeque<String>,
    /// The number of the last news that changed something.
    last: u64,
    has_begun: bool,
}

/// One lock.
#[derive(Debug)]
struct Row {
    state: LockState,
    seen_at: Moment,
    /// The number of the news that changed it.
    changed_in: u64,
}

impl<'a> Board<'a> {
    pub(super) fn new(places: &'a [Place], prefix: &'a str) -> Self {
        let (rows, away, changes) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { places, prefix, rows, away, changes, last: 0, has_begun: false }
    }

    /// Takes in what is there at the beginning, which is no change to tell of.
    pub(super) fn begin(&mut self, first: Vec<News>, now: Instant) {
        self.has_begun = true;
        for news in first {
            self.take_in(news, now);
        }
        for row in self.rows.values_mut() {
            row.changed_in = 0;
        }
        self.changes.clear();
        self.last = 0;
    }

    /// Takes in what was told.
    pub(super) fn take_in(&mut self, News { place, told }: News, now: Instant) {
        let url = &self.places[place].url;
        match told {
            Err(error) => {
                self.note(now.wall_micros, &format!("{url} cannot be reached"));
                self.away.insert(place, (now.wall_micros, harmless(&error.to_string())));
            }
            Ok(changes) => {
                if self.away.remove(&place).is_some() {
                    self.note(now.wall_micros, &format!("{url} can be reached again"));
                }
                let is_news = changes.iter().any(|change| change.kind != ChangeKind::Renewed);
                self.last += u64::from(is_news);
                for change in changes {
                    self.change(place, change, now);
                }
            }
        }
    }

    fn change(&mut self, place: usize, change: Change, now: Instant) {
        let key = (change.state.name.clone(), place);
        let mut changed_in = self.last;
        if change.kind == ChangeKind::Renewed {
            changed_in = self.rows.get(&key).map_or(0, |row| row.changed_in);
        } else {
            let said = sentence(&name_of(&change.state.name, place, self.places), &change);
            self.note(change.at_micros, &said);
        }
        self.rows.insert(key, Row { state: change.state, seen_at: now.moment, changed_in });
    }

    fn note(&mut self, at_micros: u64, what: &str) {
        self.changes.push_back(format!("{} {what}", clock_time(at_micros)));
        if self.changes.len() > CHANGES {
            self.changes.pop_front();
        }
    }

    /// The lines, as much of them as fits.
    pub(super) fn lines(&mut self, columns: usize, rows: usize, now: Instant) -> Vec<Line> {
        let is_shown =
            |row: &Row| row.state.status != Status::Free || now.moment.since(row.seen_at) < FREE_SHOWN_FOR;
        self.rows.retain(|_, row| is_shown(row));
        let (columns, rows) = (columns.max(10), rows.max(1));
        let width = self.width(columns);
        let mut lines = self.head(columns, now);
        lines.extend(self.table_head(columns, width));
        let room = rows.saturating_sub(lines.len() + 2);
        let locks: Vec<Vec<Line>> =
            self.each().map(|(name, mark, row)| row.lines(&name, mark, width, columns, now)).collect();
        let changes = self.last_changes(room.saturating_sub(height(&locks)), room, columns);
        lines.extend(fitting(locks, room.saturating_sub(changes.len()), columns));
        // They stand at the bottom, so that they do not jump about.
        lines.resize(rows.saturating_sub(changes.len() + 1).max(lines.len()), Line::blank());
        lines.extend(changes);
        lines.push(line(cut("q: end.  * changed last.", columns), Look::Faint));
        // Of what does not fit the end matters most.
        lines.drain(1..=lines.len().saturating_sub(rows));
        lines.truncate(rows);
        lines
    }

    /// What has changed last, with a head: as much as there is room, and some of it as long as a part of the locks fits too.
    fn last_changes(&self, free: usize, room: usize, columns: usize) -> Vec<Line> {
        let least = if room >= 2 * (CHANGES_SHOWN + 2) { CHANGES_SHOWN } else { 0 };
        let count = self.changes.len().min(free.saturating_sub(2).max(least));
        if count == 0 {
            return Vec::new();
        }
        let mut lines = vec![Line::blank(), line("Last changes".to_owned(), Look::Faint)];
        let shown = self.changes.iter().skip(self.changes.len() - count);
        lines.extend(shown.map(|change| line(cut(change, columns), Look::Plain)));
        lines
    }

    fn head(&self, columns: usize, now: Instant) -> Vec<Line> {
        let taken = self.rows.values().filter(|row| row.state.status != Status::Free).count();
        let what = if self.prefix.is_empty() { "all locks".to_owned() } else { harmless(self.prefix) };
        let count = match taken {
            _ if !self.has_begun => "looking ...".to_owned(),
            0 => "none is held".to_owned(),
            _ => format!("{taken} not free"),
        };
        let (left, right) = (format!("{what}: {count}"), format!("{} UTC", clock_time(now.wall_micros)));
        let gap = columns.saturating_sub(left.chars().count() + right.chars().count());
        let title = if gap == 0 { left } else { format!("{left}{:gap$}{right}", "") };
        let mut lines = vec![line(cut(&title, columns), Look::Strong)];
        for (place, (since, why)) in &self.away {
            let url = &self.places[*place].url;
            let text = format!("! {url} cannot be reached since {}: {why}", clock_time(*since));
            lines.extend(set(&text, 0, columns, Look::Strong).into_iter().take(OUTAGE_LINES));
        }
        lines.push(Line::blank());
        lines
    }

    /// How wide the column of the names is.
    fn width(&self, columns: usize) -> usize {
        let longest = self.each().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let most = if columns >= WIDE_TABLE { columns / 3 } else { columns.saturating_sub(OTHER_COLUMNS) };
        longest.clamp(4, most.max(4))
    }

    fn table_head(&self, columns: usize, width: usize) -> Option<Line> {
        if columns < TABLE || self.rows.is_empty() {
            return None;
        }
        let holder = if columns >= WIDE_TABLE { "HOLDER" } else { "" };
        let head = cells(" ", "LOCK", width, ["STATE", "LEFT", "FOR", "TOKEN"]) + holder;
        Some(line(head.trim_end().to_owned(), Look::Faint))
    }

    /// The name, the mark and the row of each lock.
    fn each(&self) -> impl Iterator<Item = (String, &'static str, &Row)> {
        self.rows.iter().map(|((lock, place), row)| {
            let mark = if row.changed_in == self.last && self.last > 0 { "*" } else { " " };
            (harmless(&name_of(lock, *place, self.places)), mark, row)
        })
    }
}

impl Row {
    fn lines(&self, name: &str, mark: &str, width: usize, columns: usize, now: Instant) -> Vec<Line> {
        let look = if mark == "*" { Look::Strong } else { Look::Plain };
        let holder = self.state.label.as_deref().filter(|_| self.state.readers.is_empty());
        let holder = holder.map(harmless).unwrap_or_default();
        let cells_of = self.cells(now);
        let [status, left, held_for, token] = cells_of.each_ref().map(String::as_str);
        let mut lines = Vec::new();
        let below = if columns >= TABLE {
            let row = cells(mark, name, width, [status, left, held_for, token]);
            let row = if columns >= WIDE_TABLE { row + &holder } else { row };
            lines.push(line(cut(row.trim_end(), columns), look));
            columns < WIDE_TABLE
        } else {
            lines.push(line(cut(&format!("{mark} {name}"), columns), look));
            let parts = [("", left, " left"), ("for ", held_for, ""), ("token ", token, "")];
            let parts = parts.into_iter().filter(|(_, text, _)| !text.is_empty());
            let parts = parts.map(|(before, text, after)| format!(", {before}{text}{after}"));
            let words: String = std::iter::once(status.to_owned()).chain(parts).collect();
            lines.extend(set(&words, 4, columns, look));
            true
        };
        if below && !holder.is_empty() {
            lines.extend(set(&format!("by {holder}"), 4, columns, look));
        }
        lines.extend(self.others(now).iter().map(|other| line(cut(other, columns), Look::Plain)));
        lines
    }

    /// The state, what is left, for how long it is held, and the token.
    fn cells(&self, now: Instant) -> [String; 4] {
        let state = &self.state;
        let status = if state.readers.is_empty() { state.status.to_string() } else { "shared".to_owned() };
        let held_for = state.since_micros.map(|since| now.wall_micros.saturating_sub(since));
        let held_for = held_for.map(|micros| length(Duration::from_micros(micros))).unwrap_or_default();
        let token = state.token.map(|token| token.to_string()).unwrap_or_default();
        [status, self.left(state.remaining, now), held_for, token]
    }

    /// Those who share it and those who wait.
    fn others(&self, now: Instant) -> Vec<String> {
        let readers = self.state.readers.iter().map(|reader| {
            let left = self.left(reader.remaining, now);
            let left = if left.is_empty() { left } else { format!(", {left} left") };
            format!("    shared by {}, token {}{left}", label(reader.label.as_deref()), reader.token)
        });
        let waiters = self.state.waiters.iter();
        let waiters = waiters.map(|waiter| format!("    waits: {}", label(waiter.label.as_deref())));
        readers.chain(waiters).map(|text| harmless(&text)).collect()
    }

    fn left(&self, remaining: Option<Duration>, now: Instant) -> String {
        let left = remaining.map(|left| left.saturating_sub(now.moment.since(self.seen_at)));
        left.map(length).unwrap_or_default()
    }
}

fn cells(mark: &str, name: &str, width: usize, [state, left, held_for, token]: [&str; 4]) -> String {
    let name = cut(name, width);
    format!("{mark} {name:width$}  {state:11}  {left:>6}  {held_for:>6}  {token:16}  ")
}

fn height(locks: &[Vec<Line>]) -> usize {
    locks.iter().map(Vec::len).sum()
}

/// As many locks as fit whole, and how many do not.
fn fitting(locks: Vec<Vec<Line>>, room: usize, columns: usize) -> Vec<Line> {
    if height(&locks) <= room {
        return locks.concat();
    }
    let (mut lines, mut rest) = (Vec::new(), 0);
    for lock in locks {
        if rest == 0 && lines.len() + lock.len() < room {
            lines.extend(lock);
        } else {
            rest += 1;
        }
    }
    lines.push(line(cut(&format!("  ... and {rest} more"), columns), Look::Faint));
    lines
}

fn line(text: String, look: Look) -> Line {
    Line { text, look }
}

fn set(text: &str, indent: usize, columns: usize, look: Look) -> Vec<Line> {
    wrapped(text, indent, columns).lines().map(|text| line(cut(text, columns), look)).collect()
}

/// `text` without what a terminal of so many columns would not show.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(MORE.len())).chain(MORE.chars()).take(columns).collect()
}

/// What stands for the rest of a text.
const MORE: &str = "...";

/// The time of day, UTC.
fn clock_time(micros: u64) -> String {
    time(micros).get(11..19).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
