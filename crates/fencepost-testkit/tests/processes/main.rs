//! The suite with several processes: a healthy lock server passes it with leases that run out and with holds that last
//! as their process, and each case with several processes fails on a server with the fitting defect.

mod client;
mod server;
mod wire;

use std::collections::BTreeSet;

use fencepost_core::{Expiry, Locks, Profile};
use fencepost_testkit::Harness;
use fencepost_testkit::broken::{Defect, Lie};
use fencepost_testkit::conformance::{self, Needs};

use client::{AFTER_TTL, Client, WITH_PROCESS};
use server::{Misdeed, Server};

struct AfterTtl(Server);

impl Harness for AfterTtl {
    fn start() -> Self {
        Self(Server::start(Expiry::AfterTtl, None, Misdeed::None))
    }

    fn locks(&self) -> Locks {
        Locks::new(Client::new(self.0.socket(), AFTER_TTL))
    }

    fn address(&self) -> Option<String> {
        Some(self.0.socket().display().to_string())
    }

    fn from_address(address: &str) -> Locks {
        Locks::new(Client::new(address.into(), AFTER_TTL))
    }
}

struct WithProcess(Server);

impl Harness for WithProcess {
    fn start() -> Self {
        Self(Server::start(Expiry::WithProcess, None, Misdeed::None))
    }

    fn locks(&self) -> Locks {
        Locks::new(Client::new(self.0.socket(), WITH_PROCESS))
    }

    fn address(&self) -> Option<String> {
        Some(self.0.socket().display().to_string())
    }

    fn from_address(address: &str) -> Locks {
        Locks::new(Client::new(address.into(), WITH_PROCESS))
    }
}

fencepost_testkit::conformance!(after_ttl: AfterTtl);
fencepost_testkit::conformance!(with_process: WithProcess);

macro_rules! controls {
    ($($test:ident: $case:ident, $profile:ident, $defect:expr, $misdeed:ident, $words:literal;)+) => {
        const CONTROLLED: &[&str] = &[$(stringify!($case)),+];

        mod controls {
            use super::*;

            $(#[test]
            fn $test() {
                assert_bites(stringify!($case), $profile, $defect, Misdeed::$misdeed, $words);
            })+
        }
    };
}

controls! {
    second_process_is_let_in: lock_of_another_process_is_refused_and_seen,
        AFTER_TTL, Some(Defect::GrantsWhileHeld), None, "two processes hold the lock";
    label_of_another_process_is_hidden: lock_of_another_process_is_refused_and_seen,
        AFTER_TTL, Some(Defect::Shows(Lie::NoLabel)), None, "the holder's label is not seen";
    tokens_go_back: tokens_grow_across_processes_and_their_restarts,
        AFTER_TTL, Some(Defect::LowersTokens), None, "came after";
    increments_overlap: increments_of_many_processes_do_not_overlap,
        AFTER_TTL, Some(Defect::GrantsWhileHeld), None, "overlap";
    killed_holder_keeps_a_lease_that_runs_out: lock_of_a_killed_holder_comes_free,
        AFTER_TTL, Some(Defect::NeverFrees), None, "freeing the lock of a killed holder took more than";
    killed_holder_keeps_the_lock: lock_of_a_killed_holder_comes_free,
        WITH_PROCESS, None, KeepsTheDead, "freeing the lock of a killed holder took more than";
    killed_process_keeps_the_lock: process_killed_at_any_instant_leaves_no_holder,
        WITH_PROCESS, None, KeepsTheDead, "freeing the lock of a killed process took more than";
    stopped_holder_loses_the_lock: stopped_holder_keeps_the_lock,
        WITH_PROCESS, None, EndsTheSilent, "the lock of a stopped holder was given to another";
    grant_is_old_when_it_is_read: lease_granted_to_a_stopped_waiter_is_not_believed_in_too_long,
        AFTER_TTL, None, ConfirmsOldGrants, "longer than the store keeps it";
    killed_waiter_is_served: killed_waiter_does_not_keep_others_from_the_lock,
        WITH_PROCESS, None, KeepsTheDead, "waiters were not served";
    stopped_waiter_is_waited_for: stopped_waiter_does_not_keep_others_from_the_lock,
        WITH_PROCESS, None, WaitsForTheStopped, "did not answer in";
    open_descriptor_keeps_nothing: descriptor_that_stays_open_keeps_the_lock_taken,
        WITH_PROCESS, None, ReleasesTooMuch, "the lock was freed while its descriptor was open";
    revoked_lease_is_over_at_once: revoked_lock_is_free_when_its_holder_has_let_go_and_not_before,
        REVOCABLE_WITH_PROCESS, None, None, "the next holder came before the revoked one had let go";
    nothing_is_given_back: lease_can_be_freed_by_another_process,
        AFTER_TTL, Some(Defect::GivesBackNothing), None, "it was given back already";
    stopped_holder_keeps_a_lease_that_runs_out: paused_holder_loses_the_lock_and_is_fenced_off,
        AFTER_TTL, Some(Defect::NeverFrees), None, "the next holder took more than";
    lease_of_a_stopped_holder_ends_early: paused_holder_loses_the_lock_and_is_fenced_off,
        AFTER_TTL, Some(Defect::FreesTooEarly), None, "the store took it back after";
}

/// What the server does not keep: it frees a lock as soon as its lease is revoked.
const REVOCABLE_WITH_PROCESS: Profile = WITH_PROCESS.revocable();

struct BrokenServer(Server, Profile);

impl Harness for BrokenServer {
    fn start() -> Self {
        unreachable!("a control makes it with a defect")
    }

    fn locks(&self) -> Locks {
        Locks::new(Client::new(self.0.socket(), self.1))
    }

    fn address(&self) -> Option<String> {
        Some(self.0.socket().display().to_string())
    }
}

fn assert_bites(case: &str, profile: Profile, defect: Option<Defect>, misdeed: Misdeed, words: &str) {
    let broken = BrokenServer(Server::start(profile.expiry, defect, misdeed), profile);
    let worker = match profile.expiry {
        Expiry::AfterTtl => "processes::after_ttl::worker",
        _ => "processes::with_process::worker",
    };
    let message = conformance::failure(case, &broken, worker);
    let message =
        message.unwrap_or_else(|| panic!("{case} passes on a server with {defect:?} and {misdeed:?}"));
    assert!(
        message.contains(words),
        "{case} fails on {defect:?} and {misdeed:?} for another reason: {message}"
    );
}

#[test]
fn every_case_with_several_processes_has_a_control() {
    let controlled: BTreeSet<&str> = CONTROLLED.iter().copied().collect();
    let needing = conformance::cases().filter(|(_, needs)| *needs == Needs::Processes);
    let missing: Vec<&str> =
        needing.map(|(case, _)| case).filter(|case| !controlled.contains(case)).collect();
    assert!(missing.is_empty(), "without a control: {missing:?}");
}
