//! The command `fencepost`.

mod args;
mod child;
mod commands;
mod exit;
mod label;
mod misuse;
mod printer;
mod screen;

use clap::error::ErrorKind;
use clap::{ColorChoice, CommandFactory, FromArgMatches};

use args::Cli;
use exit::Exit;
use printer::Printer;

fn main() {
    std::panic::set_hook(Box::new(commands::report_bug));
    let color = color();
    let grammar = Cli::command().color(color);
    let read = grammar.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = read.unwrap_or_else(|error| usage(&error, color).leave());
    let printer = Printer::new(&cli.global);
    let exit = commands::execute(&cli, printer);
    // A script is not to take half of an answer for all of it.
    let exit = if printer::is_data_lost() { Exit::UNAVAILABLE } else { exit };
    exit.leave()
}

/// Help goes to stdout and is no error; anything else is one, and not with clap's exit code.
fn usage(error: &clap::Error, color: ColorChoice) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Printer::before_arguments(color).lose(&error);
                Exit::UNAVAILABLE
            }
            _ => Exit::OK,
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::USAGE
        }
        _ => {
            misuse::say(error, &words(), Printer::before_arguments(color));
            Exit::USAGE
        }
    }
}

/// What `--color` says: for help, and for what is wrong with the command line, before it is read.
fn color() -> ColorChoice {
    let words = words();
    let says = |what: &str| {
        words.iter().any(|word| *word == format!("--color={what}"))
            || words.windows(2).any(|pair| pair[0] == "--color" && pair[1] == what)
    };
    match (says("never"), says("always")) {
        (true, _) => ColorChoice::Never,
        (_, true) => ColorChoice::Always,
        _ => ColorChoice::Auto,
    }
}

/// The words of the command line up to those of a command that is to be run.
fn words() -> Vec<String> {
    let mut words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let end = words.iter().position(|word| word == "--").map_or(words.len(), |end| end + 1);
    words.truncate(end);
    words
}
