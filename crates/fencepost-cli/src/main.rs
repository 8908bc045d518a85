//! The command `fencepost`.

mod args;
mod child;
mod commands;
mod exit;
mod label;
mod printer;
mod screen;

use clap::Parser;
use clap::error::ErrorKind;

use args::Cli;
use exit::Exit;
use printer::Printer;

fn main() {
    std::panic::set_hook(Box::new(commands::report_bug));
    let cli = Cli::try_parse().unwrap_or_else(|error| usage(&error).leave());
    let printer = Printer::new(&cli.global);
    commands::execute(&cli, printer).leave()
}

/// Help goes to stdout and is no error; anything else is one, and not with clap's exit code.
fn usage(error: &clap::Error) -> Exit {
    let _ = error.print();
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if error.kind() == ErrorKind::MissingRequiredArgument
        && words.iter().any(|word| word == "run")
        && !words.iter().any(|word| word == "--")
    {
        Printer::plain().hint("put -- between the locks and the command: fencepost run nightly -- ./job.sh");
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::OK,
        _ => Exit::USAGE,
    }
}
