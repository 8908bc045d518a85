//! How often each thing happened, over many runs: a fault that never bites proves nothing.

use std::fmt;

macro_rules! counts {
    ($($what:ident),* $(,)?) => {
        /// Something that can happen in a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Count {
            $($what),*
        }

        const ALL: &[Count] = &[$(Count::$what),*];
    };
}

counts! {
    Events,
    Holds,
    HeldAfterOneRound,
    HeldAfterSeveral,
    Contended,
    LateAttempt,
    Outvoted,
    Unreachable,
    QuarantinedAttempt,
    ProposedAgain,
    StaleProposal,
    ProposalWithoutLock,
    LateAcknowledgement,
    Renewed,
    UnconfirmedRenewal,
    RefusedLease,
    DeadlinePassed,
    FilledIn,
    CancelledGrant,
    UnconfirmedCancellation,
    LostMessage,
    CutConnection,
    RequestAfterItsConnection,
    Paused,
    PausedHolder,
    Died,
    NodeDown,
    LostData,
    OldData,
    SteppedClock,
    SteppedUnderHolder,
    SeededByWitnesses,
    SeededByWallClock,
    SeedRefused,
    MixedRound,
}

#[derive(Clone)]
pub(crate) struct Tally([u64; ALL.len()]);

impl Tally {
    pub(crate) const EMPTY: Self = Self([0; ALL.len()]);

    pub(crate) fn count(&mut self, what: Count) {
        self.0[what as usize] += 1;
    }

    pub(crate) fn of(&self, what: Count) -> u64 {
        self.0[what as usize]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in ALL.iter().map(|what| (what, self.of(*what))).filter(|(_, count)| *count > 0) {
            write!(f, "{what:?} {count}  ")?;
        }
        Ok(())
    }
}
