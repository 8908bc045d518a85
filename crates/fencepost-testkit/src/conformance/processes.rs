//! Several processes under one lock, all of them healthy.

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_core::{FencingToken, Status};

use super::stage::Stage;
use super::terms::acquire;
use crate::history::{self, Hold};
use crate::worker::{Answer, Command, Patience, Worker, label};

const WORKERS: usize = 6;
const TIMES: u32 = 40;

/// How long one increment of many may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

pub(super) fn lock_of_another_process_is_refused_and_seen(stage: &Stage<'_>) {
    let mut worker = stage.worker();
    let held = acquire(stage, &mut worker);
    let called = label(worker.id());
    stage.block_on(async {
        let other = stage.lock("orders").try_acquire().await.expect("a held lock can be asked for");
        assert!(other.is_none(), "two processes hold the lock");
        let seen = stage.state("orders").await;
        assert_eq!(seen.status, Status::Held, "a lock of another process is not seen as held");
        assert_eq!(
            (seen.holder, seen.token),
            (Some(held.holder), Some(held.token)),
            "another holder is seen"
        );
        assert_eq!(seen.label, Some(called), "the holder's label is not seen");
        let listed = stage.locks().list("").await.expect("locks can be listed");
        assert_eq!(listed.len(), 1, "a lock of another process is listed");
    });
    worker.tell(&Command::Release);
    assert_eq!(worker.answer(stage.slack()), Answer::Yes);
    let mine = stage.block_on(stage.take("orders"));
    assert!(mine.token() > held.token, "the token {} came after {}", mine.token(), held.token);
    stage.tell_to_acquire(&mut worker, "orders", Patience::None);
    assert_eq!(worker.answer(stage.slack()), Answer::No, "two processes hold the lock");
    stage.block_on(mine.release()).expect("a lease that is held can be released");
}

pub(super) fn tokens_grow_across_processes_and_their_restarts(stage: &Stage<'_>) {
    let mut last: Option<FencingToken> = None;
    for _ in 0..2 {
        let mut workers: Vec<Worker> = (0..4).map(|_| stage.worker()).collect();
        for turn in 0..100 {
            let worker = &mut workers[turn % 4];
            let held = acquire(stage, worker);
            assert!(Some(held.token) > last, "the token {} came after {last:?}", held.token);
            last = Some(held.token);
            worker.tell(&Command::Release);
            assert_eq!(worker.answer(stage.slack()), Answer::Yes);
        }
        for worker in workers {
            worker.kill();
        }
    }
}

/// Nothing but the lock protects the file.
pub(super) fn increments_of_many_processes_do_not_overlap(stage: &Stage<'_>) {
    let (_directory, file) = Stage::scratch();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| stage.worker()).collect();
    for worker in &mut workers {
        let (name, ttl, file) = ("counter".to_owned(), stage.long_ttl(), file.clone());
        worker.tell(&Command::Increment { name, ttl, file, times: TIMES });
    }
    let holds: Vec<Hold> = workers.iter().flat_map(holds_of).collect();
    history::assert_clean(&holds);
    let holders: BTreeSet<String> = holds.iter().map(|hold| hold.holder.to_string()).collect();
    assert_eq!(holders.len(), holds.len(), "each attempt has a holder of its own");
    let counted = std::fs::read_to_string(&file).expect("somebody has counted");
    assert_eq!(counted, (WORKERS * TIMES as usize).to_string(), "increments were lost");
}

fn holds_of(worker: &Worker) -> Vec<Hold> {
    let answers = std::iter::repeat_with(|| worker.answer(LONGEST));
    let holds = answers.map_while(|answer| match answer {
        Answer::Hold(hold) => Some(hold),
        Answer::Yes => None,
        other => panic!("a worker counts, and said {other:?}"),
    });
    holds.collect()
}
