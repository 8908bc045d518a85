//! `fencepost completions` and `fencepost man`: written from the same grammar that reads the command line.

use clap::{Command, CommandFactory};

use crate::args::{self, Cli};
use crate::exit::Exit;
use crate::printer::Printer;

/// Prints the completions for a shell.
pub(crate) fn completions(args: &args::Completions, printer: Printer) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut offered(), "fencepost", &mut script);
    print(&script, printer)
}

/// Prints the manual page of a command.
pub(crate) fn page(args: &args::Man, printer: Printer) -> Exit {
    let mut cli = Cli::command();
    cli.build();
    let Some(command) = args.command.iter().try_fold(&cli, |command, name| command.find_subcommand(name))
    else {
        printer.error(format_args!("there is no command {:?}", args.command.join(" ")));
        printer.hint("fencepost --help lists the commands");
        return Exit::USAGE;
    };
    let mut page = Vec::new();
    match clap_mangen::Man::new(named(command, &args.command)).render(&mut page) {
        Ok(()) => print(&page, printer),
        Err(error) => {
            printer.error(format_args!("the page cannot be written: {error}"));
            Exit::BUG
        }
    }
}

/// The grammar without what is not for users, which some shells would offer.
fn offered() -> Command {
    let cli = Cli::command();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("fencepost").args(cli.get_arguments().cloned()).subcommands(commands)
}

/// The command as its page is called: `fencepost-run`.
fn named(command: &Command, path: &[String]) -> Command {
    let words: Vec<&str> = std::iter::once("fencepost").chain(path.iter().map(String::as_str)).collect();
    command.clone().display_name(words.join("-")).bin_name(words.join(" "))
}

fn print(text: &[u8], printer: Printer) -> Exit {
    printer.data(String::from_utf8_lossy(text).trim_end());
    Exit::OK
}
