//! The holds of a history: what was written down about each, put together.

use std::collections::BTreeMap;

use super::intervals::Interval;
use crate::history::{Record, Step};

/// One hold, from the first question to the last answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The worker.
    pub worker: usize,
    /// The number of the hold.
    pub number: u32,
    /// When it asked for the lock.
    pub asked: u64,
    /// When it had it.
    pub granted: Option<u64>,
    /// With which token.
    pub token: Option<u64>,
    /// As whom.
    pub holder: Option<String>,
    /// The last deadline that it knew of.
    pub deadline: Option<u64>,
    /// When it stopped to believe: it began to release, heard of the loss, or was killed.
    pub believed_until: Option<u64>,
    /// When it was first at work.
    pub first_use: Option<u64>,
    /// When it was last at work.
    pub last_use: Option<u64>,
    /// When it was told that it still holds the lock.
    pub checks: Vec<u64>,
    /// The moments at which writes were sent.
    pub sent: Vec<(String, u64)>,
    /// Writes that were accepted, as far as it knows.
    pub accepted: Vec<String>,
    /// Writes that were refused.
    pub refused: Vec<String>,
    /// The last moment of it that is known.
    pub last: u64,
}

impl Hold {
    /// While its holder believed that it has the lock. A holder that is stopped believes nothing after its deadline, since it looks
    /// before it does anything.
    pub(crate) fn claimed(&self) -> Option<Interval> {
        let start = self.granted?;
        let ends = [self.believed_until, self.deadline];
        let end = ends.into_iter().flatten().min().unwrap_or(self.last);
        Some(Interval { start, end: end.max(start) })
    }

    /// From its first step in the protected system to its last.
    pub(crate) fn used(&self) -> Option<Interval> {
        let start = self.first_use?;
        Some(Interval { start, end: self.last_use.unwrap_or(start) })
    }

    /// Writes of which nobody knows what became of them.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &String> {
        let is_answered = |write| self.accepted.contains(write) || self.refused.contains(write);
        self.sent.iter().map(|(write, _)| write).filter(move |write| !is_answered(write))
    }

    fn add(&mut self, record: &Record) {
        self.last = self.last.max(record.at);
        match &record.step {
            Step::Asked => self.asked = record.at,
            Step::Claimed { token, holder, deadline } => {
                self.granted = Some(record.at);
                (self.token, self.holder, self.deadline) = (*token, holder.clone(), *deadline);
            }
            Step::Renewed { deadline } => self.deadline = self.deadline.max(*deadline),
            Step::Checked { holds: true } => self.checks.push(record.at),
            Step::Writing { write } => {
                self.sent.push((write.clone(), record.at));
                self.uses(record.at);
            }
            Step::Accepted { write } => {
                self.accepted.push(write.clone());
                self.uses(record.at);
            }
            Step::Refused { write, .. } => {
                self.refused.push(write.clone());
                self.uses(record.at);
            }
            Step::Read { .. } | Step::Unknown { .. } => self.uses(record.at),
            Step::Lost { .. } | Step::Releasing | Step::Killed => {
                self.believed_until.get_or_insert(record.at);
            }
            _ => {}
        }
    }

    fn uses(&mut self, at: u64) {
        self.first_use.get_or_insert(at);
        self.last_use = Some(at);
    }
}

/// The holds, in the order in which they were asked for.
pub(crate) fn holds(records: &[Record]) -> Vec<Hold> {
    let mut holds: BTreeMap<(usize, u32), Hold> = BTreeMap::new();
    for record in records.iter().filter(|record| record.hold > 0) {
        let hold = holds.entry(record.key()).or_default();
        (hold.worker, hold.number) = record.key();
        hold.add(record);
    }
    let mut holds: Vec<Hold> = holds.into_values().collect();
    holds.sort_by_key(|hold| hold.asked);
    holds
}
