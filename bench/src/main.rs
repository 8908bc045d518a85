//! Measures fencepost and the bare floor, the fewest commands that any client must send, in turns and in one run.
//!
//! The machine's noise hits both, so only the ratios mean something. Each is given with its spread over the rounds.
//! `cargo xtask bench` builds and runs it; `--json` prints the figures for machines, `--page` draws them, and `--peers` has the
//! libraries of others take part.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that measures prints what it has measured"
)]

mod contest;
mod etcd;
mod file;
mod floor;
mod held;
mod measure;
mod page;
mod peers;
mod postgres;
mod process;
mod recovery;
mod redis;
mod redlock;
mod zookeeper;

use std::fmt::Display;
use std::process::ExitCode;

use serde::Serialize;

use held::Held;
use measure::Figure;
use recovery::Recovery;

type Measure = fn() -> Figure;
type Growth = fn() -> Vec<Held>;

/// Each measure in turns with the floor, and what it is called by on the command line.
const MEASURES: &[(&str, Measure)] = &[
    ("file-pair", file::pair),
    ("file-pair-shared", file::shared_pair),
    ("file-hand-over", file::hand_over),
    ("process-flock", process::beside_flock),
    ("process-alone", process::beside_nothing),
    ("process-redis", process::redis),
    ("process-redlock", process::redlock),
    ("process-postgres", process::postgres),
    ("process-etcd", process::etcd),
    ("process-zookeeper", process::zookeeper),
    ("redis-pair", redis::pair),
    ("redis-distinct", redis::distinct),
    ("redis-hand-over", redis::hand_over),
    ("redis-list", redis::list),
    ("redlock-pair", redlock::pair),
    ("redlock-hand-over", redlock::hand_over),
    ("etcd-pair", etcd::pair),
    ("etcd-leases", etcd::leases),
    ("etcd-distinct", etcd::distinct),
    ("etcd-hand-over", etcd::hand_over),
    ("postgres-pair", postgres::pair),
    ("postgres-pair-durable", postgres::durable_pair),
    ("postgres-distinct", postgres::distinct),
    ("postgres-hand-over-8", postgres::hand_over::<8>),
    ("postgres-hand-over-64", postgres::hand_over::<64>),
    ("postgres-tasks-8", postgres::hand_over_in_a_process::<8>),
    ("postgres-tasks-64", postgres::hand_over_in_a_process::<64>),
    ("zookeeper-pair", zookeeper::pair),
    ("zookeeper-distinct", zookeeper::distinct),
    ("zookeeper-hand-over", zookeeper::hand_over),
    ("postgres-guard", postgres::guard::transaction),
    ("postgres-guard-adds", postgres::guard::added),
];

/// Those that have no floor: what many locks cost that are held, and how soon the next one has the lock of a holder that was killed.
const GROWTHS: &[(&str, Growth)] = &[
    ("redis-held", held::redis),
    ("etcd-held", held::etcd),
    ("zookeeper-held", held::zookeeper),
    ("postgres-held", held::postgres),
];
const RECOVERY: &str = "recovery";

/// All that was measured.
#[derive(Default, Serialize)]
struct Results {
    figures: Vec<Figure>,
    held: Vec<Held>,
    recovery: Vec<Recovery>,
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(folder) = value_of("--peers", &mut arguments) {
        peers::installed_in(folder.into());
    }
    let page = value_of("--page", &mut arguments);
    if let Some((held::HOLDER, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        println!("{}", serde_json::to_string(&held::hold(rest)).expect("figures can be written as JSON"));
        return ExitCode::SUCCESS;
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| *argument != "--json").collect();
    let names = MEASURES.iter().map(|(name, _)| *name).chain(GROWTHS.iter().map(|(name, _)| *name));
    let known: Vec<&str> = names.chain([RECOVERY]).collect();
    let usage = format!(
        "usage: cargo xtask bench [--json] [--page FILE] [--peers] [MEASURE]...\n\n\
         A MEASURE is one of these, or the first word of several, such as redis; without any it is all:\n  {}",
        known.join("\n  ")
    );
    if wanted.iter().any(|word| *word == "--help") {
        println!("{usage}");
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = wanted.iter().find(|wanted| !known.iter().any(|name| is_of(name, wanted))) {
        eprintln!("there is no measure {unknown:?}\n{usage}");
        return ExitCode::from(2);
    }
    let results =
        measure(&|name| wanted.is_empty() || wanted.iter().any(|wanted| is_of(name, wanted)), !json);
    if let Some(file) = page
        && let Err(error) = std::fs::write(&file, page::page(&results))
    {
        eprintln!("{file}: {error}");
        return ExitCode::FAILURE;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&results).expect("figures can be written as JSON"));
    }
    ExitCode::SUCCESS
}

/// Whether a measure was asked for: by its name, or with all others whose names begin with the same word.
fn is_of(name: &str, wanted: &str) -> bool {
    name == wanted || name.split('-').next() == Some(wanted)
}

/// Takes a flag and its value out of the arguments.
fn value_of(flag: &str, arguments: &mut Vec<String>) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == flag).filter(|at| at + 1 < arguments.len())?;
    arguments.remove(at);
    Some(arguments.remove(at))
}

/// Measures what is wanted, and tells each as soon as it is known.
fn measure(is_wanted: &dyn Fn(&str) -> bool, tells: bool) -> Results {
    let mut results = Results::default();
    for (_, measure) in MEASURES.iter().filter(|(name, _)| is_wanted(name)) {
        results.figures.push(told(measure(), tells));
    }
    for (_, growth) in GROWTHS.iter().filter(|(name, _)| is_wanted(name)) {
        results.held.extend(growth().into_iter().map(|held| told(held, tells)));
    }
    if is_wanted(RECOVERY) {
        results.recovery.extend(recovery::all().into_iter().map(|recovery| told(recovery, tells)));
    }
    results
}

fn told<T: Display>(result: T, tells: bool) -> T {
    if tells {
        println!("{result}");
    }
    result
}
