//! Which seeds a test runs, and what it says of one that fails.

use std::env;

use crate::history::Violation;
use crate::scenario::Scenario;
use crate::tally::{Count, Tally};
use crate::world::World;

/// How many seeds there are in all, where nobody says how many.
const SEEDS: u64 = 10_000;

/// Runs the given part of all seeds, and fails with the first that breaks something.
///
/// Where there are enough seeds, each of `bites` must have happened.
pub(crate) fn hold(scenario: Scenario, part: Part, bites: &[Count]) {
    if let Some(seed) = number("FENCEPOST_SEED") {
        let (violations, tally) = World::new(scenario, seed, true).run();
        println!("{tally}");
        assert!(violations.is_empty(), "seed {seed} breaks: {violations:?}");
        return;
    }
    let mut all = Tally::EMPTY;
    let (from, to) = part.of(number("FENCEPOST_SEEDS").unwrap_or(SEEDS));
    for seed in from..to {
        let (violations, tally) = World::new(scenario, seed, false).run();
        assert!(violations.is_empty(), "{}", complaint(scenario, seed, &violations));
        all.add(&tally);
    }
    println!("{}: seeds {from}..{to}\n{all}", scenario.name);
    let missing: Vec<_> = bites.iter().filter(|what| all.of(**what) == 0).collect();
    assert!(to - from < ENOUGH || missing.is_empty(), "in {} seeds never: {missing:?}", to - from);
}

/// The first of `most` seeds that breaks what is looked for, and all that it breaks.
pub(crate) fn first_broken(
    scenario: Scenario,
    most: u64,
    is: fn(&Violation) -> bool,
) -> Option<(u64, Vec<Violation>)> {
    (0..most).find_map(|seed| {
        let (violations, _) = World::new(scenario, seed, false).run();
        violations.iter().any(is).then_some((seed, violations))
    })
}

/// A part of all seeds, in hundredths.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Part {
    fn of(self, seeds: u64) -> (u64, u64) {
        (seeds * self.from / 100, seeds * self.to / 100)
    }
}

/// With fewer seeds, chance alone may leave a fault out.
const ENOUGH: u64 = 500;

fn complaint(scenario: Scenario, seed: u64, violations: &[Violation]) -> String {
    let name = scenario.name;
    let again =
        format!("FENCEPOST_SEED={seed} cargo test -p fencepost-redis --test quorum -- --nocapture {name}");
    let what: Vec<String> = violations.iter().map(ToString::to_string).collect();
    format!("seed {seed} breaks {}; again with its trace:\n  {again}", what.join(", "))
}

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}
