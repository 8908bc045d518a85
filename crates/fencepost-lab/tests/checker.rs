//! The checker on histories that were made by hand: good ones, and for each rule one that breaks it and nothing else.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use fencepost_lab::{History, Record, Row, Step, Tally, check};

/// A history that grows by one step at a time.
#[derive(Default)]
struct Story(History);

impl Story {
    fn fenced() -> Self {
        Self(History { is_fenced: true, ..History::default() })
    }

    fn step(mut self, at: u64, worker: usize, hold: u32, step: Step) -> Self {
        self.0.records.push(Record { at, worker, hold, step });
        self
    }

    /// Asks just before, as a holder of its own.
    fn claims(self, at: u64, worker: usize, hold: u32, token: u64, deadline: u64) -> Self {
        let holder = Some(format!("holder-{worker}-{hold}"));
        self.step(at - 1, worker, hold, Step::Asked).step(
            at,
            worker,
            hold,
            Step::Claimed { token: Some(token), holder, deadline: Some(deadline) },
        )
    }

    fn writes(self, at: u64, worker: usize, hold: u32) -> Self {
        self.step(at, worker, hold, Step::Writing { write: name(worker, hold) })
    }

    /// The protected system accepts the write of a hold, which was computed from another one.
    fn row(mut self, worker: usize, hold: u32, token: u64, event: i64, based_on: &str) -> Self {
        let sequence = i64::try_from(self.0.rows.len()).unwrap() + 1;
        let (write, based_on) = (name(worker, hold), based_on.to_owned());
        self.0.rows.push(Row { sequence, event, write, based_on, token: Some(token) });
        self.0.total = event;
        self
    }

    fn accepts(self, at: u64, worker: usize, hold: u32) -> Self {
        self.step(at, worker, hold, Step::Accepted { write: name(worker, hold) })
    }

    fn releases(self, at: u64, worker: usize, hold: u32) -> Self {
        self.step(at, worker, hold, Step::Releasing).step(at + 1, worker, hold, Step::Released)
    }

    fn tally(mut self) -> Tally {
        self.0.records.sort_by_key(|record| record.at);
        check(&self.0)
    }
}

fn name(worker: usize, hold: u32) -> String {
    format!("w{}-{hold}", worker + 1)
}

/// Two holds, one after the other, each with a write.
fn good() -> Story {
    Story::default()
        .claims(10, 0, 1, 5, 100)
        .writes(20, 0, 1)
        .row(0, 1, 5, 1, "start")
        .accepts(21, 0, 1)
        .releases(30, 0, 1)
        .claims(40, 1, 1, 6, 140)
        .writes(50, 1, 1)
        .row(1, 1, 6, 2, "w1-1")
        .accepts(51, 1, 1)
        .releases(60, 1, 1)
}

/// What a good history has: grants and acknowledged writes, and nothing else.
fn clean(grants: usize, acknowledged: usize, total: i64) -> Tally {
    Tally { grants, acknowledged, total, ..Tally::default() }
}

#[test]
fn good_history_is_clean() {
    assert_eq!(good().tally(), clean(2, 2, 2));
    assert!(good().tally().total_is_correct());
}

#[test]
fn claims_that_overlap_are_counted_with_their_length() {
    let tally = good().claims(55, 2, 1, 7, 200).releases(80, 2, 1).tally();
    assert_eq!((tally.overlaps, tally.overlap.as_nanos()), (1, 5));
}

#[test]
fn stopped_holder_claims_nothing_after_its_deadline() {
    let stopped = Story::default().claims(10, 0, 1, 5, 100).releases(500, 0, 1);
    let tally = stopped.claims(110, 1, 1, 6, 300).releases(200, 1, 1).tally();
    assert_eq!(tally.overlaps, 0);
    let renewed = Story::default().claims(10, 0, 1, 5, 100).releases(500, 0, 1);
    let renewed = renewed.step(90, 0, 1, Step::Renewed { deadline: Some(190) });
    assert_eq!(renewed.claims(110, 1, 1, 6, 300).releases(200, 1, 1).tally().overlaps, 1, "it was renewed");
}

#[test]
fn killed_or_lost_holder_claims_nothing_afterwards() {
    for end in [Step::Killed, Step::Lost { why: "revoked".to_owned() }] {
        let story = Story::default().claims(10, 0, 1, 5, 100).step(20, 0, 1, end);
        assert_eq!(story.claims(30, 1, 1, 6, 130).releases(40, 1, 1).tally().overlaps, 0);
    }
}

#[test]
fn use_after_a_lost_lease_is_an_overlap_of_use_and_of_no_claim() {
    let story = good().claims(70, 0, 2, 7, 80).step(75, 0, 2, Step::Read { based_on: name(1, 1) });
    let story = story.claims(90, 1, 2, 8, 190).step(92, 1, 2, Step::Read { based_on: name(1, 1) });
    let tally = story.writes(100, 0, 2).writes(110, 1, 2).tally();
    assert_eq!((tally.overlaps, tally.used_overlaps, tally.used_overlap.as_nanos()), (0, 1, 8));
}

#[test]
fn token_that_is_given_twice_is_found() {
    let tally = good().claims(70, 2, 1, 6, 170).releases(80, 2, 1).tally();
    assert_eq!((tally.tokens_repeated, tally.tokens_fallen), (1, 1));
}

#[test]
fn token_that_falls_is_found_and_one_that_was_asked_for_before_is_none() {
    assert_eq!(good().claims(70, 2, 1, 4, 170).releases(80, 2, 1).tally().tokens_fallen, 1);
    // It was asked for before the greater one was given, and may have been decided before it.
    let both = Story::default().claims(10, 0, 1, 9, 20).step(9, 1, 1, Step::Asked).releases(15, 0, 1);
    let claimed = Step::Claimed { token: Some(8), holder: None, deadline: None };
    assert_eq!(both.step(30, 1, 1, claimed).tally().tokens_fallen, 0);
}

#[test]
fn holder_that_shows_two_tokens_is_found() {
    let claimed = Step::Claimed { token: Some(7), holder: Some("holder-1-1".to_owned()), deadline: None };
    assert_eq!(good().step(70, 2, 1, Step::Asked).step(71, 2, 1, claimed).tally().tokens_changed, 1);
}

#[test]
fn write_with_a_smaller_token_after_a_greater_one_is_stale() {
    let tally = good().writes(45, 0, 1).row(0, 1, 5, 2, "w1-1").tally();
    assert_eq!((tally.stale_accepted, tally.lost_updates, tally.duplicates), (1, 1, 1));
}

/// Sent when the successor had the lock, and accepted before the successor wrote.
fn late(story: Story) -> Tally {
    let story = story.claims(10, 0, 1, 5, 20).claims(30, 1, 1, 6, 200).writes(35, 0, 1);
    let story = story.row(0, 1, 5, 1, "start").accepts(36, 0, 1).releases(37, 0, 1);
    story.writes(40, 1, 1).row(1, 1, 6, 2, "w1-1").accepts(41, 1, 1).releases(50, 1, 1).tally()
}

#[test]
fn write_that_comes_before_the_successor_has_written_is_late_and_loses_nothing() {
    let tally = late(Story::default());
    assert_eq!((tally.stale_accepted, tally.late_accepted, tally.lost_updates), (0, 1, 0));
    assert!(tally.total_is_correct());
}

#[test]
fn write_that_comes_after_the_successor_has_sealed_is_stale() {
    let tally = late(Story::fenced());
    assert_eq!((tally.stale_accepted, tally.late_accepted), (1, 0));
}

/// The control for a fence that is not sealed before the first read: its successor has read before the late write landed.
#[test]
fn successor_that_has_read_too_early_loses_an_update() {
    let story = Story::default().claims(10, 0, 1, 5, 20).claims(30, 1, 1, 6, 200);
    let story = story.writes(35, 0, 1).row(0, 1, 5, 1, "start").accepts(36, 0, 1);
    let tally = story.writes(40, 1, 1).row(1, 1, 6, 1, "start").accepts(41, 1, 1).tally();
    assert_eq!((tally.lost_updates, tally.duplicates, tally.total_is_correct()), (1, 1, false));
}

#[test]
fn refused_writes_are_counted_once_whoever_says_so() {
    let refused = Step::Refused { write: name(0, 2), why: "stale".to_owned() };
    let mut story = good().writes(70, 0, 2).step(71, 0, 2, refused).writes(72, 1, 2);
    story.0.refused_unheard = vec![name(0, 2), name(1, 2)];
    let tally = story.tally();
    assert_eq!((tally.stale_refused, tally.unknown), (2, 0));
}

#[test]
fn total_may_hold_what_nobody_knows_of_and_nothing_else() {
    let with_total = |total| {
        let mut story = good().writes(70, 0, 2);
        story.0.total = total;
        story.tally().total_is_correct()
    };
    assert_eq!([1, 2, 3, 4].map(with_total), [false, true, true, false]);
}

#[test]
fn look_at_a_lease_that_says_yes_after_the_deadline_is_found() {
    let look = |at| good().claims(70, 0, 2, 7, 100).step(at, 0, 2, Step::Checked { holds: true }).tally();
    assert_eq!((look(99).checks_after_deadline, look(100).checks_after_deadline), (0, 1));
    let no = good().claims(70, 0, 2, 7, 100).step(100, 0, 2, Step::Checked { holds: false }).tally();
    assert_eq!(no.checks_after_deadline, 0);
}

#[test]
fn writes_after_the_deadline_and_without_a_claim_are_counted() {
    assert_eq!(good().claims(70, 0, 2, 7, 100).writes(100, 0, 2).tally().writes_after_deadline, 1);
    assert_eq!(good().writes(70, 0, 2).tally().writes_without_claim, 1);
}

#[test]
fn orphan_is_counted() {
    let mut story = good();
    story.0.has_orphan = true;
    assert_eq!(story.tally().orphans, 1);
}

#[test]
fn workers_without_a_lock_have_overlaps_and_no_tokens() {
    let claimed = || Step::Claimed { token: None, holder: None, deadline: None };
    let story = Story::default().step(10, 0, 1, claimed()).step(12, 1, 1, claimed());
    let tally = story.releases(20, 0, 1).releases(22, 1, 1).tally();
    assert_eq!((tally.overlaps, tally.tokens_repeated, tally.tokens_fallen), (1, 0, 0));
}
