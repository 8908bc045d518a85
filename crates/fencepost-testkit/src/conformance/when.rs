//! Which cases a backend is put to: by what its profile claims, and by what its harness can do. Never by its name.

use fencepost_core::{Expiry, Loss, Profile, Scope, Tokens, Waiting};

use crate::harness::Harness;

/// When a case is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    claimed: fn(&Profile) -> bool,
    otherwise: &'static str,
    needs: Needs,
}

/// What a harness must be able to do for a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but locks and time.
    Nothing,
    /// Start other processes that find the surroundings.
    Processes,
    /// Stop a holder: another process, or everything in virtual time.
    Pauses,
}

/// What becomes of a case with one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Runs,
    /// The profile does not claim it, for this reason.
    NotClaimed(&'static str),
    /// The profile claims it, and the harness lacks this.
    CannotRun(&'static str),
}

impl When {
    const fn new(claimed: fn(&Profile) -> bool, otherwise: &'static str, needs: Needs) -> Self {
        Self { claimed, otherwise, needs }
    }

    pub(super) fn needs(&self) -> Needs {
        self.needs
    }

    pub(super) fn standing(&self, profile: &Profile, harness: &dyn Harness) -> Standing {
        if !(self.claimed)(profile) {
            return Standing::NotClaimed(self.otherwise);
        }
        match self.needs {
            Needs::Processes if harness.address().is_none() => Standing::CannotRun("an address"),
            Needs::Pauses if harness.address().is_none() && harness.virtual_time().is_none() => {
                Standing::CannotRun("an address or virtual time")
            }
            _ => Standing::Runs,
        }
    }
}

fn runs_out(profile: &Profile) -> bool {
    profile.expiry == Expiry::AfterTtl
}

fn reaches_others(profile: &Profile) -> bool {
    profile.scope != Scope::Process
}

pub(super) const ALWAYS: When = When::new(|_| true, "", Needs::Nothing);
pub(super) const RUNS_OUT: When = When::new(runs_out, "its leases do not run out", Needs::Nothing);
pub(super) const RUNS_OUT_AND_PAUSES: When = When::new(runs_out, "its leases do not run out", Needs::Pauses);
pub(super) const RUNS_OUT_FOR_OTHERS: When = When::new(
    |profile| runs_out(profile) && reaches_others(profile),
    "its leases do not run out, or its locks reach no other process",
    Needs::Processes,
);
pub(super) const REACHES_OTHERS: When =
    When::new(reaches_others, "its locks reach no other process", Needs::Processes);
pub(super) const IS_GIVEN_BACK_BY_OTHERS: When =
    When::new(reaches_others, "its locks reach no other process", Needs::Nothing);
pub(super) const LASTS_AS_THE_PROCESS: When = When::new(
    |profile| profile.expiry == Expiry::WithProcess,
    "a holder's process is not what keeps the lock",
    Needs::Nothing,
);
pub(super) const LASTS_WHILE_STOPPED: When = When::new(
    |profile| profile.expiry == Expiry::WithProcess && reaches_others(profile),
    "a holder that is stopped may lose the lock",
    Needs::Processes,
);
pub(super) const IS_QUEUED: When = When::new(
    |profile| profile.waiting == Waiting::Queued,
    "its waiters are served in no certain order",
    Needs::Nothing,
);
pub(super) const SHOWS_WAITERS: When =
    When::new(|profile| profile.waiting != Waiting::Polled, "the store knows no waiters", Needs::Nothing);
pub(super) const IS_DETACHABLE: When = When::new(
    |profile| profile.detach,
    "its leases end with the process or the session of their holder",
    Needs::Nothing,
);
pub(super) const IS_DETACHABLE_AND_RESTS: When = When::new(
    |profile| profile.detach && profile.rest,
    "its leases cannot be detached, or the store keeps no lock taken after its release",
    Needs::Nothing,
);
pub(super) const IS_NOT_DETACHABLE: When =
    When::new(|profile| !profile.detach, "its leases can be detached", Needs::Nothing);
pub(super) const IS_REVOCABLE: When =
    When::new(|profile| profile.revoke, "its leases cannot be taken away", Needs::Nothing);
pub(super) const IS_REVOCABLE_AND_ENDS_WITH_THE_PROCESS: When = When::new(
    |profile| profile.revoke && !profile.frees_when_revoked(),
    "its leases cannot be taken away, or are over at once then",
    Needs::Nothing,
);
pub(super) const IS_NOT_REVOCABLE: When =
    When::new(|profile| !profile.revoke, "its leases can be taken away", Needs::Nothing);
pub(super) const PUSHES_REVOCATIONS: When = When::new(
    |profile| profile.revoke && profile.loss == Loss::Pushed,
    "the store tells no holder that its lease was taken away",
    Needs::Nothing,
);
pub(super) const RESTS: When =
    When::new(|profile| profile.rest, "the store keeps no lock taken after its release", Needs::Nothing);
pub(super) const NEVER_RESTS: When =
    When::new(|profile| !profile.rest, "the store keeps a lock taken after its release", Needs::Nothing);
pub(super) const HAS_A_LONGEST_TTL: When =
    When::new(|profile| profile.longest_ttl.is_some(), "it gives leases of any length", Needs::Nothing);
pub(super) const IS_NOT_DURABLE: When =
    When::new(|profile| profile.tokens != Tokens::Durable, "its tokens are durable", Needs::Nothing);
pub(super) const IS_SHARED: When =
    When::new(|profile| profile.share, "its locks cannot be shared", Needs::Nothing);
pub(super) const IS_SHARED_AND_REVOCABLE: When = When::new(
    |profile| profile.share && profile.revoke,
    "its locks cannot be shared, or its leases cannot be taken away",
    Needs::Nothing,
);
pub(super) const IS_SHARED_AND_RUNS_OUT: When = When::new(
    |profile| profile.share && runs_out(profile),
    "its locks cannot be shared, or its leases do not run out",
    Needs::Nothing,
);
pub(super) const IS_NOT_SHARED: When =
    When::new(|profile| !profile.share, "its locks can be shared", Needs::Nothing);
pub(super) const HAS_SLOTS: When =
    When::new(|profile| profile.slots, "its locks have no slots", Needs::Nothing);
pub(super) const HAS_NO_SLOTS: When =
    When::new(|profile| !profile.slots, "its locks have slots", Needs::Nothing);
pub(super) const KEEPS_A_LOGBOOK: When =
    When::new(|profile| profile.logbook, "the store keeps no logbook", Needs::Nothing);
pub(super) const KEEPS_A_LOGBOOK_AND_IS_REVOCABLE: When = When::new(
    |profile| profile.logbook && profile.revoke,
    "the store keeps no logbook, or its leases cannot be taken away",
    Needs::Nothing,
);
pub(super) const KEEPS_A_LOGBOOK_AND_FREES_WHEN_REVOKED: When = When::new(
    |profile| profile.logbook && profile.frees_when_revoked(),
    "the store keeps no logbook, or no other can hold a lock before its holder has let go",
    Needs::Nothing,
);
pub(super) const KEEPS_NO_LOGBOOK: When =
    When::new(|profile| !profile.logbook, "the store keeps a logbook", Needs::Nothing);
