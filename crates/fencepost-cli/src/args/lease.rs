//! The grammar of the commands about one lease: `acquire`, `renew`, `release`, `revoke`.

use std::time::Duration;

use clap::Args;
use fencepost::{BackendUrl, FencingToken, LockName, Result};

use super::{duration, ttl, urls};

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
    /// Length of lease to ask for [default: the rule's, else 30s]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// Wait at most so long for the lock [default: until it is free]
    #[arg(short, long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(short, long)]
    pub(crate) no_wait: bool,
    /// Seal this fence with the new token before the lease is handed out (repeatable)
    #[arg(long, value_name = "URL")]
    fence: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Leased {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
    // It is read later: where leases cannot be handed over that is what is said, whatever the id.
    /// The lease that `acquire` has printed
    #[arg(long, value_name = "ID", env = "FENCEPOST_LEASE", hide_env_values = true)]
    pub(crate) lease: String,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// The lock
    #[arg(value_name = "LOCK")]
    pub(crate) lock: LockName,
    /// The token of the lease that is meant, so that a newer one is never hit
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: FencingToken,
    /// Why; the holder is told
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Seal this fence so that it refuses the old holder (repeatable)
    #[arg(long, value_name = "URL")]
    fence: Vec<String>,
}

impl Acquire {
    /// What `--fence` says.
    pub(crate) fn fences(&self) -> Result<Vec<BackendUrl>> {
        urls(&self.fence)
    }
}

impl Revoke {
    /// What `--fence` says.
    pub(crate) fn fences(&self) -> Result<Vec<BackendUrl>> {
        urls(&self.fence)
    }
}
