//! Negative controls: what is known to be wrong is found to be wrong, by the check that finds nothing elsewhere.

use crate::history::{History, Hold, Violation};
use crate::node::{Rules, WriteBack};
use crate::scenario::{Amnesia, Flaw, Floor, Scenario, Steps};
use crate::seeds::first_broken;

/// Each flaw shows well before that.
const MOST_SEEDS: u64 = 20_000;

fn found(what: &str, scenario: Scenario, is: fn(&Violation) -> bool) {
    let (seed, violations) = first_broken(scenario, MOST_SEEDS, is).expect("a seed shows it");
    println!("{what}: seed {seed} shows {violations:?}");
}

fn is_about_tokens(violation: &Violation) -> bool {
    use Violation::{SameToken, TokenAgainstLockOrder, TokenNotGreater};
    matches!(violation, SameToken { .. } | TokenNotGreater { .. } | TokenAgainstLockOrder { .. })
}

fn is_about_holders(violation: &Violation) -> bool {
    matches!(violation, Violation::TwoHolders { .. })
}

const UNGUARDED: Scenario = Scenario {
    rules: Rules { guard: false, ..Rules::RIGHT },
    floor: Floor::Never,
    amnesia: Amnesia::Minority,
    ..Scenario::RIGHT
};

#[test]
fn lost_data_without_quarantine_lets_two_holders_in() {
    found("no quarantine", UNGUARDED, is_about_holders);
}

#[test]
fn lost_data_without_quarantine_and_floor_repeats_tokens() {
    found("no quarantine, no floor", UNGUARDED, is_about_tokens);
}

/// Tokens without a floor from the clock, and nodes that lose their data, as many as the counters allow for.
const BY_COUNTERS_ALONE: Scenario = Scenario { floor: Floor::Never, ..Scenario::RIGHT };

#[test]
fn delayed_restart_without_a_floor_repeats_tokens() {
    let scenario = Scenario { flaw: Flaw::SeedsNothing, ..BY_COUNTERS_ALONE };
    found("quarantine, no floor", scenario, is_about_tokens);
}

#[test]
fn floor_without_enough_witnesses_repeats_tokens() {
    let scenario = Scenario { flaw: Flaw::SeedsTooSoon, ..BY_COUNTERS_ALONE };
    found("floor from any majority", scenario, is_about_tokens);
}

#[test]
fn nodes_that_are_never_seeded_leave_everybody_out() {
    let scenario = Scenario { flaw: Flaw::SeedsNever, amnesia: Amnesia::All, ..Scenario::RIGHT };
    found("never seeded", scenario, |violation| matches!(violation, Violation::NotLive { .. }));
}

#[test]
fn late_request_without_tombstones_is_granted_after_its_cancellation() {
    let rules = Rules { tombstones: false, ..Rules::RIGHT };
    let scenario = Scenario { rules, ..Scenario::RIGHT };
    found("no tombstones", scenario, |violation| matches!(violation, Violation::GrantedAfterCancel { .. }));
}

#[test]
fn counting_grants_without_writing_back_repeats_tokens() {
    found("the greatest of the counts", Scenario::broken(Rules::COUNTING), is_about_tokens);
}

#[test]
fn writing_back_an_equal_token_repeats_it() {
    // With clocks that can be relied on it would do no harm: whoever read the smaller counter has its time run out.
    let rules = Rules { write_back: WriteBack::IfNotGreater, ..Rules::RIGHT };
    let scenario = Scenario { steps: Steps::All, ..Scenario::broken(rules) };
    found("written back with <=", scenario, is_about_tokens);
}

#[test]
fn equal_token_written_with_the_lock_is_repeated() {
    let rules = Rules { write_with_lock: WriteBack::IfNotGreater, ..Rules::RIGHT };
    found("written with the lock with <=", Scenario::broken(rules), is_about_tokens);
}

#[test]
fn token_written_with_the_lock_whatever_the_counter_is_goes_back() {
    let rules = Rules { write_with_lock: WriteBack::Always, ..Rules::RIGHT };
    found("written with the lock, whatever the counter", Scenario::broken(rules), is_about_tokens);
}

#[test]
fn term_counted_from_the_answer_lets_two_holders_in() {
    let scenario = Scenario { flaw: Flaw::CountsFromTheAnswer, amnesia: Amnesia::None, ..Scenario::RIGHT };
    found("counted from the answer", scenario, is_about_holders);
}

#[test]
fn acknowledgements_of_several_rounds_do_not_make_one_majority() {
    let scenario = Scenario { flaw: Flaw::MixesRounds, amnesia: Amnesia::None, ..Scenario::RIGHT };
    found("rounds added up", scenario, is_about_holders);
}

#[test]
fn stepped_clock_lets_two_holders_in_where_there_is_no_slack() {
    let scenario = Scenario { steps: Steps::One, ..Scenario::RIGHT };
    found("a stepped clock without slack", scenario, is_about_holders);
}

fn hold(holder: u32, token: u64, began: u64, claim: (u64, u64)) -> Hold {
    Hold { holder, token, began, returned: claim.0, claims: vec![claim] }
}

fn violations(holds: [Hold; 2]) -> Vec<Violation> {
    History { holds: holds.into(), wrong: Vec::new() }.violations()
}

#[test]
fn check_finds_each_violation_by_itself() {
    assert_eq!(violations([hold(1, 1, 0, (2, 5)), hold(2, 2, 1, (5, 9))]), []);
    let overlap = violations([hold(1, 1, 0, (2, 6)), hold(2, 2, 1, (5, 9))]);
    assert_eq!(overlap, [Violation::TwoHolders { holders: [1, 2], from: 5, to: 6 }]);
    let order = violations([hold(1, 3, 0, (2, 5)), hold(2, 2, 1, (5, 9))]);
    assert_eq!(order, [Violation::TokenAgainstLockOrder { earlier: (1, 3), later: (2, 2) }]);
    let late = violations([hold(1, 3, 0, (2, 5)), hold(2, 2, 2, (5, 9))]);
    assert!(late.contains(&Violation::TokenNotGreater { earlier: (1, 3), later: (2, 2) }), "{late:?}");
    let same = violations([hold(1, 2, 0, (2, 5)), hold(2, 2, 1, (5, 9))]);
    assert!(same.contains(&Violation::SameToken { token: 2, holders: [1, 2] }), "{same:?}");
}
