//! `fencepost fence`: the check inside a protected system, for scripts and by hand.
//!
//! What the kinds of fences do differently is decided in the façade; nothing here knows one but by its URL.

mod inherited;
mod install;
mod marks;
mod present;

use fencepost::{BackendUrl, Result};
use serde::Serialize;

use super::place::fail;
use super::warn_of_password;
use crate::args::{self, FenceCommand, Global};
use crate::exit::Exit;
use crate::printer::Printer;

/// Carries out a subcommand of `fence`.
pub(crate) fn fence(global: &Global, args: &args::Fence, printer: Printer) -> Exit {
    let outcome = args.command.url().and_then(|url| {
        warn_of_password(&url, "the URL", "use the server's own password file or variables", printer);
        let desk = Desk { url, json: global.json, printer };
        desk.serve(&args.command)
    });
    outcome.unwrap_or_else(|error| fail(&error, printer))
}

/// What every subcommand needs.
struct Desk {
    url: BackendUrl,
    json: bool,
    printer: Printer,
}

impl Desk {
    fn serve(&self, command: &FenceCommand) -> Result<Exit> {
        match command {
            FenceCommand::Seal(args) => present::seal(self, args),
            FenceCommand::Check(args) => present::check(self, args),
            FenceCommand::Publish(args) => present::publish(self, args),
            FenceCommand::Show(args) => marks::show(self, args),
            FenceCommand::Forget(args) => marks::forget(self, args),
            FenceCommand::Install(args) => install::install(self, args),
            FenceCommand::Uninstall(args) => install::uninstall(self, args),
        }
    }

    fn say_json(&self, data: &impl Serialize) {
        self.printer.data(&serde_json::to_string(data).expect("what is said is plain data"));
    }

    /// Says that nothing can be sealed in a directory that is not there: it may be a typing error.
    fn note_missing_directory(&self) {
        if let Some(directory) = fencepost::directory(&self.url).filter(|directory| !directory.exists()) {
            self.printer.note(format_args!("the directory {} does not exist", directory.display()));
        }
    }
}
