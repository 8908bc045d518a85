//! One file a command.

mod acquire;
mod advise;
mod alone;
mod config;
mod confirm;
mod doctor;
mod explain;
mod fence;
mod give_back;
mod history;
#[cfg(feature = "lab")]
mod lab;
mod layout;
mod lease_id;
mod lift;
mod list;
mod manual;
mod patience;
mod place;
mod revoke;
mod run;
mod state;
mod status;
mod watch;

use std::panic::PanicHookInfo;

use fencepost::BackendUrl;

use crate::args::{Cli, Command, ConfigCommand};
use crate::exit::Exit;
use crate::printer::Printer;

/// Carries out what the command line says.
pub(crate) fn execute(cli: &Cli, printer: Printer) -> Exit {
    match cli.global.backend() {
        // It refuses a password, since it would show it; a place for one is none.
        Ok(_) if matches!(cli.command, Command::Advise(_)) => {}
        Ok(Some(url)) => warn_of_password(
            &url,
            "--backend",
            "use ${file:/path} in the configuration, FENCEPOST_BACKEND, or the server's own password file",
            printer,
        ),
        Ok(None) => {}
        Err(error) => return place::fail(&error, printer),
    }
    match &cli.command {
        Command::Run(args) => run::run(&cli.global, args, printer),
        Command::Status(args) => status::status(&cli.global, args, printer),
        Command::List(args) => list::list(&cli.global, args, printer),
        Command::History(args) => history::history(&cli.global, args, printer),
        Command::Watch(args) => watch::watch(&cli.global, args, printer),
        Command::Acquire(args) => acquire::acquire(&cli.global, args, printer),
        Command::Renew(args) => acquire::renew(&cli.global, args, printer),
        Command::Release(args) => acquire::release(&cli.global, args, printer),
        Command::Revoke(args) => revoke::revoke(&cli.global, args, printer),
        Command::Lift(args) => lift::lift(&cli.global, args, printer),
        Command::Advise(args) => advise::advise(&cli.global, args, printer),
        Command::Doctor(args) => doctor::doctor(&cli.global, args, printer),
        Command::Explain(args) => explain::explain(&cli.global, args, printer),
        Command::Fence(args) => fence::fence(&cli.global, args, printer),
        #[cfg(feature = "lab")]
        Command::Lab(args) => lab::lab(&cli.global, args, printer),
        #[cfg(feature = "lab")]
        Command::LabWorker => lab::worker(printer),
        #[cfg(feature = "lab")]
        Command::LabSweep(args) => lab::sweep(args),
        Command::Config(args) => match &args.command {
            ConfigCommand::Check(args) => config::check(&cli.global, args, printer),
            ConfigCommand::Schema => config::schema(printer),
        },
        Command::Completions(args) => manual::completions(args, printer),
        Command::Man(args) => manual::page(args, printer),
        Command::GiveBack => give_back::give_back(printer),
    }
}

/// A command line is no place for a secret.
fn warn_of_password(url: &BackendUrl, whose: &str, elsewhere: &str, printer: Printer) {
    if url.has_password() {
        printer.warn(format_args!("everybody on this host can read the password in {whose}"));
        printer.hint(elsewhere);
    }
}

/// Warns of the passwords in what `--fence` says.
fn warn_of_fences(fences: &[BackendUrl], printer: Printer) {
    for fence in fences {
        warn_of_password(fence, "--fence", "use the rule's fence in the configuration", printer);
    }
}

/// A panic is a bug of ours and ends the process; a guardian then ends the command.
pub(crate) fn report_bug(info: &PanicHookInfo<'_>) {
    crate::screen::give_back();
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("fencepost: error: a bug in fencepost: {info}\n").as_bytes(),
    );
    Exit::BUG.leave()
}
