//! Rounds of two contestants in turns, and what they come to.

use std::fmt;
use std::time::Duration;

use fencepost_core::Clock;
use serde::Serialize;

use crate::peers::{Answer, Peer};

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
    /// What others did in the same rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peers: Vec<PeerFigure>,
}

/// What a peer has come to.
#[derive(Debug, Serialize)]
struct PeerFigure {
    name: &'static str,
    value: f64,
    /// Its to the floor's: the least, the median and the greatest of the rounds.
    ratio: [f64; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    jain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_wait_ms: Option<f64>,
}

/// How fairly several were granted one lock, by the floor and by fencepost: the median of the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Fairness {
    /// Jain's index of the grants: one where all have as many, and one by their number where one has all.
    pub(crate) jain: [f64; 2],
    /// The longest that anybody waited for a grant.
    pub(crate) longest_wait_ms: [f64; 2],
}

/// One contestant, as it is drawn.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) is_ours: bool,
    pub(crate) value: f64,
    /// To the floor's: the least, the median and the greatest of the rounds.
    pub(crate) ratio: [f64; 3],
}

impl Figure {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn unit(&self) -> &'static str {
        self.unit
    }

    /// Whether less is better.
    pub(crate) fn is_time(&self) -> bool {
        self.unit.ends_with('s') && !self.unit.contains('/')
    }

    /// All that stand beside the floor, the best first.
    pub(crate) fn bars(&self) -> Vec<Bar> {
        let ours = Bar { name: "fencepost", is_ours: true, value: self.ours, ratio: self.ratio };
        let peer =
            |peer: &PeerFigure| Bar { name: peer.name, is_ours: false, value: peer.value, ratio: peer.ratio };
        let mut bars: Vec<Bar> = [ours].into_iter().chain(self.peers.iter().map(peer)).collect();
        bars.sort_by(|one, other| one.ratio[1].total_cmp(&other.ratio[1]));
        if !self.is_time() {
            bars.reverse();
        }
        bars
    }

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
        self.peers.iter().try_for_each(|peer| write!(f, "\n{peer}"))
    }
}

impl fmt::Display for PeerFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, median, greatest] = self.ratio;
        let name = format!("  {}", self.name);
        write!(
            f,
            "{name:<46} {:>9.1} {:<20} ratio {median:.2} ({least:.2} to {greatest:.2})",
            self.value, ""
        )?;
        if let (Some(jain), Some(wait)) = (self.jain, self.longest_wait_ms) {
            write!(f, ", Jain {jain:.3}, longest wait {wait:.1} ms")?;
        }
        Ok(())
    }
}

/// Has the floor and fencepost work in turns. Both give a number in the same unit.
pub(crate) fn in_turns(
    name: impl Into<String>,
    unit: &'static str,
    floor: impl FnMut() -> f64,
    ours: impl FnMut() -> f64,
) -> Figure {
    in_turns_beside(Vec::new(), name, unit, floor, ours)
}

/// The same with others, each of which has its turn in each round.
pub(crate) fn in_turns_beside(
    peers: Vec<Peer>,
    name: impl Into<String>,
    unit: &'static str,
    mut floor: impl FnMut() -> f64,
    mut ours: impl FnMut() -> f64,
) -> Figure {
    // The first round warms all up; who cannot do it is left out.
    floor();
    ours();
    let mut peers: Vec<(Peer, Vec<Answer>)> = peers.into_iter().map(|peer| (peer, Vec::new())).collect();
    peers.retain_mut(|(peer, _)| peer.work().is_some());
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push((floor(), ours()));
        peers.retain_mut(|(peer, answers)| peer.work().map(|answer| answers.push(answer)).is_some());
    }
    let ratios = sorted(rounds.iter().map(|(floor, ours)| ours / floor));
    let of_peer = |(peer, answers): (Peer, Vec<Answer>)| {
        let ratios = sorted(rounds.iter().zip(&answers).map(|((floor, _), answer)| answer.value / floor));
        let of = |value: fn(&Answer) -> Option<f64>| answers.iter().map(value).collect::<Option<Vec<_>>>();
        PeerFigure {
            name: peer.name,
            value: median(answers.iter().map(|answer| answer.value)),
            ratio: [ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]],
            jain: of(|answer| answer.jain).map(|all| median(all.into_iter())),
            longest_wait_ms: of(|answer| answer.longest_wait_ms).map(|all| median(all.into_iter())),
        }
    };
    Figure {
        name: name.into(),
        unit,
        floor: sorted(rounds.iter().map(|(floor, _)| *floor))[ROUNDS / 2],
        ours: sorted(rounds.iter().map(|(_, ours)| *ours))[ROUNDS / 2],
        ratio: [ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]],
        fairness: None,
        peers: peers.into_iter().map(of_peer).collect(),
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
