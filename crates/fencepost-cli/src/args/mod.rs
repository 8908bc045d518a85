//! The command line's grammar; the comments here are the help texts.
#![expect(clippy::doc_markdown, reason = "the comments are shown as they stand, without markup")]

mod advise;
mod fence;
#[cfg(feature = "lab")]
mod lab;
mod lease;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fencepost::{BackendUrl, FencingToken, LockName, MarkOn, Period, Result};

pub(crate) use advise::{Advise, UNKNOWN};
pub(crate) use fence::{
    Fence, FenceCommand, FenceForget, FenceInstall, FencePublish, FenceShow, FenceUninstall, Stamped,
};
#[cfg(feature = "lab")]
pub(crate) use lab::{Lab, LabSweep};
pub(crate) use lease::{Acquire, Leased, Revoke};

/// What the help begins with: what most people need.
const ABOUT: &str = "Never let two jobs silently run at once

    fencepost run nightly -- ./job.sh   run a job under a lock
    fencepost status nightly            who holds it, and who waits
    fencepost advise                    which lock is right for a job

Without a configuration a lock holds on this host only.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "fencepost",
    bin_name = "fencepost",
    version,
    about = ABOUT,
    long_about = None,
    max_term_width = 80,
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
    /// Where locks live: file:, redis://, redlock://, postgres://, etcd://,
    /// zookeeper:// [env: FENCEPOST_BACKEND]
    #[arg(long, value_name = "URL", global = true)]
    backend: Option<String>,
    /// The configuration [env: FENCEPOST_CONFIG] [default: fencepost.toml here, in
    /// ~/.config/fencepost or in /etc]
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
    ///
    /// A job of cron on several hosts that is to run once a minute, whatever their clocks say (cron wants % as \%):
    ///
    ///     * * * * * fencepost run --once-per "$(date -u +\%FT\%H:\%M)" nightly -- ./job.sh
    Run(Box<Run>),
    /// Show who holds a lock; exit 0 held, 1 free
    Status(Status),
    /// Show every lock that is held
    List(List),
    /// Show the last grants of a lock
    ///
    /// Who held it, from when to when, with which token, and how that ended; the newest stands last. Grants are kept where the rule of the
    /// lock says `history = true`, or how many. With --once-per, the last slot that counts as done is shown too.
    History(History),
    /// Show changes of locks as they happen
    ///
    /// What is not free comes first, then each change: who holds a lock, who waits, when it came free, and when a backend cannot be
    /// reached. On a terminal it is a view that counts down what is left of each lease; elsewhere a line for each change, with --json an
    /// object: that of `status --json`, with `at`, `change` and `error`. Backends that can push tell of a change at once, the others
    /// are looked at every second; of what came and went in between, a lock tells that keeps a history. It ends with 0 by `q` and when
    /// nobody reads its output any more, with 130 by Ctrl-C and with 128+N by signal N.
    Watch(Watch),
    /// Acquire a lock for a script
    ///
    /// The script renews and releases it by the id of the lease.
    ///
    /// Prints JSON: lock, token, holder, lease, ttl_ms, backend. Nobody renews the lease but `fencepost renew`; without it the
    /// lock is free after the ttl. For backends whose leases need no process of their holder: Redis, Redlock, etcd. Where `fencepost run` will
    /// do, use that: it renews, and stops the command when the lease is lost.
    Acquire(Acquire),
    /// Renew a lease of acquire; exit 76 when it has ended
    Renew(Leased),
    /// Release a lease of acquire; exit 76 when it has ended
    Release(Leased),
    /// Take a lease away from its holder by force
    ///
    /// The holder is told where the backend can, and its command is stopped with exit 76. The next token is greater. Fences of the
    /// lock's rule, and those of --fence, are sealed so that they refuse the old holder from now on.
    Revoke(Revoke),
    /// Raise the next fencing token of a lock; never lowers it
    ///
    /// After a restore of the backend, or before a lock moves to another one.
    Lift(Lift),
    /// Find the lightest lock that is safe enough for a job
    ///
    /// Asks what happens if two workers process the same partition at once, and five questions more: on a terminal one by one, where
    /// flags have not answered them. What comes out is the kind of lock, a reason for each answer, what can go wrong, what it costs,
    /// what else there is, and a rule for the configuration. An answer that is `unknown` is taken at its worse.
    Advise(Box<Advise>),
    /// Tell where a lock lives, and what is promised there
    ///
    /// Which rule decides, what is promised under each fault and when two could overlap, how long others wait after a crash,
    /// and what it costs. It looks at the server for its version, for 3 seconds at most.
    Explain(Explain),
    /// Look for what weakens a promise; exit 1 if it is serious
    ///
    /// Looks at every backend and every fence of the configuration, at those of some LOCKs, or at the one that
    /// --backend names: reachable, set up so that a lock holds and a token grows, fences in force. It changes
    /// nothing. Each finding says what was seen, what that means for the locks, and what to change.
    Doctor(Doctor),
    /// Seal and check tokens at a fence
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
    /// Length of lease, where leases run out [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// Wait at most so long [default: until it is free]
    #[arg(short, long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(short, long)]
    pub(crate) no_wait: bool,
    /// Run once for this slot, such as a tick of cron; done already: exit 0
    ///
    /// The command is not started, and the exit code is 0, where this slot or a later one counts as done. No clock is read: whoever
    /// plans the job says what it is for. Slots are in the order of their text, and numbers in them count as numbers: `run-10` is after
    /// `run-9`, `2026-11-30` after `2026-11-29`. A slot that is not after the last one counts as done.
    #[arg(long, value_name = "SLOT")]
    pub(crate) once_per: Option<Period>,
    /// When the slot counts as done: at the start, or when the command exits 0
    ///
    /// With `start` a command that fails is not run again for the slot: at most once. With `success` it may be, also where it is not
    /// known whether the slot could be marked (exit 69) and where a signal asked the command to end: at least once.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "start", requires = "once_per")]
    pub(crate) slot_on: SlotOn,
    /// Hold it together with others that only read
    ///
    /// Whoever runs without --shared holds it alone. A reader that comes while such a writer waits goes behind it. A reader seals no fence and passes no token on to one, also where the
    /// rule of the lock has fences.
    #[arg(long, conflicts_with_all = ["once_per", "slots", "at_least"])]
    pub(crate) shared: bool,
    /// Take one of N slots: at most N hold the lock, each with its own token
    ///
    /// A slot is a lock of its own, NAME#0 to NAME#(N-1): FENCEPOST_LOCK is its name and FENCEPOST_SLOT its number, and fences are sealed
    /// for that name. All have to ask for the same N. A run without --slots holds another lock and keeps nobody out of a slot.
    #[arg(long, value_name = "N", value_parser = slots, conflicts_with = "once_per")]
    pub(crate) slots: Option<usize>,
    /// Keep the lock at least so long, even if the command ends sooner
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
    /// Keep metrics in this file, for the textfile collector of Prometheus; its counters go on
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
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

/// When the slot of `--once-per` counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SlotOn {
    Start,
    Success,
}

impl From<SlotOn> for MarkOn {
    fn from(slot_on: SlotOn) -> Self {
        match slot_on {
            SlotOn::Start => Self::Start,
            SlotOn::Success => Self::Success,
        }
    }
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
pub(crate) struct History {
    /// The lock; NAME#0 for a slot of it
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Only locks whose names begin with this
    #[arg(value_name = "LOCK|PREFIX", default_value = "", hide_default_value = true)]
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
    /// Do not look at the server
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 nothing serious, 1 something serious; 64 usage, 78 configuration.")]
pub(crate) struct Doctor {
    /// The locks whose backends and fences are looked at [default: all of the configuration]
    #[arg(value_name = "LOCK")]
    pub(crate) locks: Vec<LockName>,
    /// Look at this fence as well (repeatable)
    #[arg(long, value_name = "URL")]
    fence: Vec<String>,
}

impl Doctor {
    /// What `--fence` says.
    pub(crate) fn fences(&self) -> Result<Vec<BackendUrl>> {
        self.fence.iter().map(|text| text.parse()).collect()
    }
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
    ///
    /// Without FILE it is the file that would be used, compared with those that other jobs on this host may find. With several, each is
    /// checked, and compared with the others: jobs that read different files must not put one lock in two places.
    Check(ConfigCheck),
    /// Print the JSON Schema of the configuration, with which editors complete its keys
    Schema,
}

#[derive(Args, Debug)]
pub(crate) struct ConfigCheck {
    /// Check these files, and whether they agree
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub(crate) files: Vec<PathBuf>,
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    fencepost_policy::duration::parse(text).map_err(|error| error.to_string())
}

/// A lease that has no time is none.
fn ttl(text: &str) -> std::result::Result<Duration, String> {
    let ttl = duration(text)?;
    if ttl.is_zero() { Err("a lease needs some time; the built-in ttl is 30s".to_owned()) } else { Ok(ttl) }
}

fn slots(text: &str) -> std::result::Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST_SLOTS).contains(count));
    count.ok_or_else(|| format!("a lock has 1 to {MOST_SLOTS} slots"))
}

/// The most slots of one lock, as the library has it.
const MOST_SLOTS: usize = 100;
