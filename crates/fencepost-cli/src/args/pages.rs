//! Every command that a page of the documentation names is one that the command line understands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::Cli;

/// What stands for something else in a page, and an example of that.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("FILE", "sqlite:/srv/ledger.db"),
    ("H", "000102030405060708090a0b0c0d0e0f"),
    ("N", "7"),
    ("SHELL", "bash"),
    ("TOKEN", "7"),
    ("URL", "file:/srv/exports"),
    ("$db", "postgres://app@db/ledger"),
    ("$token", "7"),
    ("sqlite:FILE", "sqlite:/srv/ledger.db"),
    ("redis://\u{2026}", "redis://cache"),
    ("postgres://\u{2026}", "postgres://db"),
];

/// What ends a command of a shell.
const ENDS: &[&str] = &["|", "||", "&&", "&", ">", ">>", "<", "2>&1"];

/// What may stand before one, but for the end of another: also the prompt, and the last field of a time in a crontab.
const BEGINNINGS: &[&str] = &["$", "*", "--", "if"];

/// The pages: those of the repository, of `docs/`, and of the crates.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).expect("the folder is there");
        entries.map(|entry| entry.expect("it can be read").path()).collect::<Vec<_>>()
    };
    let of_crates = entries("crates").into_iter().map(|folder| folder.join("README.md"));
    let all = entries(".").into_iter().chain(entries("docs")).chain(of_crates);
    let mut pages: Vec<_> =
        all.filter(|path| path.extension().is_some_and(|end| end == "md") && path.exists()).collect();
    pages.sort();
    pages
}

/// The code of a page: whole blocks of commands, and spans within lines.
fn code(page: &str) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut spans, mut block) = (Vec::new(), Vec::new(), None);
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            // What is drawn is no command.
            (None, Some("sh" | "text")) if !line.contains('\u{2500}') => lines.push(line.to_owned()),
            (None, Some(_)) => {}
            (None, None) => spans.extend(line.split('`').skip(1).step_by(2).map(str::to_owned)),
        }
    }
    (lines.join("\n").replace("\\\n", " ").lines().map(str::to_owned).collect(), spans)
}

/// The words behind each `fencepost` in a line of a shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let spaced =
        line.replace("$((mark + 1))", "7").replace(';', " && ").replace("$(", " && ").replace("\\%", "%");
    let words: Vec<String> = shlex::Shlex::new(&spaced).collect();
    let mut all = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_one = word == "fencepost" || word.ends_with("/fencepost");
        let is_first = at == 0
            || [ENDS, BEGINNINGS].concat().contains(&words[at - 1].as_str())
            || words[at - 1].contains('=');
        if is_one && is_first {
            let rest = words[at..].iter().take_while(|word| !ENDS.contains(&word.as_str()));
            all.push(rest.filter(|word| *word != "\u{2026}").map(|word| replaced(word)).collect());
        }
        // A command line in one word is what another shell is given.
        if word.contains("fencepost ") {
            all.extend(commands(word));
        }
    }
    all
}

fn replaced(word: &str) -> String {
    let found = PLACEHOLDERS.iter().find(|(name, _)| *name == word);
    found.map_or(word, |(_, example)| example).to_owned()
}

/// Why the command line does not understand a command; `is_in_part` where it may lack what it needs.
fn refusal(command: &[String], is_in_part: bool) -> Option<String> {
    let error = Cli::try_parse_from(command).err()?;
    let has_no_value = command.last().is_some_and(|word| word.starts_with("--"));
    let is_well = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => is_in_part,
        ErrorKind::InvalidValue => is_in_part && has_no_value,
        _ => false,
    };
    (!is_well).then(|| error.to_string())
}

#[test]
fn commands_of_all_pages_are_understood() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in pages() {
        let page = fs::read_to_string(&path).expect("a page can be read");
        let (lines, spans) = code(&page);
        let whole = lines.iter().flat_map(|line| commands(line)).map(|command| (command, false));
        // Codes of errors begin with the name too, and go on with capitals.
        let is_command = |span: &&String| {
            span.strip_prefix("fencepost ").is_some_and(|rest| rest.starts_with(|c: char| !c.is_uppercase()))
        };
        let parts = spans.iter().filter(is_command);
        let parts = parts.flat_map(|span| commands(span)).map(|command| (command, true));
        for (command, is_in_part) in whole.chain(parts) {
            seen += 1;
            if let Some(why) = refusal(&command, is_in_part) {
                wrong.push(format!("{}: {}\n{why}", path.display(), command.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "only {seen} commands were found");
}

/// Negative control: a flag that does not exist, a value that is none, and a command that was cut off are seen.
#[test]
fn command_that_is_not_understood_is_seen() {
    for line in [
        "fencepost run --no-such-flag nightly -- ./job.sh",
        "x=$(/usr/bin/fencepost run --ttl 30 nightly -- ./job.sh)",
        "fencepost run nightly",
        "sh -c 'fencepost statsu nightly'",
    ] {
        let found = commands(line);
        assert!(found.iter().any(|command| refusal(command, false).is_some()), "{line}: {found:?}");
    }
}
