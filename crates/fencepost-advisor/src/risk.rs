//! What happens under each fault, read off a profile: whether two can overlap, and what the fence does then.
//!
//! Invariant: nothing here asks which backend it is; what a profile does not say is not promised.

use fencepost_core::{Expiry, Profile, Scope, Tie, Timing, Tokens};

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Nothing does.
    None,
    /// A holder stands still.
    Pause,
    /// A holder's process ends without giving back.
    Crash,
    /// A holder does not reach the store.
    Partition,
    /// A clock is set.
    ClockJump,
    /// The store restarts, with its data.
    ServerRestart,
    /// The store loses data, or what takes over lacks some.
    DataLoss,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Pause,
        Self::Crash,
        Self::Partition,
        Self::ClockJump,
        Self::ServerRestart,
        Self::DataLoss,
    ];

    /// Its name for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::None => "no_fault",
            Self::Pause => "pause",
            Self::Crash => "crash",
            Self::Partition => "partition",
            Self::ClockJump => "clock_jump",
            Self::ServerRestart => "server_restart",
            Self::DataLoss => "data_loss",
        }
    }
}

/// What happens under one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Risk {
    /// The fault.
    pub fault: Fault,
    /// Whether two may work at once.
    pub two_may_overlap: bool,
    /// What happens.
    pub what_happens: &'static str,
    /// What becomes of a write by the older of the two; `None` where there are no two.
    pub older_write: Option<&'static str>,
}

/// What happens under every fault.
pub(crate) fn risks(profile: &Profile, fenced: bool) -> Vec<Risk> {
    Fault::ALL.into_iter().map(|fault| risk(fault, profile, fenced)).collect()
}

fn risk(fault: Fault, profile: &Profile, fenced: bool) -> Risk {
    let (two_may_overlap, what_happens) = match fault {
        Fault::None => (false, "one holder at a time"),
        Fault::Pause => pause(profile),
        Fault::Crash => crash(profile),
        Fault::Partition => partition(profile),
        Fault::ClockJump => clock_jump(profile.timing),
        Fault::ServerRestart => restart(profile),
        Fault::DataLoss => data_loss(profile),
    };
    let older_write = two_may_overlap.then(|| older_write(fault, profile, fenced));
    Risk { fault, two_may_overlap, what_happens, older_write }
}

fn older_write(fault: Fault, profile: &Profile, fenced: bool) -> &'static str {
    match (fenced, fault) {
        (false, _) => "nothing refuses the older holder",
        (true, Fault::DataLoss) if profile.tokens != Tokens::Durable => {
            "the fence refuses the older holder, unless the wall clock has gone back as well"
        }
        (true, Fault::DataLoss) if profile.scope == Scope::Cluster => {
            "the fence refuses what is older; raise the tokens after a restore with `fencepost lift`"
        }
        (true, _) => "the fence refuses the older holder",
    }
}

fn pause(profile: &Profile) -> (bool, &'static str) {
    match profile.expiry {
        Expiry::WithProcess => (false, "a holder that stands still keeps the lock, and the others wait"),
        _ if profile.tie == Tie::Session => (
            true,
            "a stopped process keeps the lock, but a host that stands still loses it, and writes on when it wakes",
        ),
        _ => (true, "a holder that stands still between its check and its write wakes up after its lease"),
    }
}

fn crash(profile: &Profile) -> (bool, &'static str) {
    match profile.expiry {
        Expiry::WithProcess => (false, "free as soon as the last process of the holder has ended"),
        _ if profile.tie == Tie::Session => {
            (false, "free as soon as the server sees that the connection has ended")
        }
        _ => (false, "free when it has been given back by its guardian, at the latest after the ttl"),
    }
}

fn partition(profile: &Profile) -> (bool, &'static str) {
    match profile.scope {
        Scope::Process | Scope::Host => (false, "there is no network in between"),
        _ if profile.tie == Tie::Session => (
            true,
            "if the network or somebody ends the session, the lock is free before its holder has stopped",
        ),
        _ => (false, "a holder that cannot renew stops before its lease has ended"),
    }
}

fn clock_jump(timing: Timing) -> (bool, &'static str) {
    match timing {
        Timing::Untimed => (false, "no lease is timed"),
        Timing::WallClock => {
            (true, "if the server's clock is set forward, a lease ends before its holder has stopped")
        }
        Timing::WallClocks => (
            true,
            "only if the clocks of a majority are set forward: a lease ends then before its holder has stopped",
        ),
        _ => (false, "leases are timed by clocks that nobody can set"),
    }
}

fn restart(profile: &Profile) -> (bool, &'static str) {
    match profile.scope {
        Scope::Process | Scope::Host => {
            (false, "there is no server; a restart of the host ends every holder")
        }
        Scope::Server if profile.quarantine && profile.tie == Tie::Session => {
            (false, "every session ends; nothing is granted until each lease before is over, up to a minute")
        }
        Scope::Server if profile.quarantine => {
            (false, "it grants nothing until every lease that it may have forgotten is over, up to a minute")
        }
        Scope::Cluster if profile.quarantine || profile.tokens == Tokens::Durable => {
            (false, "one server may restart unnoticed; the others go on")
        }
        _ => (true, "what it has forgotten is granted again at once"),
    }
}

fn data_loss(profile: &Profile) -> (bool, &'static str) {
    match profile.scope {
        Scope::Process | Scope::Host => (
            true,
            "only if somebody removes the files of a lock that is held: for about a second, until its holder has looked",
        ),
        Scope::Server if profile.quarantine => (
            true,
            "a server that has lost data waits; but a replica that takes over while the old one still grants does not \
             know of it",
        ),
        Scope::Cluster if profile.tokens == Tokens::Durable => {
            (true, "only after a restore from a backup, which knows nothing of what was granted since")
        }
        Scope::Cluster if profile.quarantine => {
            (false, "what lost its data grants nothing until every lease that it may have forgotten is over")
        }
        _ => (true, "what it has forgotten is granted again at once"),
    }
}
