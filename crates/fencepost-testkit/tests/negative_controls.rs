//! Each case about safety fails on a backend with the fitting defect, for the reason that it is about, and passes on the
//! healthy one. A case without such a control would pass on anything.
//!
//! The cases with several processes have theirs in `tests/processes`.

use std::collections::BTreeSet;
use std::sync::Arc;

use fencepost_core::{Fence, MemoryFence};
use fencepost_testkit::broken::{Broken, BrokenFence, Defect, FenceDefect, Lie};
use fencepost_testkit::conformance::{self, Needs};
use fencepost_testkit::{FenceHarness, Harness, VirtualMemory, fence_suite};

/// The cases that bite on a defect, each with words of the message in which it must end.
macro_rules! controls {
    ($($module:ident: $defect:expr => { $($case:ident: $words:literal,)+ })+) => {
        const CONTROLLED: &[&str] = &[$($(stringify!($case),)+)+];

        $(mod $module {
            use super::*;

            $(#[test]
            fn $case() {
                assert_bites(stringify!($case), $defect, $words);
            })+
        })+
    };
}

controls! {
    grants_while_held: Defect::GrantsWhileHeld => {
        held_lock_refuses_a_second_holder: "there is a second holder",
        lock_is_not_reentrant: "its holder was given it again",
        increments_of_many_tasks_do_not_overlap: "overlap",
        every_waiter_is_served: "all waiters are seen",
        sets_in_any_order_neither_overlap_nor_wait_for_each_other: "overlap",
        run_gives_what_the_work_gave_and_frees_the_lock: "there is a second holder while the work runs",
        wait_of_no_time_is_one_try: "there is a second holder",
        wait_with_a_limit_ends_on_time_and_leaves_no_trace: "there is a second holder",
        as_many_hold_a_slot_as_there_are: "one holder more than there are slots",
    }
    shares_nothing: Defect::SharesNothing => {
        readers_hold_it_together_and_all_are_seen: "is free, and was not given",
        reader_that_comes_is_told: "left: 0",
        tokens_of_readers_grow_and_that_of_the_next_writer_is_greater: "is free, and was not given",
    }
    shares_with_everybody: Defect::SharesWithEverybody => {
        held_lock_refuses_a_second_holder: "there is a second holder",
        writer_waits_for_the_last_reader_and_readers_for_the_writer: "a writer came in beside a reader",
        reader_goes_behind_a_writer_that_waits: "the writer waits: not so",
        dropped_writer_lets_the_readers_behind_it_in: "a writer came in beside a reader",
        reader_that_is_revoked_leaves_the_others_alone: "a writer came in beside a reader",
        reader_that_is_gone_frees_the_lock_for_a_writer: "a writer came in beside readers",
        readers_and_writers_of_many_tasks_do_not_overlap: "overlap",
    }
    forgets_the_logbook: Defect::ForgetsTheLogbook => {
        logbook_is_there_for_the_next_holder: "it is what was written",
        period_is_begun_once: "it has begun",
        period_counts_as_done_when_its_holder_says_so: "it is done",
        history_shows_the_last_grants_and_how_they_ended: "left: []",
        period_of_many_attempts_is_begun_once: "so often was period 0 begun",
        grants_between_two_looks_are_told_from_the_logbook: "the next change took more than",
    }
    writes_for_anybody: Defect::WritesForAnybody => {
        lease_that_is_gone_writes_no_logbook: "a lease that is gone wrote",
        revoked_lease_writes_no_logbook: "a lease that was taken away wrote",
    }
    has_one_lock: Defect::HasOneLock => {
        locks_of_different_names_are_apart: "payments is free, and was not given",
    }
    confuses_spellings: Defect::ConfusesSpellings => {
        awkward_names_are_different_locks_and_come_back_as_given: "a%2Fb is free, and was not given",
    }
    repeats_tokens: Defect::RepeatsTokens => {
        second_token_is_greater_and_the_lease_is_held_between: "is not greater",
        tokens_grow_over_two_hundred_acquisitions: "came after",
        increments_of_many_tasks_do_not_overlap: "was given twice",
        claim_that_is_not_renewed_ends_after_its_ttl_and_not_before: "is not greater",
        paused_holder_loses_the_lock_and_is_fenced_off: "is sealed for another holder",
        revoked_holder_hears_of_it_and_the_next_token_is_greater: "is not greater",
        lease_comes_with_its_fences_sealed: "is sealed for another holder",
    }
    lowers_tokens: Defect::LowersTokens => {
        tokens_grow_over_two_hundred_acquisitions: "came after",
        increments_of_many_tasks_do_not_overlap: "was given after",
    }
    rounds_tokens: Defect::RoundsTokens => {
        lift_above_two_to_the_fifty_third_is_exact_or_refused: "came after",
    }
    waits_forever: Defect::WaitsForever => {
        held_lock_refuses_a_second_holder: "took more than",
        wait_with_a_limit_ends_on_time_and_leaves_no_trace: "took more than",
        wait_of_no_time_is_one_try: "took more than",
        lock_is_not_reentrant: "took more than",
        contended_set_leaves_nothing_held: "took more than",
        waiter_gets_a_resting_lock_when_its_time_has_come: "a lock that rests was given",
    }
    never_waits: Defect::NeverWaits => {
        wait_with_a_limit_ends_on_time_and_leaves_no_trace: "the wait was over after",
    }
    gives_up_untried: Defect::GivesUpUntried => {
        wait_of_no_time_is_one_try: "one try was due",
    }
    sleeps_through_releases: Defect::SleepsThroughReleases => {
        release_wakes_a_waiter: "the waiter was not woken by the release",
        waiter_gets_whichever_slot_comes_free: "the waiter took more than",
    }
    serves_the_last_first: Defect::ServesTheLastFirst => {
        waiters_are_served_in_order: "the waiters were served in another order",
    }
    keeps_waiters: Defect::KeepsWaiters => {
        held_lock_refuses_a_second_holder: "a refused try left a waiter",
        wait_with_a_limit_ends_on_time_and_leaves_no_trace: "the waiter that gave up is gone",
        dropped_waiter_leaves_no_trace: "the dropped waiter is gone",
        acquire_dropped_at_any_instant_leaves_nothing: "nothing is left of the dropped calls",
    }
    keeps_dropped_grants: Defect::KeepsDroppedGrants => {
        dropped_waiter_leaves_no_trace: "the dropped waiter is gone",
        acquire_dropped_at_any_instant_leaves_nothing: "the next holder among calls that are dropped took more than",
    }
    counts_from_the_reply: Defect::CountsFromTheReply => {
        deadline_ends_inside_the_term_of_the_store: "longer than the store keeps it",
    }
    counts_from_the_wait: Defect::CountsFromTheWait => {
        lease_won_after_a_wait_is_a_whole_one: "the lease is not over yet",
    }
    believes_too_long: Defect::BelievesTooLong => {
        deadline_ends_inside_the_term_of_the_store: "longer than the store keeps it",
        claim_that_is_not_renewed_ends_after_its_ttl_and_not_before: "the store took it back after",
        holder_keeps_the_lock_while_its_executor_is_blocked: "a healthy holder keeps its lease",
        paused_holder_loses_the_lock_and_is_fenced_off: "the first check after the stop believes in the lease",
    }
    frees_too_early: Defect::FreesTooEarly => {
        claim_that_is_not_renewed_ends_after_its_ttl_and_not_before: "the store took it back after",
        paused_holder_loses_the_lock_and_is_fenced_off: "before the first one's ttl has run out",
        deadline_ends_inside_the_term_of_the_store: "longer than the store keeps it",
    }
    never_frees: Defect::NeverFrees => {
        claim_that_is_not_renewed_ends_after_its_ttl_and_not_before: "took more than",
        claim_that_ran_out_cannot_be_renewed: "the lease has run out",
        lease_that_runs_out_is_told: "the next change took more than",
        claim_that_ran_out_cannot_be_released: "took more than",
        paused_holder_loses_the_lock_and_is_fenced_off: "has run out while its holder was stopped",
    }
    never_renews: Defect::NeverRenews => {
        holder_keeps_the_lock_while_its_executor_is_blocked: "gave the lock away from a healthy holder",
        deadline_ends_inside_the_term_of_the_store: "longer than the store keeps it",
    }
    revives_leases: Defect::RevivesLeases => {
        claim_that_ran_out_cannot_be_renewed: "a lease that ran out was revived",
    }
    forgets_to_release: Defect::ForgetsToRelease => {
        second_token_is_greater_and_the_lease_is_held_between: "is free, and was not given",
        changes_of_the_holder_are_told_in_their_order: "the next change took more than",
        lease_dropped_inside_a_runtime_frees_the_lock: "freeing the lock took more than",
        lease_dropped_outside_any_runtime_frees_the_lock: "freeing the lock took more than",
        panic_in_the_work_frees_the_lock: "freeing the lock took more than",
        run_gives_what_the_work_gave_and_frees_the_lock: "is free, and was not given",
        release_wakes_a_waiter: "the waiter was not woken by the release",
        every_waiter_is_served: "took more than",
        set_comes_in_the_order_in_which_it_was_named: "was released with its set",
        contended_set_leaves_nothing_held: "a set that was refused left",
        fence_that_is_ahead_makes_the_acquisition_stale_and_frees_the_lock: "stayed held",
    }
    releases_for_anybody: Defect::ReleasesForAnybody => {
        claim_that_ran_out_cannot_be_released: "a lease of the past was released",
    }
    never_rests: Defect::NeverRests => {
        released_lock_rests_and_is_then_free: "it was to rest for",
        waiter_gets_a_resting_lock_when_its_time_has_come: "a lock that rests was given",
    }
    rests_too_long: Defect::RestsTooLong => {
        released_lock_rests_and_is_then_free: "it rests for",
        waiter_gets_a_resting_lock_when_its_time_has_come: "a long wait took more than",
        rest_is_counted_from_the_grant: "its time was over before the release",
    }
    revokes_any_token: Defect::RevokesAnyToken => {
        revoke_with_another_token_changes_nothing: "is not held",
    }
    revokes_nothing: Defect::RevokesNothing => {
        revoke_with_another_token_changes_nothing: "is not held",
        revoked_holder_hears_of_it_and_the_next_token_is_greater: "hearing of the revocation took more than",
        revoked_holder_is_told_why: "hearing of the revocation took more than",
        run_ends_its_work_when_the_lease_is_lost: "ending the work took more than",
        set_gives_up_when_a_lease_in_it_is_lost: "giving the set up took more than",
    }
    revokes_silently: Defect::RevokesSilently => {
        revoked_holder_hears_of_it_and_the_next_token_is_greater: "hearing of the revocation took more than",
        run_ends_its_work_when_the_lease_is_lost: "ending the work took more than",
        set_gives_up_when_a_lease_in_it_is_lost: "giving the set up took more than",
    }
    revokes_without_reason: Defect::RevokesWithoutReason => {
        revoked_holder_is_told_why: "the reason is not in",
    }
    revokes_unpromised: Defect::RevokesUnpromised => {
        revoke_is_refused_where_it_is_not_promised: "the profile does not promise it",
    }
    never_lifts: Defect::NeverLifts => {
        lift_raises_the_next_token: "lifted to",
        lift_of_a_held_lock_leaves_its_holder_alone: "lifted to",
        fence_that_is_ahead_makes_the_acquisition_stale_and_frees_the_lock: "lifted above the mark",
    }
    lifts_one_grant: Defect::LiftsOneGrant => {
        lift_raises_the_next_token: "held for one grant only",
    }
    lowers_by_lift: Defect::LowersByLift => {
        lower_lift_changes_nothing: "a lower lift lowered the next token",
    }
    frees_by_lift: Defect::FreesByLift => {
        lift_of_a_held_lock_leaves_its_holder_alone: "the lift changed the present lease",
    }
    gives_back_for_any_holder: Defect::GivesBackForAnyHolder => {
        foreign_give_back_changes_nothing: "another holder was given back",
    }
    gives_back_for_any_token: Defect::GivesBackForAnyToken => {
        foreign_give_back_changes_nothing: "a lease that was given back was given back",
    }
    reaches_nobody: Defect::ReachesNobody => {
        lease_can_be_freed_by_another_process: "neither a handover nor a descriptor",
    }
    lies_about_the_spelling: Defect::Shows(Lie::Spelling) => {
        awkward_names_are_different_locks_and_come_back_as_given: "the name did not come back",
    }
    lies_about_the_holder: Defect::Shows(Lie::AnotherHolder) => {
        inspect_shows_the_holder_and_its_grant: "another holder is seen",
        list_shows_held_locks_in_the_order_of_their_names: "another holder is seen",
    }
    lies_about_the_token: Defect::Shows(Lie::AnotherToken) => {
        inspect_shows_the_holder_and_its_grant: "another token is seen",
    }
    hides_the_label: Defect::Shows(Lie::NoLabel) => {
        inspect_shows_the_holder_and_its_grant: "the holder's label is not seen",
    }
    hides_since_when: Defect::Shows(Lie::NoSince) => {
        inspect_shows_the_holder_and_its_grant: "since when the lock is held",
    }
    hides_the_end: Defect::Shows(Lie::NoEnd) => {
        inspect_shows_the_holder_and_its_grant: "it is not seen when the lease runs out",
    }
    hides_the_waiters: Defect::Shows(Lie::NoWaiters) => {
        waiter_is_seen_while_it_waits: "a waiter is seen",
        waiter_that_comes_and_goes_is_told: "the next change took more than",
    }
    shows_a_false_waiter: Defect::Shows(Lie::AWaiter) => {
        inspect_shows_the_holder_and_its_grant: "nobody waits",
        held_lock_refuses_a_second_holder: "a refused try left a waiter",
        free_lock_is_seen_as_free: "a free lock is seen with waiters",
    }
    shows_the_last_holder: Defect::Shows(Lie::TheLastHolder) => {
        free_lock_is_seen_as_free: "a free lock is seen with a holder's marks",
        released_lock_rests_and_is_then_free: "a lock that rests is held by nobody",
    }
    signals_nothing: Defect::SignalsNothing => {
        change_is_signalled_where_the_store_pushes: "the signal of a grant took more than",
    }
    lists_now_and_then: Defect::ListsNowAndThen => {
        nothing_is_told_when_nothing_changes: "the holder renews and nothing else happens",
    }
    lists_too_few: Defect::ListsTooFew => {
        watch_begins_with_what_is_not_free: "what is not free and begins with a/",
        changes_of_the_holder_are_told_in_their_order: "the next change took more than",
        list_shows_held_locks_in_the_order_of_their_names: "the list of",
    }
    lists_free_locks: Defect::ListsFreeLocks => {
        list_shows_held_locks_in_the_order_of_their_names: "the list of",
        free_lock_is_seen_as_free: "looking at a lock made one",
    }
    lists_in_disorder: Defect::ListsInDisorder => {
        list_shows_held_locks_in_the_order_of_their_names: "the list of",
        awkward_names_are_different_locks_and_come_back_as_given: "the names that are listed",
    }
    lists_any_prefix: Defect::ListsAnyPrefix => {
        list_shows_held_locks_in_the_order_of_their_names: "the list of",
    }
}

fn assert_bites(case: &str, defect: Defect, words: &str) {
    let broken = VirtualMemory::inside(|healthy| Arc::new(Broken::new(Arc::new(healthy), defect)));
    let message = conformance::failure(case, &broken, "");
    let message = message.unwrap_or_else(|| panic!("{case} passes on a backend that {defect:?}"));
    assert!(message.contains(words), "{case} fails on {defect:?} for another reason: {message}");
    assert_passes_where_healthy(case);
}

fn assert_passes_where_healthy(case: &str) {
    let healthy = VirtualMemory::start();
    // What the healthy profile does not claim, only the defect has brought about.
    let is_claimed = !ONLY_BROKEN.contains(&case);
    let message = is_claimed.then(|| conformance::failure(case, &healthy, "")).flatten();
    assert_eq!(message, None, "{case} fails on a healthy backend");
}

const ONLY_BROKEN: &[&str] =
    &["revoke_is_refused_where_it_is_not_promised", "lease_can_be_freed_by_another_process"];

mod fences {
    use super::*;

    /// A case about the lock and its fence fails with a broken fence.
    fn assert_bites(case: &str, fence: fn() -> Arc<dyn Fence>, words: &str) {
        let broken = VirtualMemory::start().fenced_by(fence);
        let message = conformance::failure(case, &broken, "");
        let message = message.unwrap_or_else(|| panic!("{case} passes with a broken fence"));
        assert!(message.contains(words), "{case} fails for another reason: {message}");
        assert_passes_where_healthy(case);
    }

    #[test]
    fn paused_holder_loses_the_lock_and_is_fenced_off() {
        let fence = || Arc::new(BrokenFence::new(FenceDefect::SealsStaleStamps)) as _;
        let words = "the fence lets the stopped holder seal";
        assert_bites("paused_holder_loses_the_lock_and_is_fenced_off", fence, words);
    }

    #[test]
    fn lease_comes_with_its_fences_sealed() {
        let fence = || Arc::new(BrokenFence::new(FenceDefect::AcceptsNothing)) as _;
        assert_bites("lease_comes_with_its_fences_sealed", fence, "the holder may write");
    }

    #[test]
    fn fence_refuses_another_holder_with_the_same_token() {
        let fence = || Arc::new(BrokenFence::new(FenceDefect::ChecksWithoutSeal)) as _;
        assert_bites("fence_refuses_another_holder_with_the_same_token", fence, "it is another holder");
    }

    #[test]
    fn fence_that_is_ahead_makes_the_acquisition_stale_and_frees_the_lock() {
        let fence = || Arc::new(BrokenFence::new(FenceDefect::SealsStaleStamps)) as _;
        let case = "fence_that_is_ahead_makes_the_acquisition_stale_and_frees_the_lock";
        assert_bites(case, fence, "its token is stale from the start");
    }
}

/// Cases that no backend can fail, and why.
const WITHOUT_CONTROL: &[(&str, &str)] = &[
    (
        "detached_lease_is_renewed_and_given_back_by_others",
        "no backend without a server can be detached from",
    ),
    ("detached_lease_that_rests_is_renewed_by_nobody", "no backend without a server can be detached from"),
    ("detached_lease_that_has_ended_is_not_revived", "no backend without a server can be detached from"),
    ("lease_that_ends_with_its_holder_is_not_detached", "the core refuses it before it asks a backend"),
    ("lock_named_twice_in_a_set_is_refused", "the core refuses it before it asks a backend"),
    ("ttl_of_zero_is_refused", "the core refuses it before it asks a backend"),
    ("ttl_above_the_longest_is_refused", "the core refuses it before it asks a backend"),
    (
        "durable_tokens_are_refused_where_they_are_not_promised",
        "the core refuses it before it asks a backend",
    ),
    ("rest_is_refused_where_it_is_not_promised", "the core refuses it before it asks a backend"),
    (
        "dropped_acquire_of_a_period_leaves_no_holder",
        "memory answers at once: `tests/logbook.rs` of the core, with one that is slow",
    ),
    ("sharing_is_refused_where_it_is_not_promised", "the core refuses it before it asks a backend"),
    ("slots_are_refused_where_they_are_not_promised", "the core refuses it before it asks a backend"),
    ("logbook_is_refused_where_it_is_not_promised", "the core refuses it before it asks a backend"),
    ("name_that_is_none_is_refused", "the core refuses it before it asks a backend"),
    ("run_can_be_spawned", "it does not compile if it is broken"),
    ("futures_of_users_can_cross_threads", "it does not compile if it is broken"),
    ("fence_refuses_another_holder_with_the_same_token", "it is the fence that fails it, in `fences`"),
    (
        "revoked_lock_is_free_when_its_holder_has_let_go_and_not_before",
        "a lease in memory is over at once when it is revoked: `tests/processes`",
    ),
    (
        "descriptor_that_stays_open_keeps_the_lock_taken",
        "the memory backend has no descriptors: `tests/processes`",
    ),
];

#[test]
fn every_case_has_a_control_or_a_reason() {
    let controlled: BTreeSet<&str> = CONTROLLED.iter().copied().collect();
    let excused: BTreeSet<&str> = WITHOUT_CONTROL.iter().map(|(case, _)| *case).collect();
    let both: Vec<_> = controlled.intersection(&excused).collect();
    assert!(both.is_empty(), "controlled and excused: {both:?}");
    let all: BTreeSet<&str> =
        conformance::cases().filter(|(_, needs)| *needs != Needs::Processes).map(|(case, _)| case).collect();
    let either: BTreeSet<&str> = controlled.union(&excused).copied().collect();
    let missing: Vec<_> = all.symmetric_difference(&either).collect();
    assert!(missing.is_empty(), "without a control, or no case: {missing:?}");
}

struct FenceInMemory(Arc<dyn Fence>);

impl FenceHarness for FenceInMemory {
    fn start() -> Self {
        Self(Arc::new(MemoryFence::default()))
    }

    fn fence(&self) -> Arc<dyn Fence> {
        Arc::clone(&self.0)
    }
}

/// The same for fences: what is listed for each defect fails, and with the given words.
const FENCE_CONTROLS: &[(FenceDefect, &str, &str)] = &[
    (FenceDefect::StartsWithAMark, "unknown_lock_has_no_mark", "nothing was sealed"),
    (FenceDefect::ComparesText, "seal_raises_the_mark", "10 is the greatest token"),
    (FenceDefect::RefusesTheSameStamp, "same_stamp_may_be_sealed_again", "may seal again"),
    (
        FenceDefect::SealsStaleStamps,
        "lower_token_is_stale_and_the_mark_is_named",
        "a lower token was accepted",
    ),
    (FenceDefect::ExplainsNothing, "lower_token_is_stale_and_the_mark_is_named", "the mark is not named"),
    (FenceDefect::SealsStaleStamps, "equal_token_of_another_holder_is_stale", "was accepted"),
    (FenceDefect::IgnoresTheHolder, "equal_token_of_another_holder_is_stale", "was accepted"),
    (FenceDefect::ChecksWithoutSeal, "check_accepts_the_sealed_stamp_alone", "was accepted"),
    (FenceDefect::AcceptsNothing, "check_accepts_the_sealed_stamp_alone", "it is the sealed stamp"),
    (
        FenceDefect::ExplainsNothing,
        "stamp_that_was_not_sealed_is_told_to_seal_first",
        "it is not said what to do",
    ),
    (FenceDefect::ChecksWithoutSeal, "stamp_that_was_not_sealed_is_told_to_seal_first", "was accepted"),
    (FenceDefect::RaisesByCheck, "check_never_raises_the_mark", "the mark of ledger"),
    (FenceDefect::RoundsTokens, "great_tokens_are_exact", "the mark of ledger"),
    (FenceDefect::CutsTheHolder, "holders_of_every_shape_come_back", "the mark of ledger"),
    (FenceDefect::HasOneMark, "locks_have_marks_of_their_own", "was not sealed"),
    (FenceDefect::DecidesByAnOldMark, "racing_seals_never_lower_the_mark", "the mark went back to"),
    (FenceDefect::ListsInDisorder, "marks_come_in_the_order_of_their_names", "the marks of"),
    (FenceDefect::ListsAnyPrefix, "marks_come_in_the_order_of_their_names", "the marks of"),
    (FenceDefect::ListsSpellings, "marks_come_in_the_order_of_their_names", "the marks of"),
    (FenceDefect::ForgetsNothing, "forgotten_mark_is_gone_and_the_others_stay", "was forgotten twice"),
    (FenceDefect::ForgetsAll, "forgotten_mark_is_gone_and_the_others_stay", "the mark of"),
    (FenceDefect::RemembersTheToken, "forgotten_lock_begins_anew", "takes any token"),
];

#[test]
fn cases_of_fences_bite_on_their_defects() {
    for &(defect, case, words) in FENCE_CONTROLS {
        assert_fence_bites(defect, case, words);
    }
}

fn assert_fence_bites(defect: FenceDefect, case: &str, words: &str) {
    let fence: Arc<dyn Fence> = Arc::new(BrokenFence::new(defect));
    let message = fence_suite::failure(case, &FenceInMemory(fence));
    let message = message.unwrap_or_else(|| panic!("{case} passes on a fence that {defect:?}"));
    assert!(message.contains(words), "{case} fails on {defect:?} for another reason: {message}");
    assert_eq!(fence_suite::failure(case, &FenceInMemory::start()), None, "{case} fails on a healthy fence");
}

/// Each client has marks of its own.
struct FencesApart;

impl FenceHarness for FencesApart {
    fn start() -> Self {
        Self
    }

    fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(MemoryFence::default())
    }
}

#[test]
fn marks_that_are_those_of_a_client_are_found() {
    let case = "marks_are_those_of_the_system_and_not_of_a_client";
    let message = fence_suite::failure(case, &FencesApart).expect("each client has marks of its own");
    assert!(message.contains("the mark of ledger"), "{message}");
}

#[test]
fn every_case_of_fences_has_a_control() {
    let mut controlled: BTreeSet<&str> = FENCE_CONTROLS.iter().map(|(_, case, _)| *case).collect();
    controlled.insert("marks_are_those_of_the_system_and_not_of_a_client");
    assert_eq!(controlled, fence_suite::cases().collect());
}
