//! What happens under each fault, as it follows from a profile: no backend is known here by its name.

use fencepost::{Expiry, Profile, Scope, Tie, Timing, Tokens};
use serde::Serialize;

/// What happens under one fault.
#[derive(Debug, Serialize)]
pub(super) struct Promise {
    pub(super) fault: &'static str,
    pub(super) two_may_overlap: &'static str,
    pub(super) what_happens: String,
}

/// What is promised under each fault, where the lock has a fence or none.
pub(super) fn promises(profile: &Profile, is_fenced: bool) -> Vec<Promise> {
    let mut rows = vec![no("no fault", "one holder at a time")];
    rows.extend(match profile.expiry {
        Expiry::WithProcess => with_process(),
        Expiry::WithSession => with_session(profile),
        _ => after_ttl(profile),
    });
    let mut promises: Vec<Promise> = rows.into_iter().map(|row| row.told(is_fenced)).collect();
    promises.extend(elsewhere(profile.scope).into_iter().map(|row| row.told(false)));
    promises
}

/// A fault, whether two may overlap then, and what happens.
struct Row(&'static str, bool, &'static str);

const fn no(fault: &'static str, what_happens: &'static str) -> Row {
    Row(fault, false, what_happens)
}

const fn yes(fault: &'static str, what_happens: &'static str) -> Row {
    Row(fault, true, what_happens)
}

impl Row {
    fn told(self, is_fenced: bool) -> Promise {
        let Self(fault, overlaps, what_happens) = self;
        let two_may_overlap = if overlaps { "yes" } else { "no" };
        let fenced = if overlaps && is_fenced { "; the fence refuses the older holder" } else { "" };
        Promise { fault, two_may_overlap, what_happens: format!("{what_happens}{fenced}") }
    }
}

fn with_process() -> Vec<Row> {
    vec![
        no("pause", "a stopped holder keeps the lock; the others wait"),
        no("crash", "free as soon as the last process of the command has ended"),
        no("partition", "there is no network in it"),
        no("clock jump", "no lease is timed; tokens grow on even if the clock went back"),
        no("restart", "a reboot ends every holder"),
        yes(
            "data loss",
            "if both files of a held lock are removed: until its holder looks (1 s) and its command has stopped",
        ),
    ]
}

fn with_session(profile: &Profile) -> Vec<Row> {
    let mut rows = vec![
        no("pause", "a stopped holder keeps the lock, without its command; the others wait"),
        no("crash", "free as soon as the last process of the command has ended"),
        no("lost host", "free when the server has not heard of it for the ttl and some seconds"),
    ];
    rows.extend(on_a_server(profile));
    rows
}

fn after_ttl(profile: &Profile) -> Vec<Row> {
    let mut rows = vec![
        yes("pause", "a holder that is paused between its check and its write goes on late"),
        no("crash", "free when the guardian has given it back, at the latest after the ttl"),
    ];
    rows.extend(on_a_server(profile));
    rows
}

/// What a server, and the way to it, do to a lock.
fn on_a_server(profile: &Profile) -> Vec<Row> {
    let mut rows = Vec::new();
    if profile.scope == Scope::Process {
        rows.extend([no("partition", "there is no network in it"), clock_jump(profile.timing)]);
        rows.push(no("restart", "it ends with this process, and so does every holder"));
        return rows;
    }
    rows.push(no(
        "partition",
        "a holder that is cut off stops at its own deadline, before the lock goes to another",
    ));
    if profile.tie == Tie::Session {
        rows.push(yes(
            "lost session",
            "if somebody or the network ends the session, it is free before the command has had its grace to end",
        ));
    }
    rows.push(clock_jump(profile.timing));
    rows.extend(losses(profile));
    if profile.scope == Scope::Server {
        rows.push(yes(
            "failover",
            "a replica that took over, while the old server still grants to those who reach it",
        ));
    }
    rows
}

fn clock_jump(timing: Timing) -> Row {
    let fault = "clock jump";
    match timing {
        Timing::WallClock => {
            yes(fault, "if the server's clock is set forward while the lock is held, another gets it early")
        }
        Timing::WallClocks => {
            yes(fault, "if the clocks of a majority of the nodes are set forward, another gets it early")
        }
        _ => no(fault, "deadlines are counted on a clock that only runs forward"),
    }
}

/// The servers are restarted, or lose what they knew.
fn losses(profile: &Profile) -> [Row; 2] {
    if profile.quarantine {
        let restart = "a server that may have lost its locks grants nothing until every lease is over";
        let data = "the same; tokens grow on as long as the wall clock has not gone back";
        return [no("restart", restart), no("data loss", data)];
    }
    let is_kept = profile.tokens == Tokens::Durable && profile.tie == Tie::Lease;
    if is_kept {
        let restored =
            "if a copy from before the grant is restored: the lock is free there, and tokens go back";
        return [no("restart", "leases and tokens are kept over it"), yes("data loss", restored)];
    }
    let off = "the quarantine is off: a server that has lost its locks grants at once";
    [yes("restart", off), yes("data loss", off)]
}

/// Where the lock is not seen.
fn elsewhere(scope: Scope) -> Vec<Row> {
    let mut rows = Vec::new();
    if scope == Scope::Process {
        rows.push(yes("other runs", "another process does not see this lock at all"));
    }
    if scope <= Scope::Host {
        rows.push(yes("other hosts", "a job on another host does not see this lock at all"));
    }
    if scope == Scope::Server {
        rows.push(yes("other databases", "the same name in another database of the server is another lock"));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_says_what_happens_under_every_fault() {
        for profile in fencepost::profiles() {
            for fault in ["no fault", "pause", "crash", "partition", "clock jump", "restart"] {
                let count = promises(&profile, false).iter().filter(|promise| promise.fault == fault).count();
                assert_eq!(count, 1, "{fault} on {}", profile.backend);
            }
        }
    }

    #[test]
    fn fence_is_named_where_two_may_overlap_and_only_there() {
        for profile in fencepost::profiles() {
            let told = promises(&profile, true);
            for promise in &told {
                let is_named = promise.what_happens.contains("the fence refuses");
                assert!(!is_named || promise.two_may_overlap == "yes", "{promise:?}");
            }
            let unfenced = promises(&profile, false);
            assert!(unfenced.iter().all(|promise| !promise.what_happens.contains("the fence refuses")));
        }
    }
}
