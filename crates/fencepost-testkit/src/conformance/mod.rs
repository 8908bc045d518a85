//! The suite that every backend runs unchanged: the list of its cases, and what becomes of each with one backend.
//!
//! The list stands here once; [`conformance!`](crate::conformance!) makes a named test of each entry. Invariant: a case
//! that the profile claims is run, or waived with a reason, or fails.

mod detaching;
mod ending;
mod faults;
mod fencing;
mod giving_up;
mod holding;
mod keeping_a_logbook;
mod lifting;
mod looking;
mod processes;
mod refusing;
mod resting;
mod revoking;
mod sets;
mod sharing;
mod slots;
mod stage;
mod terms;
mod waiting;
mod watching;
mod when;

use std::panic::AssertUnwindSafe;

use stage::Stage;
use when::{Standing, When};

use crate::harness::Harness;

pub(crate) use looking::awkward_names;
pub use when::Needs;

/// The list of all cases: theme, kind of function, name, and when it is run. Hands it to the macro `$then`.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($then:ident $($with:tt)*) => {
        $crate::$then! { ($($with)*)
            holding async second_token_is_greater_and_the_lease_is_held_between: ALWAYS;
            holding async tokens_grow_over_two_hundred_acquisitions: ALWAYS;
            holding async held_lock_refuses_a_second_holder: ALWAYS;
            holding async lock_is_not_reentrant: ALWAYS;
            holding async locks_of_different_names_are_apart: ALWAYS;
            holding fn increments_of_many_tasks_do_not_overlap: ALWAYS;

            waiting async wait_with_a_limit_ends_on_time_and_leaves_no_trace: ALWAYS;
            waiting async wait_of_no_time_is_one_try: ALWAYS;
            waiting async release_wakes_a_waiter: ALWAYS;
            waiting async waiter_is_seen_while_it_waits: SHOWS_WAITERS;
            waiting fn every_waiter_is_served: ALWAYS;
            waiting async waiters_are_served_in_order: IS_QUEUED;
            waiting async lease_won_after_a_wait_is_a_whole_one: RUNS_OUT;

            giving_up async dropped_waiter_leaves_no_trace: SHOWS_WAITERS;
            giving_up fn acquire_dropped_at_any_instant_leaves_nothing: ALWAYS;

            looking async inspect_shows_the_holder_and_its_grant: ALWAYS;
            looking async free_lock_is_seen_as_free: ALWAYS;
            looking async list_shows_held_locks_in_the_order_of_their_names: ALWAYS;
            looking async awkward_names_are_different_locks_and_come_back_as_given: ALWAYS;

            revoking async revoke_with_another_token_changes_nothing: IS_REVOCABLE;
            revoking async revoked_holder_hears_of_it_and_the_next_token_is_greater: IS_REVOCABLE;
            revoking async revoked_holder_is_told_why: PUSHES_REVOCATIONS;
            revoking async revoked_lock_is_free_when_its_holder_has_let_go_and_not_before: IS_REVOCABLE_AND_ENDS_WITH_THE_PROCESS;
            revoking async revoke_is_refused_where_it_is_not_promised: IS_NOT_REVOCABLE;
            revoking async foreign_give_back_changes_nothing: ALWAYS;
            revoking async lease_can_be_freed_by_another_process: IS_GIVEN_BACK_BY_OTHERS;
            revoking async set_gives_up_when_a_lease_in_it_is_lost: PUSHES_REVOCATIONS;

            lifting async lift_raises_the_next_token: ALWAYS;
            lifting async lower_lift_changes_nothing: ALWAYS;
            lifting async lift_of_a_held_lock_leaves_its_holder_alone: ALWAYS;
            lifting async lift_above_two_to_the_fifty_third_is_exact_or_refused: ALWAYS;

            resting async released_lock_rests_and_is_then_free: RESTS;
            resting async waiter_gets_a_resting_lock_when_its_time_has_come: RESTS;
            resting async rest_is_counted_from_the_grant: RESTS;
            resting async rest_is_refused_where_it_is_not_promised: NEVER_RESTS;

            terms async claim_that_is_not_renewed_ends_after_its_ttl_and_not_before: RUNS_OUT;
            terms async claim_that_ran_out_cannot_be_renewed: RUNS_OUT;
            terms async claim_that_ran_out_cannot_be_released: RUNS_OUT;
            terms fn holder_keeps_the_lock_while_its_executor_is_blocked: RUNS_OUT;
            terms async deadline_ends_inside_the_term_of_the_store: RUNS_OUT;
            terms fn paused_holder_loses_the_lock_and_is_fenced_off: RUNS_OUT_AND_PAUSES;

            ending async lease_dropped_inside_a_runtime_frees_the_lock: ALWAYS;
            ending fn lease_dropped_outside_any_runtime_frees_the_lock: ALWAYS;
            ending async run_gives_what_the_work_gave_and_frees_the_lock: ALWAYS;
            ending async run_can_be_spawned: ALWAYS;
            ending async panic_in_the_work_frees_the_lock: ALWAYS;
            ending async run_ends_its_work_when_the_lease_is_lost: IS_REVOCABLE;
            ending async descriptor_that_stays_open_keeps_the_lock_taken: LASTS_AS_THE_PROCESS;
            ending async futures_of_users_can_cross_threads: ALWAYS;

            detaching async detached_lease_is_renewed_and_given_back_by_others: IS_DETACHABLE;
            detaching async detached_lease_that_has_ended_is_not_revived: IS_DETACHABLE;
            detaching async detached_lease_that_rests_is_renewed_by_nobody: IS_DETACHABLE_AND_RESTS;
            detaching async lease_that_ends_with_its_holder_is_not_detached: IS_NOT_DETACHABLE;

            sharing async readers_hold_it_together_and_all_are_seen: IS_SHARED;
            sharing async writer_waits_for_the_last_reader_and_readers_for_the_writer: IS_SHARED;
            sharing async reader_goes_behind_a_writer_that_waits: IS_SHARED;
            sharing async tokens_of_readers_grow_and_that_of_the_next_writer_is_greater: IS_SHARED;
            sharing async dropped_writer_lets_the_readers_behind_it_in: IS_SHARED;
            sharing async reader_that_is_revoked_leaves_the_others_alone: IS_SHARED_AND_REVOCABLE;
            sharing async reader_that_is_gone_frees_the_lock_for_a_writer: IS_SHARED_AND_RUNS_OUT;
            sharing fn readers_and_writers_of_many_tasks_do_not_overlap: IS_SHARED;
            sharing async sharing_is_refused_where_it_is_not_promised: IS_NOT_SHARED;

            slots async as_many_hold_a_slot_as_there_are: HAS_SLOTS;
            slots async waiter_gets_whichever_slot_comes_free: HAS_SLOTS;
            slots async slots_are_refused_where_they_are_not_promised: HAS_NO_SLOTS;

            keeping_a_logbook async logbook_is_there_for_the_next_holder: KEEPS_A_LOGBOOK;
            keeping_a_logbook async lease_that_is_gone_writes_no_logbook: KEEPS_A_LOGBOOK_AND_FREES_WHEN_REVOKED;
            keeping_a_logbook async revoked_lease_writes_no_logbook: KEEPS_A_LOGBOOK_AND_IS_REVOCABLE;
            keeping_a_logbook async period_is_begun_once: KEEPS_A_LOGBOOK;
            keeping_a_logbook async period_counts_as_done_when_its_holder_says_so: KEEPS_A_LOGBOOK;
            keeping_a_logbook async period_of_many_attempts_is_begun_once: KEEPS_A_LOGBOOK;
            keeping_a_logbook async dropped_acquire_of_a_period_leaves_no_holder: KEEPS_A_LOGBOOK;
            keeping_a_logbook async history_shows_the_last_grants_and_how_they_ended: KEEPS_A_LOGBOOK;
            keeping_a_logbook async logbook_is_refused_where_it_is_not_promised: KEEPS_NO_LOGBOOK;

            watching async watch_begins_with_what_is_not_free: ALWAYS;
            watching async changes_of_the_holder_are_told_in_their_order: ALWAYS;
            watching async change_is_signalled_where_the_store_pushes: ALWAYS;
            watching async nothing_is_told_when_nothing_changes: ALWAYS;
            watching async waiter_that_comes_and_goes_is_told: SHOWS_WAITERS;
            watching async reader_that_comes_is_told: IS_SHARED;
            watching async lease_that_runs_out_is_told: RUNS_OUT;
            watching async grants_between_two_looks_are_told_from_the_logbook: KEEPS_A_LOGBOOK;

            sets async set_comes_in_the_order_in_which_it_was_named: ALWAYS;
            sets async lock_named_twice_in_a_set_is_refused: ALWAYS;
            sets async contended_set_leaves_nothing_held: ALWAYS;
            sets fn sets_in_any_order_neither_overlap_nor_wait_for_each_other: ALWAYS;

            fencing async lease_comes_with_its_fences_sealed: ALWAYS;
            fencing async fence_that_is_ahead_makes_the_acquisition_stale_and_frees_the_lock: ALWAYS;
            fencing async fence_refuses_another_holder_with_the_same_token: ALWAYS;

            refusing async ttl_of_zero_is_refused: ALWAYS;
            refusing async ttl_above_the_longest_is_refused: HAS_A_LONGEST_TTL;
            refusing async durable_tokens_are_refused_where_they_are_not_promised: IS_NOT_DURABLE;
            refusing async name_that_is_none_is_refused: ALWAYS;

            processes fn lock_of_another_process_is_refused_and_seen: REACHES_OTHERS;
            processes fn tokens_grow_across_processes_and_their_restarts: REACHES_OTHERS;
            processes fn increments_of_many_processes_do_not_overlap: REACHES_OTHERS;

            faults fn lock_of_a_killed_holder_comes_free: REACHES_OTHERS;
            faults fn process_killed_at_any_instant_leaves_no_holder: REACHES_OTHERS;
            faults fn stopped_holder_keeps_the_lock: LASTS_WHILE_STOPPED;
            faults fn lease_granted_to_a_stopped_waiter_is_not_believed_in_too_long: RUNS_OUT_FOR_OTHERS;
            faults fn killed_waiter_does_not_keep_others_from_the_lock: REACHES_OTHERS;
            faults fn stopped_waiter_does_not_keep_others_from_the_lock: REACHES_OTHERS;
        }
    };
}

/// One entry of the list.
struct Case {
    name: &'static str,
    when: When,
    run: fn(&Stage<'_>),
}

#[doc(hidden)]
#[macro_export]
macro_rules! __table {
    (() $($theme:ident $kind:tt $case:ident: $when:ident;)*) => {
        &[$(Case {
            name: stringify!($case),
            when: when::$when,
            run: $crate::__body!($kind $theme::$case),
        }),*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __body {
    (fn $case:path) => {
        $case
    };
    (async $case:path) => {
        |stage| stage.block_on($case(stage))
    };
}

const CASES: &[Case] = crate::__cases!(__table);

/// Makes the suite's tests for one [`Harness`], which is named from the place of the call, in a module `conformance`
/// or of the given name.
///
/// `conformance!(redis: Redis, if redis_server)` makes tests that are ignored unless the configuration `redis_server` is
/// set, which the build script of the backend's crate does where the server is installed.
///
/// # Examples
/// The whole `tests/conformance.rs` of a backend whose locks reach no other process:
/// ```
/// use fencepost_core::{Clock, Locks, MemoryBackend};
/// use fencepost_testkit::Harness;
///
/// struct Memory(MemoryBackend);
///
/// impl Harness for Memory {
///     fn start() -> Self {
///         Self(MemoryBackend::new(Clock::system()))
///     }
///
///     fn locks(&self) -> Locks {
///         Locks::new(self.0.clone())
///     }
/// }
///
/// fencepost_testkit::conformance!(Memory);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    ($harness:ident $(, if $installed:ident)?) => {
        $crate::conformance!(conformance: $harness $(, if $installed)?);
    };
    ($module:ident: $harness:ident $(, if $installed:ident)?) => {
        mod $module {
            $crate::__cases!(__tests $harness [$($installed)?]);

            #[test]
            #[ignore = "a worker process of the other cases"]
            fn worker() {
                $crate::work_as_told::<super::$harness>();
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    (($harness:ident $installed:tt) $($theme:ident $kind:tt $case:ident: $when:ident;)*) => {
        $(
            $crate::__test! { $installed
                fn $case() {
                    let worker = concat!(module_path!(), "::worker");
                    $crate::conformance::run::<super::$harness>(stringify!($case), worker);
                }
            }
        )*
    };
}

/// A test, which is ignored where its server is not installed.
#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    ([] $test:item) => {
        #[test]
        $test
    };
    ([$installed:ident] $test:item) => {
        #[test]
        #[cfg_attr(not($installed), ignore = "its server is not installed")]
        $test
    };
}

/// The names of all cases, and what each needs of a harness.
pub fn cases() -> impl Iterator<Item = (&'static str, Needs)> {
    CASES.iter().map(|case| (case.name, case.when.needs()))
}

/// Runs one case on new surroundings, if the profile claims what it is about.
///
/// # Panics
/// When the backend fails it, when the harness cannot exercise it and does not say why, and when it says why in vain.
pub fn run<H: Harness>(case: &str, worker: &str) {
    let (harness, case) = (H::start(), find(case));
    match (standing(case, &harness), H::waived(case.name)) {
        (Standing::Runs, None) => (case.run)(&Stage::new(&harness, worker)),
        (Standing::Runs, Some(reason)) => panic!("it is waived ({reason}), and yet it runs: end the waiver"),
        (Standing::NotClaimed(why), None) => say(&format!("not claimed: {why}")),
        (Standing::NotClaimed(why), Some(_)) => panic!("it is waived, and yet not claimed: {why}"),
        (Standing::CannotRun(_), Some(reason)) => say(&format!("waived: {reason}")),
        (Standing::CannotRun(lack), None) => panic!(
            "the profile claims it, and the harness cannot exercise it: give it {lack}, or waive it with a reason"
        ),
    }
}

/// What is wrong with a backend that should fail a case: the case's message, or `None` if it passes.
///
/// # Panics
/// When the case is not run on this harness at all.
pub fn failure(case: &str, harness: &dyn Harness, worker: &str) -> Option<String> {
    let case = find(case);
    let standing = standing(case, harness);
    assert_eq!(standing, Standing::Runs, "{} shows nothing about this harness", case.name);
    crate::message_of(AssertUnwindSafe(|| (case.run)(&Stage::new(harness, worker))))
}

fn find(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("there is no case {name:?}"))
}

fn standing(case: &Case, harness: &dyn Harness) -> Standing {
    case.when.standing(harness.locks().profile(), harness)
}

/// For whoever reads the output of a test.
#[expect(clippy::print_stderr, reason = "the test harness captures it and shows it beside a failure")]
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests;
