//! `cargo xtask`: the workspace's own tools, in Rust so that they need nothing else installed.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command answers on its output")]

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use xtask::docs;
use xtask::guarantees;
use xtask::lab;
use xtask::messages;
use xtask::peers;
use xtask::simulate;
use xtask::tidy::{self, Tree};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(xtask::root()),
        ["docs"] => docs(xtask::root()),
        ["docs", "--check"] => check_docs(xtask::root()),
        ["messages"] => messages(xtask::root()),
        ["simulate", ref arguments @ ..] => return simulate(xtask::root(), arguments),
        ["lab", ref arguments @ ..] => match lab::task(arguments) {
            Some(task) => lab::run(xtask::root(), task),
            None => return usage(),
        },
        ["bench", ref arguments @ ..] => bench(xtask::root(), arguments),
        _ => return usage(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn tidy(root: &Path) -> io::Result<ExitCode> {
    let findings = tidy::check(&Tree::read(root)?);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn docs(root: &Path) -> io::Result<ExitCode> {
    for (page, _, current) in pages(root)? {
        std::fs::write(root.join(page), current)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check_docs(root: &Path) -> io::Result<ExitCode> {
    let stale: Vec<&str> = pages(root)?
        .into_iter()
        .filter(|(_, text, current)| text != current)
        .map(|(page, ..)| page)
        .collect();
    for page in &stale {
        println!("{page}: its tables are not what the profiles say; run `cargo xtask docs`");
    }
    Ok(if stale.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Each page with tables: as it is, and as it should be.
fn pages(root: &Path) -> io::Result<[(&'static str, String, String); 2]> {
    let profiles = fencepost::profiles();
    let (readme, guarantees) =
        (std::fs::read_to_string(root.join(README))?, std::fs::read_to_string(root.join(GUARANTEES))?);
    let promised = docs::with_promises(&readme, &profiles, &docs::Proofs::find(root)?);
    let risked = guarantees::with_risks(&guarantees, &profiles);
    Ok([(README, readme, promised), (GUARANTEES, guarantees, risked)])
}

const README: &str = "README.md";
const GUARANTEES: &str = "docs/guarantees.md";

fn messages(root: &Path) -> io::Result<ExitCode> {
    messages::write(root)?;
    Ok(ExitCode::SUCCESS)
}

fn simulate(root: &Path, arguments: &[&str]) -> ExitCode {
    match simulate::command(root, arguments) {
        Some(command) => run(command),
        None => usage(),
    }
}

/// With `--peers`, those are installed first and take part.
fn bench(root: &Path, arguments: &[&str]) -> io::Result<ExitCode> {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["run", "--release", "--quiet", "--package", "fencepost-bench", "--"]);
    for argument in arguments {
        command.arg(argument);
        if *argument == "--peers" {
            command.arg(peers::install(root)?);
        }
    }
    Ok(run(command))
}

fn run(mut command: Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cargo does not start: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: cargo xtask tidy | docs [--check] | messages | simulate [--seeds N | --seed S] | bench [--json] [--page FILE] [--peers] [MEASURE]... |\n       \
         lab [--minutes N] [--seed S] | lab --screenshot | lab --picture"
    );
    ExitCode::from(2)
}
