//! The arguments of `lab`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fencepost_lab::{Fault, Pattern};

#[derive(Args, Debug)]
pub(crate) struct Lab {
    /// What protects the workers: none, file, redis, redlock, postgres, etcd, zookeeper, each also with
    /// +fence, such as redis,redis+fence [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) patterns: Vec<Pattern>,
    /// What goes wrong: none, pause, crash, partition, clock, server-restart, data-loss [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) faults: Vec<Fault>,
    /// Repeat the schedule of faults of an earlier run [default: a random one]
    #[arg(long, value_name = "N", value_parser = seed)]
    pub(crate) seed: Option<u32>,
    /// How often the fault strikes in each cell
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Write the picture to this file, one page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Tell one experiment step by step instead
    #[arg(long, value_enum, value_name = "STORY", conflicts_with_all = ["patterns", "faults", "rounds", "report"])]
    pub(crate) story: Option<Story>,
    /// Leave out the check of the fence, to see that the lab notices
    #[arg(long, hide = true)]
    pub(crate) without_check: bool,
}

/// The experiments that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Story {
    /// A holder is stopped for longer than its lease
    Pause,
}

#[derive(Args, Debug)]
pub(crate) struct LabSweep {
    /// The folder
    pub(crate) folder: PathBuf,
}

fn seed(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number in 0..={}", u32::MAX))
}
