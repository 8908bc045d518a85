//! Rounds of two contestants in turns, and what they come to.

use std::fmt;
use std::time::Duration;

use fencepost_core::Clock;
use serde::Serialize;

/// How many rounds each contestant has.
const ROUNDS: usize = 9;

/// What one measure has come to.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    /// What the floor did, and what fencepost did: the median of the rounds.
    floor: f64,
    ours: f64,
    /// Ours to the floor's: the least, the median and the greatest of the rounds.
    ratio: [f64; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness: Option<Fairness>,
}

/// How fairly several were granted one lock, by the floor and by fencepost: the median of the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Fairness {
    /// Jain's index of the grants: one where all have as many, and one by their number where one has all.
    pub(crate) jain: [f64; 2],
    /// The longest that anybody waited for a grant.
    pub(crate) longest_wait_ms: [f64; 2],
}

impl Figure {
    /// The same, with how fair it was.
    pub(crate) fn with(mut self, fairness: Fairness) -> Self {
        self.fairness = Some(fairness);
        self
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, median, greatest] = self.ratio;
        write!(
            f,
            "{:<46} {:>9.1} {:<4} floor {:>9.1}   ratio {median:.2} ({least:.2} to {greatest:.2})",
            self.name, self.ours, self.unit, self.floor
        )?;
        if let Some(Fairness { jain: [floor, ours], longest_wait_ms: [floor_ms, ours_ms] }) = &self.fairness {
            let of_floor = format!("floor {floor:.3}, {floor_ms:.1} ms");
            write!(f, "\n{:<46} Jain {ours:.3}, longest wait {ours_ms:.1} ms   {of_floor}", "")?;
        }
        Ok(())
    }
}

/// Has the floor and fencepost work in turns. Both give a number in the same unit.
pub(crate) fn in_turns(
    name: impl Into<String>,
    unit: &'static str,
    mut floor: impl FnMut() -> f64,
    mut ours: impl FnMut() -> f64,
) -> Figure {
    // The first round warms both up.
    floor();
    ours();
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (floor(), ours())).collect();
    let ratios = sorted(rounds.iter().map(|(floor, ours)| ours / floor));
    Figure {
        name: name.into(),
        unit,
        floor: sorted(rounds.iter().map(|(floor, _)| *floor))[ROUNDS / 2],
        ours: sorted(rounds.iter().map(|(_, ours)| *ours))[ROUNDS / 2],
        ratio: [ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]],
        fairness: None,
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values[values.len() / 2]
}

/// How many microseconds `operation` takes.
pub(crate) fn micros(operation: impl FnOnce()) -> f64 {
    let clock = Clock::system();
    let began = clock.now();
    operation();
    clock.now().since(began).as_secs_f64() * 1e6
}

/// The median of the times in microseconds that `operation` takes.
pub(crate) fn median_micros(times: usize, mut operation: impl FnMut()) -> f64 {
    median((0..times).map(|_| micros(&mut operation)))
}

/// The same for an operation that is awaited.
pub(crate) async fn median_micros_of<F: Future<Output = ()>>(times: usize, operation: impl Fn() -> F) -> f64 {
    let clock = Clock::system();
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let began = clock.now();
        operation().await;
        all.push(clock.now().since(began).as_secs_f64() * 1e6);
    }
    median(all.into_iter())
}

/// How often a second something was done that took `time` for `times`.
pub(crate) fn per_second(times: usize, time: Duration) -> f64 {
    f64::from(u32::try_from(times).expect("a small number")) / time.as_secs_f64()
}

/// Keeps this process, and the servers that it starts from now on, on one core: waking another core takes longer than a
/// command.
pub(crate) fn on_one_core<T>(work: impl FnOnce() -> T) -> T {
    let all = rustix::thread::sched_getaffinity(None).expect("a process knows its cores");
    let mut one = rustix::thread::CpuSet::new();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| all.is_set(*core));
    one.set(first.expect("a process has a core"));
    rustix::thread::sched_setaffinity(None, &one).expect("a process may use fewer cores");
    let output = work();
    rustix::thread::sched_setaffinity(None, &all).expect("a process may use the cores that it had");
    output
}
