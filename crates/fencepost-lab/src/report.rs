//! What came of the lab: a cell for each pattern under each fault, and what it says.

use std::time::Duration;

use fencepost::{Tie, Timing};
use serde::Serialize;

use crate::check::Tally;
use crate::fault::Fault;
use crate::history::History;
use crate::pattern::{Kind, Pattern};
use crate::strike::Effect;

/// The whole outcome.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed, which repeats the schedule.
    pub seed: u32,
    /// The cells, in the order in which they were asked for.
    pub cells: Vec<Cell>,
    /// What is protected, in words.
    pub sink: String,
    /// How long everything took.
    pub took: Duration,
}

/// One pattern under one fault.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The pattern.
    pub pattern: Pattern,
    /// The fault.
    pub fault: Fault,
    /// What the checker has counted.
    pub tally: Tally,
    /// What was drawn from the seed, in words.
    pub schedule: Vec<String>,
    /// What was done, and what came of it.
    pub effects: Vec<Effect>,
    /// Why the cell says nothing, where it does not.
    pub vacuous: Option<String>,
    /// What was promised and did not hold.
    pub broken: Vec<String>,
    /// What happened.
    pub history: History,
    /// How long a lease is.
    pub ttl: Duration,
}

/// What a cell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the fault does not apply, or had no effect.
    Vacuous,
    /// Nothing wrong was written.
    Clean,
    /// Something wrong was written, as it must be expected without a lock, or without a fence.
    Weak,
    /// Something that was promised did not hold.
    Broken,
}

impl Report {
    /// Whether everything held that was promised.
    pub fn is_kept(&self) -> bool {
        self.cells.iter().all(|cell| cell.broken.is_empty())
    }

    /// Whether any cell could be run at all.
    pub fn has_run(&self) -> bool {
        self.cells.iter().any(Cell::has_run)
    }

    /// The report as JSON, on one line.
    ///
    /// # Panics
    /// Never: it is plain data.
    pub fn json(&self) -> String {
        let cells = self.cells.iter().map(JsonCell::of).collect();
        let report = JsonReport { seed: self.seed, sink: &self.sink, took_ms: millis(self.took), cells };
        serde_json::to_string(&report).expect("a report is plain data")
    }
}

impl Cell {
    /// A cell that was not run.
    pub(crate) fn vacuous(pattern: Pattern, fault: Fault, why: impl Into<String>) -> Self {
        Self {
            pattern,
            fault,
            tally: Tally::default(),
            schedule: Vec::new(),
            effects: Vec::new(),
            vacuous: Some(why.into()),
            broken: Vec::new(),
            history: History::default(),
            ttl: pattern.kind.facts().ttl,
        }
    }

    /// Whether workers have worked in it.
    pub fn has_run(&self) -> bool {
        !self.history.records.is_empty()
    }

    /// What it says.
    pub fn verdict(&self) -> Verdict {
        if !self.broken.is_empty() {
            return Verdict::Broken;
        }
        if self.vacuous.is_some() {
            return Verdict::Vacuous;
        }
        if self.tally.let_through().is_empty() && self.tally.overlaps == 0 {
            Verdict::Clean
        } else {
            Verdict::Weak
        }
    }

    /// How long it took after a strike until somebody had the lock again: the longest of several.
    pub fn recovery(&self) -> Option<Duration> {
        self.effects.iter().filter_map(|effect| effect.recovery).max()
    }

    /// Judges what was counted: sets why it says nothing, and what did not hold.
    pub(crate) fn judge(mut self) -> Self {
        self.broken = broken(&self);
        if self.broken.is_empty() {
            self.vacuous = vacuous(&self);
        }
        self
    }
}

fn broken(cell: &Cell) -> Vec<String> {
    let mut broken = cell.tally.broken_rules();
    if cell.pattern.is_fenced {
        broken.extend(cell.tally.let_through());
    }
    if cell.tally.overlaps > 0 && !may_overlap(cell) {
        broken.push("two believed at once that they hold the lock".to_owned());
    }
    broken
}

/// Whether two may believe at once, as the lock's own profile says: a clock was set that decides about the lease, or the lock was
/// free as soon as its session had ended, before its holder can have heard of it.
fn may_overlap(cell: &Cell) -> bool {
    let profiles = fencepost::profiles();
    let profile = profiles.iter().find(|profile| profile.backend == cell.pattern.kind.name());
    profile.is_none_or(|profile| match cell.fault {
        Fault::Clock => matches!(profile.timing, Timing::WallClock | Timing::WallClocks),
        Fault::Partition => profile.tie == Tie::Session,
        _ => false,
    })
}

/// A fault that did nothing has proved nothing, and a fence that was shown nothing stale neither.
fn vacuous(cell: &Cell) -> Option<String> {
    if cell.tally.acknowledged == 0 {
        let failure = cell.history.records.iter().find_map(|record| record.step.failure());
        let why = failure.map_or_else(String::new, |why| format!(": {why}"));
        return Some(format!("no worker got as far as a write{why}"));
    }
    if cell.fault == Fault::None {
        return None;
    }
    if !cell.effects.iter().any(Effect::has_bitten) {
        let failed = cell.effects.iter().find_map(|effect| effect.failed.clone());
        return Some(failed.unwrap_or_else(|| without_effect(cell)));
    }
    let is_shown = cell.tally.stale_refused + cell.tally.late_accepted > 0;
    (cell.pattern.is_fenced && !is_shown).then(|| without_a_stale_write(cell))
}

fn without_effect(cell: &Cell) -> String {
    match (cell.pattern.kind, cell.fault) {
        (Kind::File, Fault::Pause) => {
            "the lock is kept as long as its holder's process lives, stopped or not, so nobody else could start"
        }
        (Kind::Postgres, Fault::Pause) => {
            "the server keeps the session of a stopped holder, and its lock with it, so nobody else could start"
        }
        (Kind::Redis | Kind::Redlock, Fault::Clock) => {
            "nobody else got the lock, although the clocks by which a lease runs out were set forward"
        }
        (_, Fault::Clock) => "the clocks of the servers do not decide who has this lock, so nobody else could start",
        (_, Fault::ServerRestart) => "the servers still knew the lease, and its holder kept it",
        (_, Fault::DataLoss) => "the holder kept its lease, and nobody else could start",
        _ => "nobody else got the lock while the fault lasted",
    }
    .to_owned()
}

fn without_a_stale_write(cell: &Cell) -> String {
    match cell.fault {
        Fault::Crash => "a killed worker wrote nothing afterwards, so the fence was shown nothing stale",
        _ => "the holder noticed in time and wrote nothing more, so the fence was shown nothing stale",
    }
    .to_owned()
}

#[derive(Serialize)]
struct JsonReport<'a> {
    seed: u32,
    sink: &'a str,
    took_ms: u64,
    cells: Vec<JsonCell<'a>>,
}

#[derive(Serialize)]
struct JsonCell<'a> {
    pattern: String,
    fault: &'static str,
    grants: usize,
    overlaps: usize,
    overlap_ms: u64,
    stale_accepted: usize,
    stale_refused: usize,
    lost_updates: usize,
    duplicates: usize,
    total_correct: bool,
    recovery_ms: Option<u64>,
    vacuous: Option<&'a str>,
    broken: &'a [String],
    late_accepted: usize,
    used_overlaps: usize,
    used_overlap_ms: u64,
    writes_after_deadline: usize,
    acknowledged: usize,
    unknown: usize,
    total: i64,
    schedule: &'a [String],
}

impl<'a> JsonCell<'a> {
    fn of(cell: &'a Cell) -> Self {
        let tally = &cell.tally;
        Self {
            pattern: cell.pattern.to_string(),
            fault: cell.fault.name(),
            grants: tally.grants,
            overlaps: tally.overlaps,
            overlap_ms: millis(tally.overlap),
            stale_accepted: tally.stale_accepted,
            stale_refused: tally.stale_refused,
            lost_updates: tally.lost_updates,
            duplicates: tally.duplicates,
            total_correct: tally.total_is_correct(),
            recovery_ms: cell.recovery().map(millis),
            vacuous: cell.vacuous.as_deref(),
            broken: &cell.broken,
            late_accepted: tally.late_accepted,
            used_overlaps: tally.used_overlaps,
            used_overlap_ms: millis(tally.used_overlap),
            writes_after_deadline: tally.writes_after_deadline,
            acknowledged: tally.acknowledged,
            unknown: tally.unknown,
            total: tally.total,
            schedule: &cell.schedule,
        }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is broken where two have believed at once.
    fn broken_by_an_overlap(pattern: &str, fault: Fault) -> bool {
        let tally = Tally { overlaps: 1, ..Tally::default() };
        let cell = Cell { tally, ..Cell::vacuous(pattern.parse().unwrap(), fault, "") };
        !cell.judge().broken.is_empty()
    }

    #[test]
    fn overlap_breaks_a_promise_where_the_profile_makes_one() {
        for fault in [Fault::None, Fault::Pause, Fault::Crash, Fault::ServerRestart, Fault::DataLoss] {
            for pattern in ["file", "redis", "redlock", "postgres", "etcd", "zookeeper"] {
                assert!(broken_by_an_overlap(pattern, fault), "{pattern} under {fault}");
            }
            assert!(!broken_by_an_overlap("none", fault), "without a lock nothing is promised");
        }
        assert!(
            broken_by_an_overlap("redis", Fault::Partition) && broken_by_an_overlap("postgres", Fault::Clock)
        );
        assert!(
            !broken_by_an_overlap("redis", Fault::Clock)
                && !broken_by_an_overlap("postgres", Fault::Partition)
        );
    }

    #[test]
    fn what_gets_through_breaks_a_promise_with_a_fence_alone() {
        let tally = Tally { stale_accepted: 1, lost_updates: 1, acknowledged: 1, ..Tally::default() };
        for (pattern, verdict) in [("redis", false), ("redis+fence", true)] {
            let cell =
                Cell { tally: tally.clone(), ..Cell::vacuous(pattern.parse().unwrap(), Fault::None, "") };
            assert_eq!(cell.judge().verdict() == Verdict::Broken, verdict, "{pattern}");
        }
    }

    #[test]
    fn fault_without_effect_and_fence_that_was_shown_nothing_stale_are_vacuous() {
        let tally = Tally { acknowledged: 5, total: 5, ..Tally::default() };
        let with = |pattern: &str, effect: Effect, tally: &Tally| {
            let cell = Cell::vacuous(pattern.parse().unwrap(), Fault::Pause, "");
            Cell { tally: tally.clone(), effects: vec![effect], ..cell }.judge().vacuous
        };
        let bitten = Effect { is_handed_over: true, ..Effect::default() };
        assert!(with("redis", Effect::default(), &tally).unwrap().contains("nobody else got the lock"));
        assert_eq!(with("redis", bitten.clone(), &tally), None);
        assert!(with("redis+fence", bitten.clone(), &tally).unwrap().contains("shown nothing stale"));
        assert_eq!(with("redis+fence", bitten.clone(), &Tally { stale_refused: 1, ..tally.clone() }), None);
        let failed = Effect { failed: Some("no cc".to_owned()), ..bitten };
        assert_eq!(with("redis", failed, &tally).unwrap(), "no cc");
        assert!(with("redis", Effect::default(), &Tally::default()).unwrap().contains("as far as a write"));
    }
}
