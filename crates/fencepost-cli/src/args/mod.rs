//! The command line's grammar; the comments here are the help texts.
#![expect(clippy::doc_markdown, reason = "the comments are shown as they stand, without markup")]

mod fence;
#[cfg(feature = "lab")]
mod lab;
mod lease;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fencepost::{BackendUrl, FencingToken, LockName, Result};

pub(crate) use fence::{
    Fence, FenceCommand, FenceForget, FenceInstall, FencePublish, FenceShow, FenceUninstall, Stamped,
};
#[cfg(feature = "lab")]
pub(crate) use lab::{Lab, LabSweep};
pub(crate) use lease::{Acquire, Leased, Revoke};

/// Never let two jobs silently run at once
///
/// Runs a job while holding a lock, with a fencing token that grows with every grant:
///
///     fencepost run nightly -- ./job.sh
///
/// Without a configuration the lock holds on this host only.
#[derive(Debug, Parser)]
#[command(
    name = "fencepost",
    version,
    max_term_width = 80,
    verbatim_doc_comment,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit codes: 64 usage, 69 unavailable, 75 not acquired, 76 lease lost,\n77 denied, 78 configuration, 79 stale token, 124 --max-runtime,\n126/127 command, 128+N signal N; else the command's own."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Accepted before and after the subcommand.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Where the lock lives: file: (this host), file:/directory, redis://host,
    /// redlock://a,b,c, postgres://user@host/database [env: FENCEPOST_BACKEND]
    #[arg(long, value_name = "URL", global = true)]
    backend: Option<String>,
    /// The configuration [env: FENCEPOST_CONFIG] [default: ./fencepost.toml, else
    /// ~/.config/fencepost/fencepost.toml, else /etc/fencepost.toml]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Say errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: ColorChoice,
}

// A URL may contain a password, and clap quotes what it cannot read; so they are read here.
impl Global {
    /// What `--backend` says.
    pub(crate) fn backend(&self) -> Result<Option<BackendUrl>> {
        self.backend.as_deref().map(str::parse).transpose()
    }
}

impl Run {
    /// What `--fence` says.
    pub(crate) fn fences(&self) -> Result<Vec<BackendUrl>> {
        self.fence.iter().map(|text| text.parse()).collect()
    }
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    ///
    /// Waits until the lock is free, runs the command, and gives the lock back when the last process of the command has
    /// ended. The command finds FENCEPOST_LOCK, FENCEPOST_TOKEN, FENCEPOST_HOLDER and FENCEPOST_BACKEND_KIND in its
    /// environment. If the lease is lost, the command is stopped before the lock can have gone to somebody else.
    Run(Run),
    /// Show who holds a lock; exit 0 held, 1 free
    Status(Status),
    /// Show every lock that is held
    List(List),
    /// Acquire a lock for a script, which renews and releases it by the lease's id
    ///
    /// Prints JSON: lock, token, holder, lease, ttl_ms, backend. Nobody renews the lease but `fencepost renew`; without it the
    /// lock is free after the ttl. For backends whose leases run out by themselves: Redis, Redlock, etcd. Where `fencepost run` will
    /// do, use that: it renews, and stops the command when the lease is lost.
    Acquire(Acquire),
    /// Renew a lease of `acquire`; exit 76 when it has ended
    Renew(Leased),
    /// Release a lease of `acquire`; exit 76 when it has ended
    Release(Leased),
    /// Take a lease away from its holder by force
    ///
    /// The holder is told where the backend can, and its command is stopped with exit 76. The next token is greater. Fences of the
    /// lock's rule, and those of --fence, are sealed so that they refuse the old holder from now on.
    Revoke(Revoke),
    /// Raise the next fencing token of a lock, after a restore or before a move; never lowers it
    Lift(Lift),
    /// Tell where a lock lives, and what is promised there
    Explain(Explain),
    /// Seal and check tokens at a fence, and look after its marks
    Fence(Fence),
    /// See what gets through when workers are paused, killed or cut off
    ///
    /// Several processes work through one partition, on servers that are started for it and removed again, and are paused, killed and
    /// cut off. The picture of each hold is written with --report. Exit 0: everything held that was promised; an unfenced pattern that
    /// shows its known weakness is no failure. Exit 1: a fence let something through, or a rule of the locks was broken.
    #[cfg(feature = "lab")]
    Lab(Lab),
    /// Look at the configuration
    Config(Config),
    /// Print the completions for a shell
    ///
    /// For bash: fencepost completions bash >~/.local/share/bash-completion/completions/fencepost
    Completions(Completions),
    /// Print a manual page, in the format of man(1)
    ///
    /// Show it: fencepost man run | man -l -
    Man(Man),
    /// Work as the lab says
    #[cfg(feature = "lab")]
    #[command(hide = true)]
    LabWorker,
    /// Remove the lab's folder when the lab is gone
    #[cfg(feature = "lab")]
    #[command(hide = true)]
    LabSweep(LabSweep),
    /// Give a lease back for a process that is gone; reads it from standard input
    #[command(hide = true)]
    GiveBack,
}

/// What `run` is asked to do.
#[derive(Args, Debug)]
#[command(override_usage = "fencepost run [OPTIONS] <LOCK>... -- <COMMAND> [ARG]...")]
pub(crate) struct Run {
    /// The lock, or several: all or none
    #[arg(required = true, value_name = "LOCK")]
    pub(crate) locks: Vec<LockName>,
    /// The command and its arguments; no shell stands in between
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Length of lease to ask for, where leases run out [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Wait at most so long for the lock [default: until it is free]
    #[arg(short, long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(short, long)]
    pub(crate) no_wait: bool,
    /// Keep the lock at least so long after the grant, even if the command ends sooner
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// Stop the command after so long; exit 124
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_runtime: Option<Duration>,
    /// Time between SIGTERM and SIGKILL [default: 5s or a quarter of the lease]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// What to do when the lease is lost: stop the command, or only warn and leave it to the fence
    #[arg(long, value_enum, value_name = "WHAT", default_value = "stop")]
    pub(crate) on_lost: OnLost,
    /// Exit code when the lock was not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Seal this fence with the new token before the command starts (repeatable)
    #[arg(long, value_name = "URL")]
    fence: Vec<String>,
    /// Write the outcome to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Append one line of JSON per event to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
}

/// What to do when the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    Stop,
    Warn,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only locks whose names begin with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
}

#[derive(Args, Debug)]
pub(crate) struct Lift {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
    /// The least that the next token may be, 1 to 2^63-1
    #[arg(long, value_name = "TOKEN")]
    pub(crate) to: FencingToken,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The command, such as run, or fence seal [default: the page of fencepost]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration file; exit 0 sound, 78 wrong
    Check,
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    fencepost_policy::duration::parse(text).map_err(|error| error.to_string())
}
