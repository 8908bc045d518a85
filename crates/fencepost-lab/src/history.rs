//! What happened in one experiment, as those who did it have written it down: a line for each step, with the moment.
//!
//! Invariant: a moment is `CLOCK_BOOTTIME` of the one kernel, read by the actor itself, so all of them are on one scale; the
//! clock that a fault steps is that of a server.

use serde::{Deserialize, Serialize};

/// One step of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, in nanoseconds of `CLOCK_BOOTTIME`.
    pub at: u64,
    /// Which worker, from 0.
    pub worker: usize,
    /// Which of its holds, from 1; 0 where it is about none.
    pub hold: u32,
    /// What.
    #[serde(flatten)]
    pub step: Step,
}

/// What a worker does, or has done to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// Its process has begun.
    Started,
    /// It asks for the lock.
    Asked,
    /// It has the lock, with all of its fences sealed, or believes that it needs none.
    Claimed {
        /// The fencing token; none without a lock.
        token: Option<u64>,
        /// Who holds it, as the stamp says.
        holder: Option<String>,
        /// Until when it may believe in its lease; none where the lease does not run out.
        deadline: Option<u64>,
    },
    /// The store has acknowledged a renewal.
    Renewed {
        /// Until when it may believe in its lease now.
        deadline: Option<u64>,
    },
    /// It has read the register.
    Read {
        /// The write that it has seen.
        based_on: String,
    },
    /// It has looked whether it still holds the lock.
    Checked {
        /// Whether it does, as far as it knows.
        holds: bool,
    },
    /// It sends its write.
    Writing {
        /// The write.
        write: String,
    },
    /// The write was accepted.
    Accepted {
        /// The write.
        write: String,
    },
    /// The write was refused as stale.
    Refused {
        /// The write.
        write: String,
        /// In the words of the fence.
        why: String,
    },
    /// Nobody knows whether the write took effect.
    Unknown {
        /// The write.
        write: String,
        /// What was heard instead of an answer.
        why: String,
    },
    /// It has learned that its lease is lost.
    Lost {
        /// Why.
        why: String,
    },
    /// It could not do what it wanted, and tries again.
    Failed {
        /// Why.
        why: String,
    },
    /// It begins to give the lock back, and does not believe in it any more.
    Releasing,
    /// The lock is given back, or was not its own any more.
    Released,
    /// The lab has stopped its process.
    Paused,
    /// The lab has let its process go on.
    Resumed,
    /// The lab has killed its process.
    Killed,
    /// It ends as it was told to.
    Ended,
}

impl Step {
    /// Why something could not be done, where it could not.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { why } => Some(why),
            _ => None,
        }
    }

    /// Whether it is the last word about a write.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(self, Self::Accepted { .. } | Self::Refused { .. } | Self::Unknown { .. })
    }
}

impl Record {
    /// The record that a line holds.
    pub(crate) fn in_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// The record as a line.
    pub(crate) fn line(&self) -> String {
        let text = serde_json::to_string(self).expect("a record is plain data");
        format!("{text}\n")
    }

    /// Which hold it is about.
    pub(crate) fn key(&self) -> (usize, u32) {
        (self.worker, self.hold)
    }
}

/// A write that the protected system has accepted, as it stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place in the order in which the system has accepted writes.
    pub sequence: i64,
    /// The event that it processes.
    pub event: i64,
    /// The write.
    pub write: String,
    /// The write that its author had read.
    pub based_on: String,
    /// The token of its author; none without a lock.
    pub token: Option<u64>,
}

/// All that is known of one experiment when it is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The steps, in the order of their moments.
    pub records: Vec<Record>,
    /// The accepted writes, in the order of the protected system.
    pub rows: Vec<Row>,
    /// The running total at the end.
    pub total: i64,
    /// Writes that the protected system says it has refused, whose authors could not hear it any more.
    pub refused_unheard: Vec<String>,
    /// Whether writes were fenced.
    pub is_fenced: bool,
    /// Whether somebody seems to hold the lock although no worker is left.
    pub has_orphan: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_back_from_its_line() {
        let step = Step::Claimed { token: Some(u64::MAX >> 1), holder: None, deadline: Some(7) };
        let record = Record { at: 1, worker: 2, hold: 3, step };
        assert_eq!(Record::in_line(record.line().trim_end()), Some(record));
        assert_eq!(Record::in_line("{\"at\":1"), None, "a killed worker may leave half a line");
    }
}
