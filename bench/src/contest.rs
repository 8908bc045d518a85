//! One slice in which several work at once: how often each was granted a lock, and how long it waited.
//!
//! A slice begins when each has had its first grant, so that nobody's connection counts.

use std::cell::RefCell;
use std::time::Duration;

use fencepost_core::{Clock, Moment};

use crate::measure::{Fairness, Figure, in_turns_beside, median, per_second};
use crate::peers::Peer;

/// How long a slice lasts.
const LASTS: Duration = Duration::from_millis(500);

/// A slice that is under way.
pub(crate) struct Contest {
    clock: Clock,
    state: RefCell<State>,
}

struct State {
    workers: Vec<Worker>,
    /// How many have had a grant, and since when that is all.
    warm: usize,
    began: Option<Moment>,
    last: Option<usize>,
    /// How often the lock went to another one than before.
    changes: usize,
}

#[derive(Clone, Copy)]
struct Worker {
    asked: Moment,
    is_warm: bool,
    grants: usize,
    longest_wait: Duration,
}

/// What a slice has come to.
pub(crate) struct Outcome {
    pub(crate) grants_a_second: f64,
    pub(crate) changes_a_second: f64,
    jain: f64,
    longest_wait_ms: f64,
}

impl Contest {
    pub(crate) fn among(workers: usize) -> Self {
        let clock = Clock::system();
        let worker = Worker { asked: clock.now(), is_warm: false, grants: 0, longest_wait: Duration::ZERO };
        let workers = vec![worker; workers];
        Self { clock, state: RefCell::new(State { workers, warm: 0, began: None, last: None, changes: 0 }) }
    }

    /// Whether the slice has not ended yet.
    pub(crate) fn goes_on(&self) -> bool {
        self.state.borrow().began.is_none_or(|began| self.clock.now().since(began) < LASTS)
    }

    pub(crate) fn asks(&self, worker: usize) {
        self.state.borrow_mut().workers[worker].asked = self.clock.now();
    }

    pub(crate) fn is_granted(&self, worker: usize) {
        let now = self.clock.now();
        let state = &mut *self.state.borrow_mut();
        let changed = state.last.replace(worker) != Some(worker);
        let all = state.workers.len();
        let one = &mut state.workers[worker];
        if !one.is_warm {
            one.is_warm = true;
            state.warm += 1;
            if state.warm == all {
                state.began = Some(now);
                state.workers.iter_mut().for_each(|worker| worker.asked = now);
            }
        } else if state.began.is_some() {
            one.grants += 1;
            one.longest_wait = one.longest_wait.max(now.since(one.asked));
            state.changes += usize::from(changed);
        }
    }

    pub(crate) fn end(self) -> Outcome {
        let State { workers, began, changes, .. } = self.state.into_inner();
        let time = self.clock.now().since(began.expect("each had a grant"));
        let grants: Vec<f64> = workers.iter().map(|worker| as_float(worker.grants)).collect();
        let sum: f64 = grants.iter().sum();
        let squares: f64 = grants.iter().map(|grants| grants * grants).sum();
        let longest = workers.iter().map(|worker| worker.longest_wait).max().unwrap_or_default();
        Outcome {
            grants_a_second: sum / time.as_secs_f64(),
            changes_a_second: per_second(changes, time),
            jain: sum * sum / (as_float(grants.len()) * squares),
            longest_wait_ms: longest.as_secs_f64() * 1e3,
        }
    }
}

/// Has the floor and fencepost pass one lock round in turns: how often a second it changes hands, and how fairly.
pub(crate) fn passed_round(
    peers: Vec<Peer>,
    name: String,
    mut floor: impl FnMut() -> Outcome,
    mut ours: impl FnMut() -> Outcome,
) -> Figure {
    let (mut of_floor, mut of_ours) = (Vec::new(), Vec::new());
    let figure = in_turns_beside(
        peers,
        name,
        "1/s",
        || kept(&mut of_floor, floor()).changes_a_second,
        || kept(&mut of_ours, ours()).changes_a_second,
    );
    let each =
        |value: fn(&Outcome) -> f64| [median(of_floor.iter().map(value)), median(of_ours.iter().map(value))];
    let fairness = Fairness {
        jain: each(|outcome| outcome.jain),
        longest_wait_ms: each(|outcome| outcome.longest_wait_ms),
    };
    figure.with(fairness)
}

fn kept(outcomes: &mut Vec<Outcome>, outcome: Outcome) -> &Outcome {
    outcomes.push(outcome);
    &outcomes[outcomes.len() - 1]
}

fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}
