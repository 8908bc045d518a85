//! The grammar of `fencepost fence`, apart since it has subcommands of its own.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, Subcommand};
use fencepost::{BackendUrl, Error, ErrorKind, FencingToken, LockName, Result, StampHolder};

#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 accepted, sealed, published, shown; 1 no mark; 79 stale: the fence has seen a greater token, or this one was never sealed; 64 usage, 69 unavailable, 77 denied."
)]
pub(crate) struct Fence {
    #[command(subcommand)]
    pub(crate) command: FenceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// Raise the mark to a token, before the work begins; exit 79 if it is stale
    ///
    /// From then on the token of every earlier holder is refused. The same stamp may be sealed again.
    #[command(after_help = FROM_RUN)]
    Seal(Stamped),
    /// Ask whether a token is the sealed one; exit 0 accepted, 79 stale
    ///
    /// Accepts the sealed token of the same holder alone, and never raises the mark: seal first. What is written after the check can
    /// still come too late; only a system that checks and writes in one step is safe from that.
    #[command(after_help = FROM_RUN)]
    Check(Stamped),
    /// Make a file or a directory the current result of a lock, in one step; exit 79 if the token is stale
    ///
    /// PATH is copied, and DIRECTORY/LOCK leads to the copy from then on: to the whole new result, or to the one before. The token has to be the
    /// sealed one, so an older result never takes the place of a newer one. Publish what is finished; PATH stays as it is.
    #[command(after_help = FROM_RUN, override_usage = "fencepost fence publish [OPTIONS] <URL> [LOCK] <PATH>")]
    Publish(FencePublish),
    /// Show the mark of a lock, or of all; exit 1 if the lock has none
    Show(FenceShow),
    /// Remove the mark of a lock; exit 1 if it has none
    ///
    /// The fence then knows nothing of the lock: the token of any former holder can be sealed, and is accepted again. For
    /// locks that nobody will hold any more.
    Forget(FenceForget),
    /// Prepare a system to be a fence: a directory, a table in Postgres, functions in Redis
    Install(FenceInstall),
    /// Take away what `install` has made
    Uninstall(FenceUninstall),
}

impl FenceCommand {
    /// Where the fence is.
    pub(crate) fn url(&self) -> Result<BackendUrl> {
        let text = match self {
            Self::Seal(args) | Self::Check(args) => &args.url,
            Self::Publish(args) => &args.url,
            Self::Show(args) => &args.url,
            Self::Forget(args) => &args.url,
            Self::Install(args) => &args.url,
            Self::Uninstall(args) => &args.url,
        };
        text.parse()
    }
}

const FROM_RUN: &str = "Under `fencepost run`, LOCK, TOKEN and --holder are those of the run where they are left out; a LOCK of another run needs its TOKEN.";

// What is shown to a fence.
#[derive(Args, Debug)]
pub(crate) struct Stamped {
    /// The fence: file:/directory, redis://host:6379/0, postgres://user@host/database,
    /// sqlite:/file, s3://bucket/prefix
    #[arg(value_name = "URL")]
    url: String,
    /// The lock [env: FENCEPOST_LOCK]
    #[arg(value_name = "LOCK")]
    pub(crate) lock: Option<LockName>,
    /// The fencing token, 1 to 2^63-1 [env: FENCEPOST_TOKEN]
    #[arg(value_name = "TOKEN")]
    pub(crate) token: Option<FencingToken>,
    /// The holder; an equal token passes for the same one only [env: FENCEPOST_HOLDER] [default: the
    /// empty one]
    #[arg(long, value_name = "HOLDER", value_parser = holder)]
    pub(crate) holder: Option<StampHolder>,
}

#[derive(Args, Debug)]
pub(crate) struct FencePublish {
    /// The fence: file:/directory, s3://bucket/prefix
    #[arg(value_name = "URL")]
    url: String,
    /// The lock [env: FENCEPOST_LOCK], and what the job has made
    #[arg(value_name = "[LOCK] PATH", required = true, num_args = 1..=2)]
    what: Vec<OsString>,
    /// The fencing token, 1 to 2^63-1 [env: FENCEPOST_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<FencingToken>,
    /// The holder; an equal token passes for the same one only [env: FENCEPOST_HOLDER] [default: the
    /// empty one]
    #[arg(long, value_name = "HOLDER", value_parser = holder)]
    pub(crate) holder: Option<StampHolder>,
}

impl FencePublish {
    /// The lock, where one is given.
    pub(crate) fn lock(&self) -> Result<Option<LockName>> {
        let [lock, _] = &self.what[..] else { return Ok(None) };
        let not_text = || Error::new(ErrorKind::InvalidArgument, "read the lock's name", "it is not UTF-8");
        lock.to_str().ok_or_else(not_text)?.parse().map(Some)
    }

    /// What the job has made.
    pub(crate) fn path(&self) -> &Path {
        self.what.last().map_or(Path::new(""), Path::new)
    }
}

#[derive(Args, Debug)]
pub(crate) struct FenceShow {
    /// The fence: file:/directory, redis://host:6379/0, postgres://user@host/database,
    /// sqlite:/file, s3://bucket/prefix
    #[arg(value_name = "URL")]
    url: String,
    /// The lock [default: every lock that has a mark]
    #[arg(value_name = "LOCK")]
    pub(crate) lock: Option<LockName>,
}

#[derive(Args, Debug)]
pub(crate) struct FenceForget {
    /// The fence: file:/directory, redis://host:6379/0, postgres://user@host/database,
    /// sqlite:/file, s3://bucket/prefix
    #[arg(value_name = "URL")]
    url: String,
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
    /// Do not ask; needed where there is no terminal
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FenceInstall {
    /// The fence: file:/directory, redis://host:6379/0, postgres://user@host/database,
    /// sqlite:/file, s3://bucket/prefix
    #[arg(value_name = "URL")]
    url: String,
    /// Refuse writes to this table without a valid token, where the fence is a database
    #[arg(long, value_name = "TABLE", requires = "lock")]
    pub(crate) table: Option<String>,
    /// The lock whose token a write to the table needs
    #[arg(long, value_name = "LOCK", requires = "table")]
    pub(crate) lock: Option<LockName>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct FenceUninstall {
    /// The fence
    #[arg(value_name = "URL")]
    url: String,
    /// Only let writes to this table go without a token again
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<String>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn holder(text: &str) -> Result<StampHolder, String> {
    StampHolder::new(text).map_err(|error| error.to_string())
}
