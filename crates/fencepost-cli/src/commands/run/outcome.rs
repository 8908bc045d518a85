//! How a run has ended: for the exit code, and for the report.

use std::time::Duration;

use fencepost::{Error, ErrorKind, FencingToken, HolderId, Lease, LockName};
use serde::Serialize;

use super::plan::{Plan, Target};
use crate::commands::state::milliseconds;
use crate::exit::Exit;

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ran,
    NotAcquired,
    Lost,
    TimedOut,
    AlreadyDone,
    Unavailable,
    Denied,
    Stale,
    Interrupted,
}

impl Outcome {
    /// The word for it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::NotAcquired => "not_acquired",
            Self::Lost => "lost",
            Self::TimedOut => "timed_out",
            Self::AlreadyDone => "already_done",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Stale => "stale",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Serialize for Outcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The end of a run.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    pub(super) exit: Exit,
    pub(super) lost_reason: Option<String>,
    /// Whether a signal that asks to end was passed on to the command.
    pub(super) was_asked_to_end: bool,
}

impl Ending {
    pub(super) fn new(outcome: Outcome, exit: Exit) -> Self {
        Self { outcome, exit, lost_reason: None, was_asked_to_end: false }
    }

    /// The lease was lost for `reason`.
    pub(super) fn lost(reason: &str) -> Self {
        Self { lost_reason: Some(reason.to_owned()), ..Self::new(Outcome::Lost, Exit::LOST) }
    }

    /// Whether the command says that its work is done. One that was asked to end may exit 0 without having done it.
    pub(super) fn is_success(&self) -> bool {
        self.outcome == Outcome::Ran && self.exit == Exit::OK && !self.was_asked_to_end
    }

    /// The locks were not acquired, because of `error`.
    pub(super) fn failed(error: &Error, conflict: Exit) -> Self {
        let exit = Exit::from(error);
        match error.kind() {
            ErrorKind::AlreadyDone => Self::new(Outcome::AlreadyDone, exit),
            ErrorKind::Contended => Self::new(Outcome::NotAcquired, conflict),
            ErrorKind::Denied => Self::new(Outcome::Denied, exit),
            ErrorKind::Stale => Self::new(Outcome::Stale, exit),
            ErrorKind::Lost => Self::lost(reason(error)),
            _ => Self::new(Outcome::Unavailable, exit),
        }
    }
}

/// Why a lease was lost, as one word.
pub(super) fn reason(error: &Error) -> &'static str {
    error.loss_reason().map_or("deadline", fencepost::LossReason::as_str)
}

/// What was granted for one lock of a run.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    /// The lock, or the slot of it.
    lock: LockName,
    pub(super) token: FencingToken,
    pub(super) holder: HolderId,
    slack: Option<usize>,
}

impl Granted {
    pub(super) fn of(lease: &Lease) -> Self {
        let lock = lease.lock().clone();
        Self { lock, token: lease.token(), holder: lease.holder(), slack: lease.slack() }
    }
}

/// The grants of a run, and when they were got.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    pub(super) waited: Duration,
    pub(super) held: Option<Duration>,
}

/// The report of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    #[serde(flatten)]
    first: Part<'a>,
    outcome: Outcome,
    exit_code: u8,
    waited_ms: u64,
    held_ms: Option<u64>,
    lost_reason: Option<&'a str>,
    locks: Vec<Part<'a>>,
}

/// One lock of a run.
#[derive(Clone, Debug, Serialize)]
struct Part<'a> {
    lock: &'a str,
    backend: &'static str,
    scope: &'static str,
    holder: Option<HolderId>,
    token: Option<FencingToken>,
    /// Only where a quorum decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    slack: Option<usize>,
}

impl<'a> Report<'a> {
    pub(super) fn new(plan: &'a Plan, grants: &'a [Granted], ending: &'a Ending, times: &Times) -> Self {
        let part = |(index, target): (usize, &'a Target)| {
            let granted = grants.get(index);
            let (token, holder) = granted.map(|granted| (granted.token, granted.holder)).unzip();
            let slack = granted.and_then(|granted| granted.slack);
            let lock = granted.map_or(&target.name, |granted| &granted.lock).as_str();
            let backend = target.place.url.kind();
            Part { lock, backend, scope: target.reach(), holder, token, slack }
        };
        let locks: Vec<_> = plan.targets.iter().enumerate().map(part).collect();
        Self {
            first: locks[0].clone(),
            outcome: ending.outcome,
            exit_code: ending.exit.0,
            waited_ms: milliseconds(times.waited),
            held_ms: times.held.map(milliseconds),
            lost_reason: ending.lost_reason.as_deref(),
            locks,
        }
    }
}
