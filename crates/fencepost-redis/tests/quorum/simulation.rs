//! What holds over thousands of seeds, each with its own faults.

use crate::scenario::{Amnesia, Floor, Scenario, Steps};
use crate::seeds::{Part, hold};
use crate::tally::Count;

/// What must have happened in the seeds of every test with all faults.
const FAULTS: &[Count] = &[
    Count::HeldAfterOneRound,
    Count::HeldAfterSeveral,
    Count::Contended,
    Count::LateAttempt,
    Count::Outvoted,
    Count::Unreachable,
    Count::QuarantinedAttempt,
    Count::ProposalWithoutLock,
    Count::LateAcknowledgement,
    Count::Renewed,
    Count::UnconfirmedRenewal,
    Count::DeadlinePassed,
    Count::FilledIn,
    Count::CancelledGrant,
    Count::UnconfirmedCancellation,
    Count::LostMessage,
    Count::CutConnection,
    Count::RequestAfterItsConnection,
    Count::PausedHolder,
    Count::Died,
    Count::NodeDown,
    Count::LostData,
    Count::OldData,
    Count::SeededByWitnesses,
];

fn everything_holds(name: &'static str, from: u64) {
    hold(Scenario::RIGHT.named(name), Part { from, to: from + 15 }, FAULTS);
}

#[test]
fn theorems_hold_under_faults_in_the_first_seeds() {
    everything_holds("theorems_hold_under_faults_in_the_first_seeds", 0);
}

#[test]
fn theorems_hold_under_faults_in_the_second_seeds() {
    everything_holds("theorems_hold_under_faults_in_the_second_seeds", 15);
}

#[test]
fn theorems_hold_under_faults_in_the_third_seeds() {
    everything_holds("theorems_hold_under_faults_in_the_third_seeds", 30);
}

#[test]
fn theorems_hold_under_faults_in_the_last_seeds() {
    everything_holds("theorems_hold_under_faults_in_the_last_seeds", 45);
}

#[test]
fn stepped_clock_breaks_no_lease_that_has_slack() {
    let scenario = Scenario { steps: Steps::OneWithinSlack, ..Scenario::RIGHT };
    let bites = [Count::SteppedClock, Count::SteppedUnderHolder, Count::Renewed];
    hold(scenario.named("stepped_clock_breaks_no_lease_that_has_slack"), Part { from: 60, to: 75 }, &bites);
}

#[test]
fn tokens_are_unique_and_ordered_whatever_the_clocks_do() {
    let scenario = Scenario { steps: Steps::All, floor: Floor::Near, ..Scenario::RIGHT };
    let bites = [
        Count::HeldAfterOneRound,
        Count::HeldAfterSeveral,
        Count::SteppedUnderHolder,
        Count::StaleProposal,
        Count::ProposedAgain,
        Count::RefusedLease,
    ];
    hold(
        scenario.named("tokens_are_unique_and_ordered_whatever_the_clocks_do"),
        Part { from: 75, to: 90 },
        &bites,
    );
}

#[test]
fn wall_clocks_order_the_tokens_where_all_memory_is_lost() {
    let scenario = Scenario { amnesia: Amnesia::All, floor: Floor::Always, ..Scenario::RIGHT };
    let bites = [Count::LostData, Count::SeededByWallClock, Count::SeededByWitnesses];
    hold(
        scenario.named("wall_clocks_order_the_tokens_where_all_memory_is_lost"),
        Part { from: 90, to: 100 },
        &bites,
    );
}
