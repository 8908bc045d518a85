//! What holds in every run of a few attempts, and how the known mistakes show.
//!
//! Within seconds: two attempts on connections that keep their order, with the refusals left out, and of the tokens that
//! may be proposed first the least two. The ignored tests take minutes, and leave nothing out; `cargo xtask simulate` runs them.

use crate::explorer::{Bounds, Repair};
use crate::node::{Rules, WriteBack};

const WITHOUT_TIME: Bounds = Bounds {
    rules: Rules::RIGHT,
    attempts: 2,
    first_tokens: 2,
    timed: false,
    reorders: false,
    refusals: false,
    amnesia: None,
};
const IN_TIME: Bounds = Bounds { timed: true, ..WITHOUT_TIME };
const UNLOCKED: Rules = Rules { checks_holder: false, ..Rules::RIGHT };

fn holds(what: &str, bounds: Bounds) {
    let explored = bounds.explore();
    let (states, granted, again) = (explored.states.len(), explored.all_granted, explored.proposed_again);
    println!("{what}: {states} states, all granted in {granted}, proposed again in {again}");
    assert!(explored.violation.is_none(), "{}", explored.violation.unwrap_or_default());
    assert!(granted > 0, "nothing was at stake");
}

fn breaks(what: &str, bounds: Bounds, theorem: &str) {
    let explored = bounds.explore();
    let violation = explored.violation.expect("it is wrong");
    println!("{what}: after {} states, {violation}", explored.states.len());
    assert!(violation.starts_with(theorem), "{violation}");
}

const fn with(write_back: WriteBack) -> Rules {
    Rules { write_back, ..Rules::RIGHT }
}

#[test]
fn tokens_are_unique_and_ordered_without_any_time() {
    holds("two attempts without time", WITHOUT_TIME);
}

#[test]
fn one_holder_at_a_time_and_tokens_in_its_order() {
    holds("two attempts in time", Bounds { reorders: true, refusals: true, ..IN_TIME });
}

#[test]
fn seeded_node_repeats_no_token() {
    holds("a seeded node", Bounds { amnesia: Some(Repair::Reseed), ..IN_TIME });
}

#[test]
fn node_without_its_data_repeats_a_token() {
    breaks("a node that forgot", Bounds { amnesia: Some(Repair::None), ..IN_TIME }, "R1");
}

#[test]
fn counts_of_grants_repeat_a_token() {
    let bounds = Bounds { rules: Rules::COUNTING, first_tokens: 1, ..WITHOUT_TIME };
    breaks("counted, without time", bounds, "R1");
}

#[test]
#[ignore = "takes minutes"]
fn counts_of_grants_repeat_a_token_also_in_time() {
    let rules = Rules::COUNTING;
    breaks("counted, in time", Bounds { rules, attempts: 3, first_tokens: 1, ..IN_TIME }, "R1");
}

#[test]
fn equal_token_written_back_is_a_repeated_token() {
    let bounds = Bounds { rules: with(WriteBack::IfNotGreater), first_tokens: 1, ..WITHOUT_TIME };
    breaks("written back with <=", bounds, "R1");
}

const fn with_lock(write_with_lock: WriteBack) -> Rules {
    Rules { write_with_lock, ..Rules::RIGHT }
}

#[test]
fn equal_token_written_with_the_lock_is_a_repeated_token() {
    let rules = with_lock(WriteBack::IfNotGreater);
    breaks("written with the lock with <=, without time", Bounds { rules, ..WITHOUT_TIME }, "R1");
    breaks("written with the lock with <=, in time", Bounds { rules, ..IN_TIME }, "R1");
}

#[test]
fn token_written_with_the_lock_whatever_the_counter_is_goes_back() {
    let rules = with_lock(WriteBack::Always);
    let violation = Bounds { rules, ..IN_TIME }.explore().violation.expect("it is wrong");
    println!("{violation}");
}

#[test]
#[ignore = "takes minutes"]
fn any_token_may_be_proposed_first() {
    holds("any first token, without time", Bounds { first_tokens: 4, ..WITHOUT_TIME });
    let in_time = Bounds { first_tokens: 4, reorders: true, refusals: true, ..IN_TIME };
    holds("any first token, in time", in_time);
    let amnesia = Some(Repair::Reseed);
    holds("any first token, a seeded node", Bounds { first_tokens: 3, amnesia, ..IN_TIME });
}

/// What makes the explorations small leaves no state out.
#[test]
#[ignore = "takes minutes"]
fn numbering_of_the_nodes_makes_no_difference() {
    let bounds = Bounds { reorders: true, refusals: true, ..IN_TIME };
    let (some, each) = (bounds.explore(), bounds.explore_each());
    println!("{} states stand for {}", some.states.len(), each.visited);
    assert!(some.states == each.states, "the same states are reached");
}

#[test]
#[ignore = "takes minutes"]
fn tokens_need_no_lock_at_the_proposal() {
    holds("proposals without a lock", Bounds { rules: UNLOCKED, ..WITHOUT_TIME });
}

#[test]
#[ignore = "takes minutes"]
fn tokens_are_unique_and_ordered_also_when_messages_overtake() {
    holds("two attempts without time, out of order", Bounds { reorders: true, ..WITHOUT_TIME });
}

#[test]
#[ignore = "takes minutes"]
fn refusals_that_arrive_change_nothing_of_it() {
    holds("two attempts without time, with refusals", Bounds { refusals: true, ..WITHOUT_TIME });
}

#[test]
#[ignore = "takes minutes"]
fn seeded_node_repeats_no_token_without_any_time() {
    let amnesia = Some(Repair::Reseed);
    holds("a seeded node, out of order", Bounds { reorders: true, amnesia, ..IN_TIME });
}

#[test]
#[ignore = "takes minutes"]
fn three_attempts_hold_one_after_the_other() {
    holds("three attempts in time", Bounds { attempts: 3, first_tokens: 1, ..IN_TIME });
}
