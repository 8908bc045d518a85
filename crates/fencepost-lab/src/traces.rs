//! What is shown of a history: holds with short names for their tokens, and what became of each write.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{Hold, belated, holds, losing_writes};
use crate::history::History;
use crate::report::Cell;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// It was accepted, as it should be.
    Accepted,
    /// It was accepted although a later holder had written or sealed.
    Stale,
    /// It was accepted, and wiped out another one.
    Losing,
    /// The fence refused it.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// A write, and when it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) worker: usize,
    pub(crate) hold: u32,
    pub(crate) at: u64,
    pub(crate) fate: Fate,
}

/// What is shown of a history.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    pub(crate) holds: Vec<Hold>,
    pub(crate) marks: Vec<Mark>,
    /// The tokens in their order.
    tokens: BTreeSet<u64>,
}

impl Traces {
    pub(crate) fn of(cell: &Cell) -> Self {
        let holds = holds(&cell.history.records);
        let tokens = holds.iter().filter_map(|hold| hold.token).collect();
        let marks = marks(cell, &holds);
        Self { holds, marks, tokens }
    }

    /// The short name of a hold's token: T1 for the smallest.
    pub(crate) fn label_of(&self, key: (usize, u32)) -> Option<String> {
        let token = self.holds.iter().find(|hold| (hold.worker, hold.number) == key)?.token?;
        self.label(token)
    }

    pub(crate) fn label(&self, token: u64) -> Option<String> {
        let place = self.tokens.iter().position(|other| *other == token)?;
        Some(format!("T{}", place + 1))
    }

    /// What became of the write of a hold, if it has sent one.
    pub(crate) fn fate_of(&self, key: (usize, u32)) -> Option<Fate> {
        self.marks.iter().find(|mark| (mark.worker, mark.hold) == key).map(|mark| mark.fate)
    }
}

fn marks(cell: &Cell, holds: &[Hold]) -> Vec<Mark> {
    let answers = cell.history.records.iter().filter(|record| record.step.is_answer());
    let answered: BTreeMap<(usize, u32), u64> = answers.map(|record| (record.key(), record.at)).collect();
    // What a dead worker has sent arrives when the fault is over.
    let unheard = |key| {
        let own = cell.effects.iter().find(|effect| (effect.worker, effect.hold) == key);
        own.map(|effect| effect.until)
    };
    let judge = Judge::of(&cell.history, holds);
    let sent = holds.iter().flat_map(|hold| hold.sent.iter().map(move |(write, _)| (hold, write)));
    sent.map(|(hold, write)| {
        let key = (hold.worker, hold.number);
        let at = answered.get(&key).copied().or_else(|| unheard(key)).unwrap_or(hold.last);
        Mark { worker: hold.worker, hold: hold.number, at, fate: judge.fate(hold, write) }
    })
    .collect()
}

/// Knows what became of every write.
struct Judge<'a> {
    history: &'a History,
    stale: BTreeSet<String>,
    losing: BTreeSet<String>,
}

impl<'a> Judge<'a> {
    fn of(history: &'a History, holds: &[Hold]) -> Self {
        Self { history, stale: belated(history, holds).stale, losing: losing_writes(&history.rows) }
    }

    fn fate(&self, hold: &Hold, write: &String) -> Fate {
        if hold.refused.contains(write) || self.history.refused_unheard.contains(write) {
            return Fate::Refused;
        }
        if !self.history.rows.iter().any(|row| row.write == *write) {
            return Fate::Unknown;
        }
        if self.stale.contains(write) {
            return Fate::Stale;
        }
        if self.losing.contains(write) { Fate::Losing } else { Fate::Accepted }
    }
}
