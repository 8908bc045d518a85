//! What is wrong with a command line, in the shape of all other messages: one line that says what, and what to do about it.
//!
//! Invariant: no value is shown that a parser of ours has refused, unless that parser shows it: it may be a secret.

use std::error::Error;

use clap::CommandFactory;
use clap::error::{ContextKind, ErrorKind};

use crate::args::Cli;
use crate::printer::Printer;

/// Says what clap has found, and what may have been meant.
pub(crate) fn say(error: &clap::Error, words: &[String], printer: Printer) {
    printer.error(what(error));
    match hints(error, words) {
        hints if hints.is_empty() => printer.hint(format_args!("{} --help tells more", command(words))),
        hints => hints.iter().for_each(|hint| printer.hint(hint)),
    }
}

fn what(error: &clap::Error) -> String {
    let argument = name(&get(error, ContextKind::InvalidArg));
    let value = get(error, ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::ValueValidation => match error.source() {
            Some(source) => format!("{argument}: {source}"),
            None => format!("{argument} cannot be {value:?}"),
        },
        ErrorKind::InvalidValue if value.is_empty() => format!("{argument} needs a value"),
        ErrorKind::InvalidValue => format!("{argument} cannot be {value:?}"),
        ErrorKind::UnknownArgument if argument.starts_with('-') => format!("there is no option {argument}"),
        ErrorKind::UnknownArgument => format!("{argument:?} is one argument too many"),
        ErrorKind::TooManyValues => format!("{value:?} is one argument too many"),
        ErrorKind::InvalidSubcommand => {
            format!("there is no command {:?}", get(error, ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingSubcommand => "a command is missing".to_owned(),
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::ArgumentConflict => conflict(error, &argument),
        _ => first_line(error),
    }
}

fn missing(error: &clap::Error) -> String {
    let names = list(error, ContextKind::InvalidArg);
    format!("{} {} missing", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

fn conflict(error: &clap::Error, argument: &str) -> String {
    match &list(error, ContextKind::PriorArg)[..] {
        [prior] if prior == argument => format!("{argument} is given twice"),
        others => format!("{argument} cannot go with {}", others.join(", ")),
    }
}

fn hints(error: &clap::Error, words: &[String]) -> Vec<String> {
    let mut hints = Vec::new();
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = kinds.map(|kind| list(error, kind)).concat();
    if let Some(meant) = meant.first() {
        hints.push(format!("did you mean {meant}?"));
    }
    let values = list(error, ContextKind::ValidValue);
    if !values.is_empty() {
        hints.push(format!("it is one of {}", values.join(", ")));
    }
    let has = |word: &str| words.iter().any(|other| other == word);
    if error.kind() == ErrorKind::MissingRequiredArgument && has("run") && !has("--") {
        hints.push("put -- between the locks and the command: fencepost run nightly -- ./job.sh".to_owned());
    }
    hints
}

/// The command that was meant, as far as it is known: the words that name one, one below the other.
fn command(words: &[String]) -> String {
    let mut cli = Cli::command();
    let mut grammar = &mut cli;
    let mut names = vec!["fencepost"];
    for word in words {
        if grammar.find_subcommand(word).is_some_and(|command| !command.is_hide_set()) {
            names.push(word);
            grammar = grammar.find_subcommand_mut(word).expect("it was just found");
            // Its own commands are made when they are asked for.
            grammar.build();
        }
    }
    names.join(" ")
}

fn get(error: &clap::Error, kind: ContextKind) -> String {
    error.get(kind).map(ToString::to_string).unwrap_or_default()
}

/// What there may be several of.
fn list(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    use clap::error::ContextValue::{String, Strings};
    match error.get(kind) {
        Some(String(one)) => vec![name(one)],
        Some(Strings(several)) => several.iter().map(|one| name(one)).collect(),
        _ => Vec::new(),
    }
}

/// An option without its value, and the value of a command without what encloses it.
fn name(argument: &str) -> String {
    let first = argument.split(" <").next().unwrap_or_default();
    first.trim_matches(['<', '>', '[', ']', '.']).to_owned()
}

/// What no case above is for.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}
