//! One file a command.

mod config;
mod explain;
mod give_back;
mod list;
mod place;
mod run;
mod state;
mod status;

use std::panic::PanicHookInfo;

use crate::args::{Cli, Command, ConfigCommand};
use crate::exit::Exit;
use crate::printer::Printer;

/// Carries out what the command line says.
pub(crate) fn execute(cli: &Cli, printer: Printer) -> Exit {
    match cli.global.backend() {
        Ok(Some(url)) if url.has_password() => {
            printer.warn("everybody on this host can read the password in --backend");
            printer.hint("use ${file:/path} in the configuration, FENCEPOST_BACKEND, or the server's own password file");
        }
        Ok(_) => {}
        Err(error) => return place::fail(&error, printer),
    }
    match &cli.command {
        Command::Run(args) => run::run(&cli.global, args, printer),
        Command::Status(args) => status::status(&cli.global, args, printer),
        Command::List(args) => list::list(&cli.global, args, printer),
        Command::Explain(args) => explain::explain(&cli.global, args, printer),
        Command::Config(args) => match args.command {
            ConfigCommand::Check => config::check(&cli.global, printer),
        },
        Command::GiveBack => give_back::give_back(printer),
    }
}

/// A panic is a bug of ours and ends the process; a guardian then ends the command.
pub(crate) fn report_bug(info: &PanicHookInfo<'_>) {
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("fencepost: error: a bug in fencepost: {info}\n").as_bytes(),
    );
    Exit::BUG.leave()
}
