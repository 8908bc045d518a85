//! `fence install` and `fence uninstall`: what a system needs before it can be a fence.

use fencepost::{Installation, LockName, Result, block_on};
use serde::Serialize;

use super::Desk;
use crate::args::{FenceInstall, FenceUninstall};
use crate::exit::Exit;

/// What was done, for machines. What does not exist is null.
#[derive(Debug, Serialize)]
struct Done<'a> {
    fence: &'static str,
    table: Option<&'a str>,
    lock: Option<&'a str>,
    dry_run: bool,
    steps: &'a [String],
}

/// Prepares a system to be a fence.
pub(super) fn install(desk: &Desk, args: &FenceInstall) -> Result<Exit> {
    let installation =
        Installation { table: args.table.clone(), lock: args.lock.clone(), dry_run: args.dry_run };
    let steps = block_on(fencepost::install_fence(&desk.url, &installation))?;
    Ok(desk.say_steps(&installation, &steps))
}

/// Takes away what [`install`] has made.
pub(super) fn uninstall(desk: &Desk, args: &FenceUninstall) -> Result<Exit> {
    let installation = Installation { table: args.table.clone(), lock: None, dry_run: args.dry_run };
    let steps = block_on(fencepost::uninstall_fence(&desk.url, &installation))?;
    Ok(desk.say_steps(&installation, &steps))
}

impl Desk {
    fn say_steps(&self, installation: &Installation, steps: &[String]) -> Exit {
        let (fence, dry_run) = (self.url.kind(), installation.dry_run);
        let (table, lock) = (installation.table.as_deref(), installation.lock.as_ref().map(LockName::as_str));
        if self.json {
            self.say_json(&Done { fence, table, lock, dry_run, steps });
        } else {
            for step in steps {
                self.printer.data(step);
            }
        }
        Exit::OK
    }
}
