//! Many simulated runs of the quorum's logic, and the large explorations: the tests of `fencepost-redis`, optimized.
//!
//! Invariant: it runs what the tests run; only how much of it is different.

use std::path::Path;
use std::process::Command;

/// How many runs there are where nobody says how many.
const SEEDS: &str = "1000000";

/// The command that the arguments ask for; `None` if they make no sense.
pub fn command(root: &Path, arguments: &[&str]) -> Option<Command> {
    let number = |text: &str| text.parse::<u64>().is_ok();
    match arguments {
        [] => Some(many(root, SEEDS)),
        ["--seeds", seeds] if number(seeds) => Some(many(root, seeds)),
        ["--seed", seed] if number(seed) => Some(one(root, seed)),
        _ => None,
    }
}

/// All tests, also those that take minutes.
fn many(root: &Path, seeds: &str) -> Command {
    let mut command = tests(root);
    command.arg("--include-ignored").env("FENCEPOST_SEEDS", seeds);
    command
}

/// One run in each scenario, with what happens in it.
fn one(root: &Path, seed: &str) -> Command {
    let mut command = tests(root);
    command.args(["--test-threads=1", "simulation::"]).env("FENCEPOST_SEED", seed);
    command
}

fn tests(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root);
    command.args([
        "test",
        "--release",
        "--package",
        "fencepost-redis",
        "--test",
        "quorum",
        "--",
        "--nocapture",
    ]);
    command
}
