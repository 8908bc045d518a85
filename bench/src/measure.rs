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
    name: &'static str,
    unit: &'static str,
    /// What the floor did, and what fencepost did: the median of the rounds.
    floor: f64,
    ours: f64,
    /// Ours to the floor's: the least, the median and the greatest of the rounds.
    ratio: [f64; 3],
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, median, greatest] = self.ratio;
        write!(
            f,
            "{:<46} {:>9.1} {:<4} floor {:>9.1}   ratio {median:.2} ({least:.2} to {greatest:.2})",
            self.name, self.ours, self.unit, self.floor
        )
    }
}

/// Has the floor and fencepost work in turns. Both give a number in the same unit.
pub(crate) fn in_turns(
    name: &'static str,
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
        name,
        unit,
        floor: sorted(rounds.iter().map(|(floor, _)| *floor))[ROUNDS / 2],
        ours: sorted(rounds.iter().map(|(_, ours)| *ours))[ROUNDS / 2],
        ratio: [ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]],
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median of the times in microseconds that `operation` takes.
pub(crate) fn median_micros(times: usize, mut operation: impl FnMut()) -> f64 {
    let clock = Clock::system();
    let all = (0..times).map(|_| {
        let began = clock.now();
        operation();
        clock.now().since(began).as_secs_f64() * 1e6
    });
    sorted(all)[times / 2]
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
    sorted(all.into_iter())[times / 2]
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
