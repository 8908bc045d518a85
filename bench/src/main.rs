//! Measures fencepost and the bare floor, the fewest commands that any client must send, in turns and in one run.
//!
//! The machine's noise hits both, so only the ratios mean something. Each is given with its spread over the rounds.
//! `cargo xtask bench` builds and runs it; `--json` prints the figures for machines.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that measures prints what it has measured"
)]

mod contest;
mod etcd;
mod file;
mod floor;
mod measure;
mod postgres;
mod process;
mod redis;
mod redlock;
mod zookeeper;

use std::process::ExitCode;

use measure::Figure;

type Measure = fn() -> Figure;

/// Each measure, and what it is called by on the command line.
const MEASURES: &[(&str, Measure)] = &[
    ("file-pair", file::pair),
    ("file-pair-shared", file::shared_pair),
    ("file-hand-over", file::hand_over),
    ("process-flock", process::beside_flock),
    ("process-alone", process::beside_nothing),
    ("redis-pair", redis::pair),
    ("redis-distinct", redis::distinct),
    ("redis-hand-over", redis::hand_over),
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| *argument != "--json").collect();
    if let Some(unknown) = wanted.iter().find(|name| MEASURES.iter().all(|(known, _)| known != *name)) {
        let known: Vec<&str> = MEASURES.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no measure {unknown:?}\nusage: fencepost-bench [--json] [{}]", known.join(" | "));
        return ExitCode::from(2);
    }
    let mut figures = Vec::new();
    for (name, measure) in MEASURES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            let figure = measure();
            if !json {
                println!("{figure}");
            }
            figures.push(figure);
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures can be written as JSON"));
    }
    ExitCode::SUCCESS
}
