//! What happens under each fault, read off a profile: whether two can overlap, and what the fence does then.
//!
//! Invariant: nothing here asks which backend it is; what a profile does not say is not promised. This is the only table:
//! `advise` and `explain` both show it.

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
    /// A holder's host is gone, or stands still as a virtual machine does that is moved.
    LostHost,
    /// A holder does not reach the store.
    Partition,
    /// Somebody ends the session that the lock is tied to.
    LostSession,
    /// A clock is set.
    ClockJump,
    /// The store restarts, with its data.
    ServerRestart,
    /// The store loses data, or what takes over lacks some.
    DataLoss,
    /// Another server takes over while the old one still runs.
    Failover,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::Pause,
        Self::Crash,
        Self::LostHost,
        Self::Partition,
        Self::LostSession,
        Self::ClockJump,
        Self::ServerRestart,
        Self::DataLoss,
        Self::Failover,
    ];

    /// Whether it is asked of every lock. The others are cases of these, told apart where a lock is explained.
    pub const fn is_general(self) -> bool {
        !matches!(self, Self::LostHost | Self::LostSession | Self::Failover)
    }

    /// Its name in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "no fault",
            Self::Pause => "pause",
            Self::Crash => "crash",
            Self::LostHost => "lost host",
            Self::Partition => "partition",
            Self::LostSession => "lost session",
            Self::ClockJump => "clock jump",
            Self::ServerRestart => "restart",
            Self::DataLoss => "data loss",
            Self::Failover => "failover",
        }
    }

    /// Its name for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::None => "no_fault",
            Self::Pause => "pause",
            Self::Crash => "crash",
            Self::LostHost => "lost_host",
            Self::Partition => "partition",
            Self::LostSession => "lost_session",
            Self::ClockJump => "clock_jump",
            Self::ServerRestart => "server_restart",
            Self::DataLoss => "data_loss",
            Self::Failover => "failover",
        }
    }
}

/// What happens under one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// What happens under every fault that a lock with this profile can meet, with a fence or without.
pub fn risks(profile: &Profile, fenced: bool) -> Vec<Risk> {
    Fault::ALL.into_iter().filter_map(|fault| risk(fault, profile, fenced)).collect()
}

fn risk(fault: Fault, profile: &Profile, fenced: bool) -> Option<Risk> {
    let (two_may_overlap, what_happens) = match fault {
        Fault::None => (false, "one holder at a time"),
        Fault::Pause => pause(profile),
        Fault::Crash => crash(profile),
        Fault::LostHost => lost_host(profile)?,
        Fault::Partition => partition(profile),
        Fault::LostSession => lost_session(profile)?,
        Fault::ClockJump => clock_jump(profile.timing),
        Fault::ServerRestart => restart(profile),
        Fault::DataLoss => data_loss(profile),
        Fault::Failover => failover(profile)?,
    };
    let older_write = two_may_overlap.then(|| older_write(fault, profile, fenced));
    Some(Risk { fault, two_may_overlap, what_happens, older_write })
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
        Expiry::WithSession if profile.tie == Tie::Session => (
            true,
            "a stopped process keeps the lock, but a host that stands still for longer than the keep-alive loses it, and \
             writes on when it wakes",
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

fn lost_host(profile: &Profile) -> Option<(bool, &'static str)> {
    (profile.expiry == Expiry::WithSession).then_some((
        true,
        "free when the server has not heard of it for the ttl and some seconds; one that only stood still, as a frozen \
         virtual machine does, writes on when it wakes",
    ))
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

fn lost_session(profile: &Profile) -> Option<(bool, &'static str)> {
    let is_tied = profile.tie == Tie::Session && profile.scope >= Scope::Server;
    is_tied.then_some((
        true,
        "if somebody or the network ends the session, it is free before the command has had its grace to end",
    ))
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
        Scope::Process => (false, "it ends with this process, and so does every holder"),
        Scope::Host => (false, "there is no server; a restart of the host ends every holder"),
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
        Scope::Process => (false, "it is in no store that could lose it"),
        Scope::Host => (
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

fn failover(profile: &Profile) -> Option<(bool, &'static str)> {
    (profile.scope == Scope::Server).then_some((
        true,
        "a replica that took over, while the old server still grants to those who reach it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Pattern, promised};

    fn overlaps(url: &str, fault: Fault) -> Option<bool> {
        let profile = promised(&url.parse().unwrap()).unwrap();
        risks(&profile, false).into_iter().find(|risk| risk.fault == fault).map(|risk| risk.two_may_overlap)
    }

    #[test]
    fn host_that_stands_still_lets_two_overlap_wherever_others_go_on_without_it() {
        for pattern in Pattern::ALL {
            let url = format!("{}:x", pattern.name());
            let goes_on = pattern != Pattern::File;
            assert_eq!(overlaps(&url, Fault::Pause), Some(goes_on), "{url}");
            assert_ne!(overlaps(&url, Fault::LostHost), Some(false), "{url}");
        }
        assert_eq!(overlaps("postgres:x", Fault::LostHost), Some(true));
    }

    #[test]
    fn stopped_process_keeps_its_lock_only_where_it_keeps_its_session() {
        let told = |url: &str| {
            let profile = promised(&url.parse().unwrap()).unwrap();
            pause(&profile).1.starts_with("a stopped process keeps the lock")
        };
        assert_eq!((told("postgres:x"), told("postgres:x?on_pause=expire")), (true, false));
    }

    #[test]
    fn quarantine_that_is_off_shows_in_a_restart() {
        for kind in ["redis", "redlock", "postgres"] {
            assert_eq!(overlaps(&format!("{kind}:x"), Fault::ServerRestart), Some(false), "{kind}");
            assert_eq!(
                overlaps(&format!("{kind}:x?quarantine=off"), Fault::ServerRestart),
                Some(true),
                "{kind}"
            );
        }
    }
}
