//! The rules of writes, by the order in which the protected system has accepted them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Hold, Tally};
use crate::history::{History, Row};

/// Counts what breaks the rules, and what was refused.
pub(super) fn count(history: &History, holds: &[Hold], tally: &mut Tally) {
    let belated = belated(history, holds);
    (tally.stale_accepted, tally.late_accepted) = (belated.stale.len(), belated.late.len());
    tally.lost_updates = losing_writes(&history.rows).len();
    tally.duplicates = history.rows.len() - distinct_events(&history.rows);
    let refused = holds.iter().flat_map(|hold| &hold.refused).chain(&history.refused_unheard);
    tally.stale_refused = refused.collect::<BTreeSet<_>>().len();
    tally.acknowledged = holds.iter().map(|hold| hold.accepted.len()).sum();
    let unanswered = holds.iter().flat_map(Hold::unanswered);
    tally.unknown = unanswered.filter(|write| !history.refused_unheard.contains(write)).count();
    let past_deadline = |hold: &Hold, at: u64| hold.deadline.is_some_and(|deadline| at >= deadline);
    let checks = holds.iter().flat_map(|hold| hold.checks.iter().map(move |at| (hold, *at)));
    tally.checks_after_deadline = checks.filter(|(hold, at)| past_deadline(hold, *at)).count();
    let sent = holds.iter().flat_map(|hold| hold.sent.iter().map(move |(_, at)| (hold, *at)));
    tally.writes_after_deadline = sent.clone().filter(|(hold, at)| past_deadline(hold, *at)).count();
    tally.writes_without_claim =
        sent.filter(|(hold, at)| hold.granted.is_none_or(|granted| *at < granted)).count();
}

/// The accepted writes that came too late.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Belated {
    /// A greater token was written before, or was sealed before it was sent.
    pub(crate) stale: BTreeSet<String>,
    /// They were sent when a successor had the lock, whose first write still came after them.
    pub(crate) late: BTreeSet<String>,
}

/// The accepted writes that came too late.
pub(crate) fn belated(history: &History, holds: &[Hold]) -> Belated {
    let sent: BTreeMap<&str, u64> = sent(holds);
    let grants: Vec<(u64, u64)> =
        holds.iter().filter_map(|hold| Some((hold.granted?, hold.token?))).collect();
    let (mut found, mut greatest) = (Belated::default(), 0);
    for row in &history.rows {
        let Some(token) = row.token else { continue };
        let at = sent.get(row.write.as_str()).copied().unwrap_or(0);
        let is_overtaken = grants.iter().any(|(granted, other)| *other > token && *granted < at);
        // With a fence a grant is one that is sealed.
        if token < greatest || (is_overtaken && history.is_fenced) {
            found.stale.insert(row.write.clone());
        } else if is_overtaken {
            found.late.insert(row.write.clone());
        }
        greatest = greatest.max(token);
    }
    found
}

fn sent(holds: &[Hold]) -> BTreeMap<&str, u64> {
    let sent = holds.iter().flat_map(|hold| &hold.sent);
    sent.map(|(write, at)| (write.as_str(), *at)).collect()
}

/// The names of writes that were computed from something else than the write before them.
pub(crate) fn losing_writes(rows: &[Row]) -> BTreeSet<String> {
    let before = std::iter::once("start").chain(rows.iter().map(|row| row.write.as_str()));
    let losing = rows.iter().zip(before).filter(|(row, before)| row.based_on != *before);
    losing.map(|(row, _)| row.write.clone()).collect()
}

fn distinct_events(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.event).collect::<BTreeSet<_>>().len()
}
