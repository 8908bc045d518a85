//! The checker: what a history says about exclusion, tokens and writes. It believes the actors' own clocks and the order of the
//! protected system, and nothing else.
//!
//! Invariant: three intervals of a hold are never mixed: what its holder claimed, when it was used, and what the store granted; the
//! last one is not recorded here, so overlaps are those of the first two. The rules are those of Jepsen's lock clients, where a
//! holder stops to believe when it begins to release (<https://jepsen.io>).

mod holds;
mod intervals;
mod tokens;
mod writes;

pub use holds::Hold;
pub(crate) use holds::holds;
pub(crate) use writes::{belated, losing_writes};

use std::time::Duration;

use crate::history::History;
use intervals::overlaps;

/// What the checker has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often the lock was given.
    pub grants: usize,
    /// How often two believed at once that they hold it.
    pub overlaps: usize,
    /// For how long altogether.
    pub overlap: Duration,
    /// How often two were at work at once, between a first read and a last answer.
    pub used_overlaps: usize,
    /// For how long altogether.
    pub used_overlap: Duration,
    /// Accepted writes of a holder whose successor had written or sealed before (S1).
    pub stale_accepted: usize,
    /// Accepted writes that were sent when a successor had the lock, and had not written yet (S2).
    pub late_accepted: usize,
    /// Writes that the fence has refused.
    pub stale_refused: usize,
    /// Accepted writes that were computed from something else than the write before them (S3).
    pub lost_updates: usize,
    /// Events that were processed again.
    pub duplicates: usize,
    /// Writes whose authors know that they were accepted.
    pub acknowledged: usize,
    /// Writes of which nobody knows.
    pub unknown: usize,
    /// The running total at the end.
    pub total: i64,
    /// Tokens that two holders had.
    pub tokens_repeated: usize,
    /// Tokens that were not greater than one that had been given before they were asked for.
    pub tokens_fallen: usize,
    /// Holders that have shown two tokens.
    pub tokens_changed: usize,
    /// Looks at a lease that said yes at or after its deadline.
    pub checks_after_deadline: usize,
    /// Writes that were sent at or after the deadline of their lease. A pause between look and write makes some.
    pub writes_after_deadline: usize,
    /// Writes without a claim.
    pub writes_without_claim: usize,
    /// Whether the lock stayed taken although no worker was left.
    pub orphans: usize,
}

impl Tally {
    /// Whether the total is as many as were acknowledged, or more, by no more than those of which nobody knows.
    pub fn total_is_correct(&self) -> bool {
        let total = usize::try_from(self.total).unwrap_or(0);
        (self.acknowledged..=self.acknowledged + self.unknown).contains(&total)
    }

    /// Rules that every lock must keep, whatever happens, each with how often it was broken.
    pub(crate) fn broken_rules(&self) -> Vec<String> {
        let rules = [
            (self.tokens_repeated, "a token was given twice"),
            (self.tokens_fallen, "a token was not greater than one before it"),
            (self.tokens_changed, "a holder has shown two tokens"),
            (self.checks_after_deadline, "a holder was told after its deadline that it still holds the lock"),
            (self.writes_without_claim, "something was written without a claim"),
            (self.orphans, "the lock stayed taken although no worker was left"),
        ];
        said(&rules)
    }

    /// What a fence must not let happen, each with how often it has.
    pub(crate) fn let_through(&self) -> Vec<String> {
        let wrong_total = usize::from(!self.total_is_correct());
        let rules = [
            (self.stale_accepted, "a stale write was accepted"),
            (self.lost_updates, "an update was lost"),
            (self.duplicates, "an event was processed again"),
            (wrong_total, "the total is wrong"),
        ];
        said(&rules)
    }
}

fn said(rules: &[(usize, &str)]) -> Vec<String> {
    let broken = rules.iter().filter(|(count, _)| *count > 0);
    broken
        .map(|(count, rule)| if *count == 1 { (*rule).to_owned() } else { format!("{rule} ({count} times)") })
        .collect()
}

/// What a history says.
pub fn check(history: &History) -> Tally {
    let holds = holds(&history.records);
    let claimed = overlaps(holds.iter().filter_map(Hold::claimed));
    let used = overlaps(holds.iter().filter_map(Hold::used));
    let mut tally = Tally {
        grants: holds.iter().filter(|hold| hold.granted.is_some()).count(),
        overlaps: claimed.count,
        overlap: claimed.length,
        used_overlaps: used.count,
        used_overlap: used.length,
        total: history.total,
        orphans: usize::from(history.has_orphan),
        ..Tally::default()
    };
    tokens::count(&holds, &mut tally);
    writes::count(history, &holds, &mut tally);
    tally
}
